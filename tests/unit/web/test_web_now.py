"""/state.json: the numbers of progress.json and the same in words, whatever anybody wrote into that file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial import files
from seatrial.campaign.owning import owned
from seatrial.cli.live_view import state_line
from seatrial.paths import CampaignPaths
from seatrial.records.codec import to_json
from seatrial.web.now import NEVER_RAN, Now, now_json, read_now
from tests.unit.web.served import fake_source, live_state, served
from tests.waiting import wait_until

EVIL = "</script><script>alert(1)</script>\x1b[31m\u2028\u202e\"'&<img src=x onerror=alert(1)>"
UNDER_WAY = live_state(
    finished=1,
    failed=1,
    run="mb8_r1",
    attempt=2,
    step=40,
    total_steps=200,
    phase="train",
    elapsed_s=12.34,
    iter_ms_p50=51.2,
    run_eta_s=8.1,
    campaign_eta_s=185.0,
    campaign_eta_low_s=170.0,
    campaign_eta_high_s=210.0,
    alarm="steps take 130 ms",
)


def test_two_bars_in_numbers_and_words() -> None:
    told = now_json(Now(state=UNDER_WAY, is_run=True, line="l"))
    assert told["campaign"] == {"name": "demo", "done": 1, "of": 4, "text": "1 of 4 runs · 1 failed · ETA 3m 05s (2m 50s–3m 30s)"}
    words = "attempt 2 · step 40 of 200 · train · 51.2 ms a step · 12.3 s · ETA 8.1 s"
    assert told["run"] == {"name": "mb8_r1", "done": 41, "of": 200, "text": words}
    assert told["state"]["campaign_eta_high_s"] == 210.0 and told["alarm"] == "steps take 130 ms"
    assert told["runs_now"] is True and told["over"] is False


def test_between_runs_before_the_first_step_and_without_a_known_end() -> None:
    between = now_json(Now(state=live_state(finished=2), is_run=True, line="l"))
    assert between["run"] is None and between["campaign"]["text"] == "2 of 4 runs · ETA –"
    first = now_json(Now(state=live_state(run="a", elapsed_s=2.0), is_run=True, line="l"))
    assert first["run"] == {"name": "a", "done": 0, "of": None, "text": "no step yet · 2.0 s · ETA –"}


@pytest.mark.parametrize(
    ("over", "is_run", "says"), [(True, False, True), (True, True, False), (False, False, False), (False, True, False)]
)
def test_it_is_over_when_it_says_so_and_nobody_holds_the_folder(over: bool, is_run: bool, says: bool) -> None:
    assert now_json(Now(state=live_state(over=over), is_run=is_run, line="l"))["over"] is says


def test_what_a_dead_campaign_was_doing_is_no_longer_shown_as_done_now() -> None:
    told = now_json(Now(state=UNDER_WAY, is_run=False, line="l"))
    assert told["run"] is None and told["alarm"] == "" and "ETA" not in told["campaign"]["text"]


def test_the_folder_tells_who_runs_it_and_how_it_stands(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    assert read_now(paths, state_line) == Now(state=None, is_run=False, line=NEVER_RAN)
    files.write_json(paths.progress, to_json(UNDER_WAY))
    with owned(paths):
        now = read_now(paths, state_line)
    assert now.state == UNDER_WAY and now.is_run and now.line == state_line(UNDER_WAY)
    assert not read_now(paths, state_line).is_run


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"t": "x"}', '{"t": NaN, "pid": 1, "host": "h", "plan": "p", "count": 1}', "1" * 9999]
)
def test_a_progress_file_of_somebody_else_is_no_state(tmp_path: Path, text: str) -> None:
    paths = CampaignPaths(tmp_path)
    paths.progress.write_text(text)
    assert read_now(paths, state_line).state is None


def test_hostile_names_come_as_text_that_no_reader_acts_on() -> None:
    state = live_state(run=EVIL, plan=EVIL, phase=EVIL, alarm=EVIL, host=EVIL)
    now = Now(state=state, is_run=True, line=state_line(state))
    with served(fake_source(now=lambda: now)) as client:
        client.enter()
        answer = wait_until(lambda: (found := client.ask("/state.json")) and "campaign" in found.text and found)
    assert answer.headers["Content-Type"] == "application/json" and answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not any(letter in answer.text for letter in "\x1b\u2028\u202e")
    told = json.loads(answer.text)
    assert told["state"]["run"] == EVIL
    for shown in (told["line"], told["alarm"], told["run"]["name"], told["run"]["text"], told["campaign"]["name"]):
        assert "\x1b" not in shown and "alert(1)" in shown
