"""`verify`: proves from Kafka, ledger, sinks and dead letters that every offset is accounted for."""
