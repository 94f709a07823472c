"""What people do to a checkpoint: seek, split, fork, backup, restore, repair."""
