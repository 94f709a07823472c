"""Real-time mode: Kafka to Kafka in milliseconds, at least once."""
