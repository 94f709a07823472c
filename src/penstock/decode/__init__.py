"""Decoders: one file per format. A decoder is a pure function from raw values to typed columns or errors.

It never raises, needs no JVM and runs in the Python workers through `mapInArrow` (see `decode.worker`).
"""
