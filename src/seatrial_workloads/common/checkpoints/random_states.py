"""The states of this process's random numbers. In: nothing. Out: one dictionary that torch.save keeps and a safe load gives back.

Python, numpy where it was imported, torch on the CPU, and CUDA's own on this rank's GPU.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def random_states() -> dict[str, Any]:
    """As they stand."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        # As a list: a load that runs no code knows no arrays.
        states["numpy"] = (kind, keys.tolist(), *rest)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Put back what `random_states` gave."""
    version, internal, gauss_next = states["python"]
    random.setstate((version, tuple(internal), gauss_next))
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
