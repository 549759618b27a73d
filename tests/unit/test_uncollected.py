"""A while without a search for circles."""

from __future__ import annotations

import gc

import pytest

from seatrial.uncollected import uncollected


def test_it_is_on_again_whatever_happens() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), uncollected():
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
