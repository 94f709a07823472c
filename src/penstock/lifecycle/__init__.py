"""Starting, following, restarting and ending runs: stream, real-time, backfill, replay; what `plan` foretells."""
