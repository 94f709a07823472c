"""The path of a batch: source views, the run, counts, the dead-letter budget, records that steps fail on."""
