"""Turns what runs left on disk into values: attempts, step tables, causes of failure, and the manifest of them all."""
