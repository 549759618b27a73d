"""Whether two runs, groups or sides were measured with the same debug and tracing switches on.

In: debug settings as texts, `NCCL_DEBUG=INFO`. Out: what counts of them.
"""

from __future__ import annotations

from collections.abc import Iterable

WITH_LEVELS = ("NCCL_DEBUG", "TORCH_DISTRIBUTED_DEBUG")
"""Settings whose value says how much they do. Of the others the value is a path, an id or a list of names."""


def switched_on(debug: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Debug settings by name, those with levels with their level: two traces into two files are one thing."""
    parts = [text.partition("=") for text in debug]
    return frozenset((name, value.strip().lower() if name in WITH_LEVELS else "") for name, _, value in parts)
