"""Who may read what Seatrial writes."""

from __future__ import annotations

import pytest

from seatrial.disk import modes

OTHERS = 0o077


@pytest.mark.parametrize("mode", [modes.PRIVATE, modes.PRIVATE_FOLDER, modes.PRIVATE_PROGRAM])
def test_private_is_private(mode: int) -> None:
    assert mode & OTHERS == 0


def test_the_team_may_read_and_only_the_user_write_results() -> None:
    assert modes.READABLE & 0o444 == 0o444 and modes.READABLE & 0o022 == 0 and not modes.READABLE & 0o111
