"""The spec: model, loading, checking and reference. Needs no engine and no Kafka client."""
