"""`watch`, `stop` and the live view: a running campaign seen from elsewhere."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.campaign.lock import hold_lock
from seatrial.cli import watch
from seatrial.cli.browser import open_private
from seatrial.cli.live_view import PlainView, TerminalView, heartbeat_line, live_view, state_line
from seatrial.cli.main import run_command
from seatrial.core import files
from seatrial.core.paths import CampaignPaths
from seatrial.records.codec import to_json
from seatrial.records.plan import PlaceSpec, SlurmSpec
from seatrial.records.results import LiveState
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.results.campaigns import write_campaign
from tests.unit.security.folders import contents

STATE = LiveState(t=1.0, pid=1, host="node1", plan="nightly", count=4, finished=1, run="mb8_r2", step=6, total_steps=10, elapsed_s=3.0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("over", [False, True])
def test_watch_says_once_how_it_stands(here: Path, over: bool, capsys: pytest.CaptureFixture[str]) -> None:
    paths = CampaignPaths(here / "out")
    files.write_json(paths.progress, {**to_json(STATE), "over": over})
    assert run_command(["watch", "out", "--once"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert line.endswith(f"{watch.NOT_RUNNING}\n") is not over, "nobody runs one that did not say it was over"
    assert ("nightly: ended, 1 of 4 runs done" if over else "mb8_r2: step 6 of 10") in line


def test_watch_shows_jobs_that_no_harness_follows_by_their_own_files(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the harness published last is as old as its end."""
    paths = CampaignPaths(here / "out")
    files.write_json(paths.progress, to_json(STATE))
    slurm = factory.spec("mb8", 1, place=PlaceSpec(kind="slurm", slurm=SlurmSpec()), steps=100)
    runs = {}
    for run, number in (("mb8_r1", "11"), ("mb8_r2", "12")):
        attempt = runs[run] = paths.run(run).attempt(1)
        files.write_json(attempt.spec, to_json(dataclasses.replace(slurm, run=run)))
        files.write_json(attempt.job, {"job": number})
    running = runs["mb8_r1"]
    running.job_start.write_text("{}")
    beat = {
        "ts": time.time() - 3,
        "pid": 1,
        "rank": 0,
        "step": 41,
        "msg": "",
        "phase": "fwd",
        "attempt": 1,
        "host": "n1",
        "step_t": time.time(),
    }
    running.heartbeat(0).write_text(json.dumps(beat) + "\n")
    assert run_command(["watch", "out", "--once"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"mb8_r1: step 41 of 100, heartbeat \d+\.\d s ago · job 11, which no harness follows: `seatrial run` picks it up", first
    )
    assert second.startswith("mb8_r2: not started yet · job 12, which no harness follows")
    # Until both are over.
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: [files.write_json(one.outcome, {}) for one in runs.values()])
    assert run_command(["watch", "out"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_watch_ends_when_the_campaign_does(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = CampaignPaths(here / "out")
    files.write_json(paths.progress, to_json(STATE))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            files.write_json(paths.progress, {**to_json(STATE), "over": True, "finished": 4})

    monkeypatch.setattr(watch.time, "sleep", sleep)
    with hold_lock(paths):
        assert run_command(["watch", "out"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nightly: ended, 4 of 4 runs done, 0 failed"
    assert slept == [watch.POLL_S] * 2


def test_watch_into_a_pipe_prints_a_line_for_each_change_and_no_control_sequences(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    paths = CampaignPaths(here / "out")
    changes: list[dict[str, Any]] = [
        {"elapsed_s": 4.0, "step": 7},
        {"run": None, "finished": 2},
        {"run": "mb16_r1", "attempt": 1, "finished": 2, "step": None, "elapsed_s": 1.0},
        {"run": "mb16_r1", "attempt": 1, "finished": 2, "step": 3, "elapsed_s": 2.0, "alarm": "steps take 2.6 times as long as before"},
        {"run": "mb16_r1", "attempt": 1, "finished": 2, "step": 5, "elapsed_s": 32.0, "quiet_s": 4.0},
        {"run": None, "finished": 4, "over": True},
    ]
    files.write_json(paths.progress, to_json(STATE))
    monkeypatch.setattr(watch.time, "sleep", lambda _: files.write_json(paths.progress, {**to_json(STATE), **changes.pop(0)}))
    with hold_lock(paths):
        assert run_command(["watch", "out"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and "\r" not in text
    starts = (
        "mb8_r2: step 6",
        "nightly: between runs, 2 of 4",
        "mb16_r1: no step yet",
        "[WARN] ",
        "[INFO] heartbeat",
        "nightly: ended, 4 of 4",
    )
    lines = text.splitlines()
    assert len(lines) == len(starts) and all(line.startswith(start) for line, start in zip(lines, starts, strict=True)), text
    assert "elapsed=32.0 s, quiet=4.0 s" in lines[4]


ADDRESS = "http://127.0.0.1:8123/?token=abc"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return write_campaign(tmp_path / "out", steps=3).folder


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(["watch", *words]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


def test_a_folder_that_holds_no_campaign_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        assert "holds no campaign" in refusal([str(tmp_path / name), "--web"], capsys)
    assert contents(tmp_path) == {"empty": None}


def test_a_port_that_is_taken_is_refused_with_the_remedy(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = refusal([str(out), "--web", "--port", str(port)], capsys)
    assert f"port {port} is taken" in said and "--port" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--web", "--once"], "leave one of them out"),
        (["--port", "80"], "--port is for the page of --web"),
        (["--open"], "--open is for the page of --web"),
        (["--web", "--port", "65536"], "65535"),
    ],
)
def test_words_that_do_not_go_together(out: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refusal([str(out), *words], capsys)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_its_name_is_reported(
    out: Path, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # There, and not to be loaded: that is said as for one that is not there at all.
    (tmp_path / f"{missing}.py").write_text("raise ImportError('made for another Python')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in list(sys.modules):
        if name.split(".")[0] == missing or name.startswith("seatrial.web."):
            monkeypatch.delitem(sys.modules, name)
    said = refusal([str(out), "--web"], capsys)
    assert "made for another Python" in said and "pip install 'seatrial[web]'" in said


def test_without_a_display_nothing_is_opened_and_the_way_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    with open_private(ADDRESS, 8123, opener=pytest.fail) as sentence:
        assert "ssh -L 8123:127.0.0.1:8123" in sentence and "token" not in sentence


def test_the_browser_is_reported_the_address_by_a_file_that_only_this_user_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    asked: list[str] = []
    done = threading.Event()

    def ask(address: str) -> bool:
        asked.append(address)
        done.set()
        return True

    with open_private(ADDRESS, 8123, opener=ask) as sentence:
        assert sentence == "" and done.wait(60)
        page = Path(asked[0].removeprefix("file://"))
        # What the process is started with is for everybody to read.
        assert "token" not in asked[0] and f"url={ADDRESS}" in page.read_text()
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    assert not page.parent.exists()


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
        quiet_s=2.0,
    )
    return dataclasses.replace(made, **changes)


HEARTBEAT = (
    "[INFO] heartbeat mb8 r1: last_step=40, iter_ms_p50=51.2, eta=00:00:09(8.1s), eta_mode=rank0, remain_steps=159, "
    "elapsed=31.0 s, quiet=2.0 s · campaign 2/4, ETA 3m 05s (2m 50s–3m 30s)"
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


def test_what_is_not_known_yet_is_reported_to_be_none() -> None:
    early = state(step=None, iter_ms_p50=None, run_eta_s=None, eta_mode="", campaign_eta_s=None, campaign_eta_low_s=None, quiet_s=None)
    assert heartbeat_line(early) == (
        "[INFO] heartbeat mb8 r1: last_step=none, iter_ms_p50=none, eta=none, eta_mode=none, remain_steps=none, elapsed=31.0 s, quiet=none"
        " · campaign 2/4, ETA –"
    )


def test_a_pause_is_named_in_the_heartbeat() -> None:
    compiling = heartbeat_line(state(step=None, phase="pause:compile"))
    assert "quiet=2.0 s, pause=compile · campaign 2/4" in compiling and "pause" not in heartbeat_line(state(phase="fwd"))


def test_every_half_minute_of_each_run_where_there_is_no_terminal() -> None:
    looks = [state(elapsed_s=float(second)) for second in range(70)]
    assert said(*looks) == [HEARTBEAT.replace("31.0 s", "30.0 s"), HEARTBEAT.replace("31.0 s", "1m 00s")]
    other = [state(run="mb16_r1", group="mb16", elapsed_s=float(second)) for second in range(31)]
    assert [line.split(":")[0] for line in said(*looks, *other)] == ["[INFO] heartbeat mb8 r1"] * 2 + ["[INFO] heartbeat mb16 r1"]


def test_as_often_as_asked_and_never_for_zero() -> None:
    looks = [state(elapsed_s=float(second)) for second in range(21)]
    assert len(said(*looks, heartbeat_s=10.0)) == 2
    assert said(*looks, heartbeat_s=0.0) == []


def test_a_terminal_has_them_above_its_bars_only_when_asked() -> None:
    looks = [state(elapsed_s=float(second)) for second in range(40)]
    assert said(*looks, terminal=True) == []
    assert said(*looks, terminal=True, heartbeat_s=30.0) == [HEARTBEAT.replace("31.0 s", "30.0 s")]


def test_an_alarm_is_reported_once_and_again_only_when_it_is_another() -> None:
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


def test_stop_asks_the_owner_and_says_whom(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = CampaignPaths(here / "out")
    with hold_lock(paths) as owner:
        assert run_command(["stop", "out"]) == 0
        assert files.read_json(paths.stop_request) == {"token": owner.token}
    assert states(capsys.readouterr().out, owner.pid, owner.host)
    assert run_command(["stop", "out"]) == 1
    assert "no campaign is running in out" in capsys.readouterr().err
