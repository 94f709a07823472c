"""Encoders: one file per format. The mirror of decode: typed columns in, the bytes of Kafka records or errors out.

An encoder is a pure function over one Arrow batch. It never raises for data, needs no JVM, pickles, and runs in the
Python workers. What can never work (a column without a field, a type that does not fit) is said when it is made.
"""
