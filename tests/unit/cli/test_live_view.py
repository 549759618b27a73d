"""The lines of a campaign as it goes: heartbeats in the seed's form, alarms once, bars with their interval."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any

from rich.console import Console

from seatrial.cli.live_view import PlainView, TerminalView, heartbeat_line, live_view, state_line
from seatrial.records.live import LiveState


def state(**changes: Any) -> LiveState:
    made = LiveState(
        t=1.0,
        pid=2,
        host="node-1",
        plan="demo",
        count=4,
        finished=2,
        run="mb8_r1",
        attempt=1,
        group="mb8",
        repeat=1,
        step=40,
        total_steps=200,
        phase="bwd",
        elapsed_s=31.0,
        iter_ms_p50=51.23,
        run_eta_s=8.14,
        run_eta_low_s=8.0,
        run_eta_high_s=9.5,
        eta_mode="rank0",
        campaign_eta_s=185.0,
        campaign_eta_low_s=170.0,
        campaign_eta_high_s=210.0,
    )
    return dataclasses.replace(made, **changes)


HEARTBEAT = (
    "[INFO] heartbeat mb8 r1: last_step=40, iter_ms_p50=51.2, eta=00:00:09(8.1s), eta_mode=rank0, remain_steps=159"
    " · campaign 2/4, ETA 3m 05s (2m 50s–3m 30s)"
)
SPIKE = "steps take 130.0 ms (median, rank 0, at step 40), 2.6 times the 50.0 ms before"


def said(*states: LiveState, heartbeat_s: float | None = None, terminal: bool = False) -> list[str]:
    """The lines of a view that sees these states, bars left out."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=300, color_system=None)
    with live_view(console, heartbeat_s) as view:
        for each in states:
            view.progress(each)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue())
    return [line for line in re.split(r"[\r\n]+", plain) if line.startswith("[")]


def test_the_heartbeat_in_the_seed_s_form() -> None:
    assert heartbeat_line(state()) == HEARTBEAT


def test_what_is_not_known_yet_is_said_to_be_none() -> None:
    early = state(step=None, iter_ms_p50=None, run_eta_s=None, eta_mode="", campaign_eta_s=None, campaign_eta_low_s=None)
    assert heartbeat_line(early) == (
        "[INFO] heartbeat mb8 r1: last_step=none, iter_ms_p50=none, eta=none, eta_mode=none, remain_steps=none · campaign 2/4, ETA –"
    )


def test_every_half_minute_of_each_run_where_there_is_no_terminal() -> None:
    looks = [state(elapsed_s=float(second)) for second in range(70)]
    assert said(*looks) == [HEARTBEAT, HEARTBEAT]
    other = [state(run="mb16_r1", group="mb16", elapsed_s=float(second)) for second in range(31)]
    assert [line.split(":")[0] for line in said(*looks, *other)] == ["[INFO] heartbeat mb8 r1"] * 2 + ["[INFO] heartbeat mb16 r1"]


def test_as_often_as_asked_and_never_for_zero() -> None:
    looks = [state(elapsed_s=float(second)) for second in range(21)]
    assert len(said(*looks, heartbeat_s=10.0)) == 2
    assert said(*looks, heartbeat_s=0.0) == []


def test_a_terminal_has_them_above_its_bars_only_when_asked() -> None:
    looks = [state(elapsed_s=float(second)) for second in range(40)]
    assert said(*looks, terminal=True) == []
    assert said(*looks, terminal=True, heartbeat_s=30.0) == [HEARTBEAT]


def test_an_alarm_is_said_once_and_again_only_when_it_is_another() -> None:
    looks = [state(elapsed_s=1.0), *[state(elapsed_s=2.0, alarm=SPIKE)] * 3, state(elapsed_s=3.0, alarm="steps take 50.0 ms again")]
    expected = [f"[WARN] mb8 r1: {SPIKE}", "[WARN] mb8 r1: steps take 50.0 ms again"]
    assert said(*looks) == expected
    assert said(*looks, terminal=True) == expected


def test_an_attempt_started_anew_says_its_own_alarms_and_not_those_of_the_one_before() -> None:
    looks = [state(alarm=SPIKE, elapsed_s=1.0), state(alarm=SPIKE, run=None), state(attempt=2, alarm=SPIKE, elapsed_s=0.0)]
    assert said(*looks) == [f"[WARN] mb8 r1: {SPIKE}"]
    again = [state(attempt=2, elapsed_s=1.0), state(attempt=2, alarm=SPIKE, elapsed_s=2.0)]
    assert said(*looks, *again) == [f"[WARN] mb8 r1: {SPIKE}"] * 2


def test_the_line_for_those_who_look_on_and_the_bars_show_the_interval() -> None:
    assert state_line(state()) == (
        "mb8_r1: step 40 of 200 · bwd · 31.0 s · ETA 8.1 s (8.0 s–9.5 s) · campaign 2/4, ETA 3m 05s (2m 50s–3m 30s)"
    )
    view = TerminalView(Console(file=io.StringIO()))
    view.progress(state(campaign_eta_low_s=None))
    assert [task.fields["right"] for task in view.bars.tasks] == [
        "2/4 runs · ETA 3m 05s",
        "step 40 of 200 · bwd · 31.0 s · ETA 8.1 s (8.0 s–9.5 s)",
    ]


def test_a_view_without_a_campaign_s_start_can_be_joined_late() -> None:
    text = io.StringIO()
    view = PlainView(Console(file=text, width=300), 30.0)
    view.progress(state(elapsed_s=300.0))
    view.progress(state(elapsed_s=301.0))
    assert text.getvalue().count("heartbeat") == 1
