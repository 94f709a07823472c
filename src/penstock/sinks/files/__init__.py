"""Parquet files that Python workers write, for sinks that can publish them."""
