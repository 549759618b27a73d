"""How many files may be open: raised as far as the hard limit lets us, and never lowered."""

from __future__ import annotations

import resource
import sys

import pytest

from seatrial.machine.handles import make_room


@pytest.mark.parametrize(
    ("limits", "wanted", "allowed"),
    [
        ((1024, 4096), 3000, 3000),
        ((1024, 4096), 9000, 4096),
        ((1024, resource.RLIM_INFINITY), 9000, 9000),
        ((1024, 4096), 100, 1024),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 9000, sys.maxsize),
    ],
)
def test_room_is_made(limits: tuple[int, int], wanted: int, allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda what: held[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda what, both: held.append(both))
    assert make_room(wanted) == allowed
    assert held[-1][1] == limits[1] and (held[-1][0] == allowed or allowed == sys.maxsize)
