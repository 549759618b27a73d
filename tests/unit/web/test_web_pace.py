"""How often the page is made: only while somebody looks, and never for more than a fifth of the time."""

from __future__ import annotations

import pytest

from seatrial.web.pace import EVERY_S, FORGOTTEN_AFTER_S, Pace


def test_nothing_is_due_while_nobody_asks() -> None:
    pace = Pace()
    assert not pace.is_due(0.0)
    pace.asked(10.0)
    assert pace.is_due(10.0)
    assert not pace.is_due(10.0 + FORGOTTEN_AFTER_S)


def test_a_quick_campaign_is_made_every_few_seconds() -> None:
    pace = Pace()
    pace.asked(0.0)
    pace.made(0.0, 0.1)
    assert not pace.is_due(EVERY_S - 0.01)
    assert pace.is_due(EVERY_S)


@pytest.mark.parametrize("takes_s", [0.01, 1.0, 12.0, 100.0])
def test_no_more_than_a_fifth_of_the_time_however_long_it_takes(takes_s: float) -> None:
    pace, now_s, busy_s = Pace(), 0.0, 0.0
    while now_s < 10_000:
        pace.asked(now_s)
        if pace.is_due(now_s):
            pace.made(now_s, now_s + takes_s)
            busy_s += takes_s
            now_s += takes_s
        now_s += 0.5
    assert 0 < busy_s <= 0.2 * now_s + takes_s
