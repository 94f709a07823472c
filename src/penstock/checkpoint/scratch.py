"""A pipeline that is only looked at: what its parts would write into the checkpoint goes elsewhere, and is removed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.checkpoint.home import Home
from penstock.spec.model import Pipeline


@contextmanager
def set_aside(pipeline: Pipeline, home: Home, *, purpose: str = "plan") -> Iterator[Pipeline]:
    """The pipeline with a checkpoint directory of its own, which begins with the schemas that the real one knows."""
    directory = Path(tempfile.mkdtemp(prefix=f"penstock-{purpose}-"))
    try:
        if home.schemas.is_dir():
            half_written = shutil.ignore_patterns(".*", "*.new")
            shutil.copytree(home.schemas, directory / "schemas", ignore=half_written)
        yield pipeline.model_copy(update={"checkpoint": str(directory)})
    finally:
        shutil.rmtree(directory, ignore_errors=True)
