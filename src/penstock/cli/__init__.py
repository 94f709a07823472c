"""The command line. Each module adds its commands to `app`; heavy imports stay inside the commands."""
