"""Ratios against what users would pick instead, measured in one run on one machine: `make bench`."""
