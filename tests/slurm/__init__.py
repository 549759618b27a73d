"""Tests against a real Slurm, which they start and stop themselves: the lane `make test-slurm`."""
