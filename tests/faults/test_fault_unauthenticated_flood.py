"""Programs without the token connect to the harness's port, 500 a second for a minute."""

from __future__ import annotations

from tests.unit.security.unauthenticated_peers import NODES, PER_S, let_in_under_flood

SECONDS = 60.0
IN_WITHIN_S = 5.0


def test_an_unauthenticated_flood_keeps_no_agent_out() -> None:
    took_s, num_peers = let_in_under_flood(SECONDS)
    assert num_peers > 0.9 * PER_S * SECONDS and len(took_s) >= 10 * len(NODES)
    assert max(took_s) < IN_WITHIN_S
