"""Avro, decoded many records at a time: see `decoder`."""
