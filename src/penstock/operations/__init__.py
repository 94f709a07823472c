"""What people do to a checkpoint: show, seek, split, fork, backup, restore, repair."""
