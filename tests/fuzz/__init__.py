"""Arbitrary bytes for every parser: `python -m tests.fuzz --seconds 60`."""
