"""Iceberg: append and upsert."""
