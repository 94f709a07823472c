"""Replays: chosen dead letters through the pipeline again."""
