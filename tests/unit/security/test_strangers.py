"""Hundreds of connections a second by programs without the token: every node is let in within seconds."""

from __future__ import annotations

from tests.unit.security.strangers import NODES, PER_S, let_in_under_flood

IN_WITHIN_S = 5.0


def test_a_flood_of_strangers_keeps_no_node_out() -> None:
    """For a minute: tests/faults/test_fault_strangers.py."""
    took_s, num_strangers = let_in_under_flood(3.0)
    assert num_strangers > PER_S and len(took_s) >= len(NODES)
    assert max(took_s) < IN_WITHIN_S
