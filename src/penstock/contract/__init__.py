"""Contracts: rules, and the verdict they give each record."""
