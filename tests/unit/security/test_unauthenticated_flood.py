"""Hundreds of connections a second by programs without the token: every node is let in within seconds."""

from __future__ import annotations

from tests.unit.security.unauthenticated_peers import NODES, PER_S, let_in_under_flood

IN_WITHIN_S = 5.0


def test_an_unauthenticated_flood_keeps_no_node_out() -> None:
    """For a minute: tests/faults/test_fault_unauthenticated_flood.py."""
    took_s, num_peers = let_in_under_flood(3.0)
    assert num_peers > PER_S and len(took_s) >= len(NODES)
    assert max(took_s) < IN_WITHIN_S
