"""Spark itself: its jars, its Java, its session."""
