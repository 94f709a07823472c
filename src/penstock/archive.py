"""Archives from outside: unpacked into a directory, and nowhere else."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath


def unpack(archive: tarfile.TarFile, into: Path) -> None:
    """Raises a TarError for anything but files and directories below `into`.

    Python's own filter does more (it also drops owners and odd modes), but the first releases of 3.11 do not have it.
    """
    if hasattr(tarfile, "data_filter"):
        archive.extractall(into, filter="data")
        return
    for member in archive.getmembers():
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
            raise tarfile.ExtractError(f"{member.name} would reach outside of {into.name}")
    archive.extractall(into)
