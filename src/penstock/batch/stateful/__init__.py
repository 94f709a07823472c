"""Steps that keep state between batches."""
