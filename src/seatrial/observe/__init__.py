"""Looking at a run while it runs: progress, limits, time to go."""
