"""For code that runs in Spark's Python workers."""

from __future__ import annotations

import sys
import zipimport


def forget_archives() -> None:
    """Make the next task of this worker begin quickly. Called at the beginning of every task.

    Before each task Spark has Python look anew at every place that modules were found in. For an archive that means
    to read its directory again: pyspark's, once for each package in it, and that of Spark's own jar. It takes a tenth
    to a quarter of a second of processor time, however small the task is. An archive that is not remembered is not
    looked at; a later import from it finds it by itself.
    """
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[place]
