"""Schemas as their formats define them, and the columns they make: what decode and encode both need to know."""
