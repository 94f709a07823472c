"""Protobuf schemas."""
