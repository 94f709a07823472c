"""The schema registry: schemas by id, by subject and version, kept on disk."""
