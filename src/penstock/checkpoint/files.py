"""Files of a checkpoint, one at a time: written whole or not at all, and found out when they are not what was written.

Spark keeps a checksum beside each of its files (`.<name>.crc`, Hadoop's format). A file that does not match it was
truncated or changed since; one without a checksum can only be judged by what stands in it.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

_MAGIC = b"crc\x00"


def checksum_of(file: Path) -> Path:
    """Where Hadoop keeps the checksum of a file."""
    return file.with_name(f".{file.name}.crc")


def remove_lone_checksums(directory: Path) -> None:
    """Remove checksums whose file is gone: somebody moved it away, or a crash of the machine kept only one of the two.
    Spark could not write that file again: it would fail with "Multiple streaming queries are concurrently using"."""
    for checksum in directory.glob(".[0-9]*.crc"):
        if not directory.joinpath(checksum.name[1:-4]).exists():
            checksum.unlink(missing_ok=True)


def put(file: Path, content: bytes) -> None:
    """Replace a file. When this returns it is on the disk; after a crash it is the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    with new.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    checksum_of(file).unlink(missing_ok=True)  # of the old content; without one Spark does not compare
    new.rename(file)
    sync_directory(file.parent)


def sync_directory(path: Path) -> None:
    """Its list of names: a rename is on the disk only when this was done for where it went."""
    sync_file(path)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(path: Path) -> None:
    """A directory with all that is below it. When this returns it is on the disk, but for its own name."""
    for directory, _, names in os.walk(path):
        for name in names:
            sync_file(Path(directory) / name)
        sync_directory(Path(directory))


def wrong_with(file: Path) -> str | None:
    """What is wrong with a file, judged by its checksum; None where nothing is known against it."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not content:
        return "is empty"
    try:
        sums = checksum_of(file).read_bytes()
    except OSError:
        return None
    step = int.from_bytes(sums[4:8], "big")
    if not sums.startswith(_MAGIC) or not step:
        return None
    found = b"".join(zlib.crc32(content[at : at + step]).to_bytes(4, "big") for at in range(0, len(content), step))
    return None if found == sums[8:] else "does not match its checksum: it was truncated or changed"


def size_of(path: Path) -> int:
    """Bytes in a directory, with all that is below it. What disappears meanwhile does not count."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                total += (Path(directory) / name).stat().st_size
            except OSError:
                continue
    return total
