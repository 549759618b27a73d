"""INT, TERM and HUP: the first breaks off, the next at once are the same wish, and what was ignored stays ignored."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from seatrial.cli.stop_signals import CLEARING_AWAY_S, StopSignals
from seatrial.records.exit_codes import STOP_SIGNALS


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    # Whoever started the tests may have one ignored, as nohup does.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_breaks_off_and_the_next_are_the_same_wish(number: signal.Signals) -> None:
    cleared = False
    with StopSignals() as signals:
        with pytest.raises(KeyboardInterrupt):
            try:
                os.kill(os.getpid(), number)
            finally:
                for again in STOP_SIGNALS:
                    os.kill(os.getpid(), again)
                cleared = True
        assert signals.raised
    assert cleared


def test_one_that_comes_late_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    now_m = [0.0]
    with StopSignals(lambda: now_m[0]):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        now_m[0] = CLEARING_AWAY_S
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended == []
        now_m[0] = CLEARING_AWAY_S + 0.1
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended == [130]


def test_after_the_block_nothing_can_be_broken_off() -> None:
    with StopSignals() as signals:
        pass
    for number in STOP_SIGNALS:
        os.kill(os.getpid(), number)
    assert not signals.raised


def test_under_nohup_hup_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
    assert not signals.raised
