"""Workloads that Seatrial can start by name. Each runs without the harness too: `python -m seatrial_workloads.tiny_lm.train --help`."""
