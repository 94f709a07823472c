"""`verify`: that every offset is accounted for, proven from Kafka, ledger, sinks and dead letters."""
