"""Watching a run while it runs: progress, limits and stalls, samplers, ETA."""
