"""Times of day without a zone, and the zone that samples tell."""

from __future__ import annotations

import pytest

from seatrial.collect.original.local_clock import local_s, sampled_zone_s, written_zone_s

AT_S = 1771437380.0
"""2026-02-18 17:56:20 by a clock that shows UTC."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-02-18 17:56:20,250 - train - INFO - Step 0: Loss 1.0", AT_S + 0.25),
        ("2026-02-18T17:56:20+08:00", AT_S),
        ("2026/02/18 17:56:20.5", AT_S + 0.5),
        (" 2026-02-18 17:56:20", AT_S),
        ("[2026-02-18 17:56:20,123] [INFO]", None),
        ("2026-02-30 17:56:20", None),
        ("Step 0: Loss 1.0", None),
        ("", None),
    ],
)
def test_stamps(text: str, found: float | None) -> None:
    assert local_s(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-02-18T17:56:20+08:00", 28800.0),
        ("2026-02-18T17:56:20-0330", -12600.0),
        ("2026-02-18T17:56:20Z", 0.0),
        ("2026-02-18 17:56:20", None),
        ("never", None),
    ],
)
def test_zones_that_are_written(text: str, found: float | None) -> None:
    assert written_zone_s(text) == found


def test_zones_that_samples_tell() -> None:
    epoch = str(int(AT_S) - 28800)
    assert sampled_zone_s([("2026/02/18 17:56:21.100", epoch)]) == 28800.0
    assert sampled_zone_s([("bad", epoch), ("2026-02-18 17:56:20", "none"), ("2026-02-18 17:56:20", epoch)]) == 28800.0
    assert sampled_zone_s([("2026-02-18 17:56:20", str(int(AT_S) - 5 * 86400))]) is None
    assert sampled_zone_s([]) is None
