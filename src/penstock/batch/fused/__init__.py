"""Decode, rules and the write in one pass inside the Python worker."""
