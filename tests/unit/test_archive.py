"""An archive that reaches outside is refused, also by a Python that has no filter of its own."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from penstock.archive import unpack


def archive(path: Path, *names: str, link: str = "") -> Path:
    with tarfile.open(path, "w:gz") as out:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 2
            out.addfile(member, io.BytesIO(b"ok"))
        if link:
            member = tarfile.TarInfo(link)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            out.addfile(member)
    return path


@pytest.fixture(params=["with a filter", "without one"])
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without one":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has none")


@pytest.mark.usefixtures("python")
def test_files_come_out(tmp_path: Path) -> None:
    with tarfile.open(archive(tmp_path / "a.tar.gz", "one", "in/two")) as opened:
        unpack(opened, tmp_path / "out")
    assert (tmp_path / "out/in/two").read_bytes() == b"ok"


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize(("name", "link"), [("../up", ""), ("in/../../up", ""), ("fine", "link")])
def test_what_reaches_outside_is_refused(tmp_path: Path, name: str, link: str) -> None:
    with (
        tarfile.open(archive(tmp_path / "a.tar.gz", name, link=link)) as opened,
        pytest.raises(tarfile.TarError),
    ):
        unpack(opened, tmp_path / "out")
    assert not (tmp_path / "up").exists()
