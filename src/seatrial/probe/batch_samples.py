"""How many samples a batch holds. In: a batch of any kind, and the loader it came from. Out: their number, None where neither tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

DEEPEST = 2
"""A pair of dictionaries is a batch as people write them; what lies deeper is the model's own business."""


def samples_of(batch: Any, loader: Any) -> int | None:
    """As the loader says, so that a shorter last batch counts as a whole one; else as the tensors of the batch agree."""
    told = getattr(loader, "batch_size", None)
    if type(told) is int and told > 0:
        return told
    lengths = set(_lengths(batch, DEEPEST))
    return lengths.pop() if len(lengths) == 1 else None


def _lengths(value: Any, depth: int) -> Iterable[int]:
    """First dimensions of the tensors and arrays in it."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return [int(shape[0])] if len(shape) else []
    if not depth:
        return []
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [length for part in parts for length in _lengths(part, depth - 1)]
