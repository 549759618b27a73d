"""Watching a run while it runs: progress, limits and stalls, ETA."""
