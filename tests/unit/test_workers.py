"""What is done once per task in a Python worker."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.workers import forget_archives


def test_archives_are_forgotten_and_still_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("in_archive_one.py", "here = 1")
        out.writestr("in_archive_two.py", "here = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("in_archive_one").here == 1
    assert str(archive) in sys.path_importer_cache
    forget_archives()
    assert not [place for place in sys.path_importer_cache if ".zip" in place]
    assert importlib.import_module("in_archive_two").here == 2
