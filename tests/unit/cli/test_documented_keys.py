"""Each key of what `--json` prints is in the page of its command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import checkpoint_documents, letter_documents, observe_documents
from tests.documents import Schema, keys_of

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENTS = {
    "lag": ("observe.md", "`lag --json`", observe_documents.LAG),
    "doctor": ("doctor.md", "`doctor --json`", observe_documents.DOCTOR),
    **{
        f"checkpoint {name}": ("checkpoints.md", "`--json`", checkpoint_documents.SCHEMAS[name])
        for name in ("show", "diff", "seek")
    },
    "dlq ls": ("dead-letters.md", "`--json`", letter_documents.LS),
    "dlq stats": ("dead-letters.md", "`--json`", letter_documents.STATS),
    "dlq replay": ("dead-letters.md", "`--json`", letter_documents.REPLAY),
}


@pytest.mark.parametrize(("page", "title", "schema"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_every_key_is_in_the_documents(page: str, title: str, schema: Schema) -> None:
    text = (DOCS / page).read_text()
    [section] = re.findall(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert "Keys" in section
    assert "stay between releases" in section
    assert sorted(key for key in keys_of(schema) if f"`{key}`" not in section) == []
