"""Protobuf, parsed by its own runtime and turned into columns by ptars: see `decoder`."""
