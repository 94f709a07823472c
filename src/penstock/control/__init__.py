"""Decisions about a running pipeline: pure functions over numbers. No engine, no Kafka client."""
