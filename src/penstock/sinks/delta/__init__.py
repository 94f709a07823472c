"""Delta: append and upsert."""
