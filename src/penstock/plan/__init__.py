"""From a spec to the parts that run it."""
