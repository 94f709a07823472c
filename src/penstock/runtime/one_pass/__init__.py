"""The short way of a batch: decode, rules and the write in one pass inside the Python worker."""
