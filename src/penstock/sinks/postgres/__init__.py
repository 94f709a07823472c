"""PostgreSQL: a batch and its ledger row in one transaction. The path of a batch is `sink.PostgresSink.write`."""

from penstock.sinks.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
