"""Avro, encoded many records at a time: see `encoder`."""
