"""Where a spec sends its dead letters: topics or a table, opened to write and to read."""

from __future__ import annotations

from penstock.deadletters.dead_letter import DeadLetters
from penstock.deadletters.table import DeadLetterTable
from penstock.deadletters.topic import DeadLetterTopics
from penstock.kafka.connection import client_config
from penstock.sinks.delta.append import DeltaSink
from penstock.spec.model import Pipeline
from penstock.spec.references import located

_TABLE = "dead-letters"  # how errors and the table's history name the dead-letter table


def dead_letters(pipeline: Pipeline) -> DeadLetters:
    to = pipeline.dead_letters
    if to.delta:
        # `evolve`: a table that an older version made lacks columns that letters have gained.
        return DeadLetterTable(DeltaSink(_TABLE, located(to.delta.path, pipeline.base), evolve=True), pipeline.name)
    assert to.kafka is not None  # the model allows exactly one of the two
    return DeadLetterTopics(client_config(pipeline), pipeline.name, to.kafka.topic, tuple(pipeline.source.topics))
