"""Encoders: one file per format. The mirror of decode: typed columns in, the bytes of Kafka records or errors out."""
