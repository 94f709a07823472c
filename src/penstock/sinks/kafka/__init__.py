"""Kafka as a sink: Spark's own at-least-once writer, and two ways of writing exactly once (see `kafka.transaction`)."""
