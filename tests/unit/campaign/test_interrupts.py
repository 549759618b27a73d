"""Signals and stop requests as urgency."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from seatrial.campaign.interrupts import REQUEST_LOOK_EVERY_S, Interrupts, Urgency
from seatrial.campaign.owner import ask_to_stop
from seatrial.campaign.owning import owned
from seatrial.paths import CampaignPaths


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_and_the_second_kills(tmp_path: Path, number: signal.Signals) -> None:
    paths = CampaignPaths(tmp_path)
    # Whoever started the tests may have it ignored, as nohup does.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        now_m = [0.0]
        with owned(paths) as owner, Interrupts(paths, owner, lambda: now_m[0]).caught() as interrupts:
            seen = [interrupts.urgency]
            for now_m[0] in (5.0, 5.05, 6.0):
                os.kill(os.getpid(), number)
                seen.append(interrupts.urgency)
        assert seen == [Urgency.NONE, Urgency.STOP, Urgency.STOP, Urgency.KILL], "two that come together are one wish"
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_request_from_another_terminal_stops(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    with owned(paths) as owner, Interrupts(paths, owner).caught() as interrupts:
        ask_to_stop(paths)
        assert interrupts.urgency is Urgency.STOP


def test_the_folder_is_not_asked_at_every_turn(tmp_path: Path) -> None:
    paths, now_m = CampaignPaths(tmp_path), [0.0]
    with owned(paths) as owner, Interrupts(paths, owner, lambda: now_m[0]).caught() as interrupts:
        assert interrupts.urgency is Urgency.NONE
        ask_to_stop(paths)
        now_m[0] = REQUEST_LOOK_EVERY_S / 2
        assert interrupts.urgency is Urgency.NONE
        now_m[0] = REQUEST_LOOK_EVERY_S
        assert interrupts.urgency is Urgency.STOP


def test_under_nohup_a_hang_up_is_not_heard(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with owned(paths) as owner, Interrupts(paths, owner).caught() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.urgency is Urgency.NONE
    finally:
        signal.signal(signal.SIGHUP, before)
