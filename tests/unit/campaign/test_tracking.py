"""Trackers in processes of their own: what is sent, and what becomes of those that fail, hang, die or are not there."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from seatrial.campaign import tracker_handle, tracking
from seatrial.campaign.owner import ask_to_stop
from seatrial.campaign.owning import owned
from seatrial.campaign.results import remake
from seatrial.campaign.tracker_handle import TrackerProcess
from seatrial.campaign.tracker_process import serve
from seatrial.campaign.tracking import Tracking, TrackingListener, send_all
from seatrial.cli.live_view import PlainView
from seatrial.cli.main import run_command
from seatrial.cli.track import stop_wishes
from seatrial.errors import UsageError
from seatrial.paths import CampaignPaths
from seatrial.records.exit_codes import STOP_SIGNALS
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.report.trackers import registry
from seatrial.report.trackers.registry import TRACKERS, chosen_trackers
from seatrial.report.trackers.tracker import TrackedCampaign, TrackedRun
from tests.processes import is_gone
from tests.unit.campaign.made_campaign import RUNS, TOKEN, write_campaign
from tests.unit.launch.factory import make_spec
from tests.waiting import wait_until

# Answers the first order and then sleeps, with a child that sleeps too.
HANGS = """
import subprocess, sys, time
sys.stdin.readline()
print('{"ok": true, "where": "here"}', flush=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""
DIES = "import sys; sys.stdin.readline(); sys.exit(7)"
# Its output is closed, as Python closes it at its end, and something still keeps it.
LINGERS = "import os, sys, time; sys.stdin.readline(); os.close(1); time.sleep(600)"
SAYS = "import sys, time; sys.stdin.readline(); sys.stdout.write({text}); sys.stdout.flush(); time.sleep(600)"
# A library that ends the process by itself, and then holds it up at its exit.
EXITS = """
import atexit, os, sys, time
from pathlib import Path
from seatrial.campaign import tracker_process as one
def leave(name, folder):
    atexit.register(time.sleep, 600)
    sys.exit("no licence")
one.open_tracker = leave
one.serve("mlflow", Path("."), sys.stdin, one._private_stdout())
"""
# Leaves a child in its own session that has no variables, and one with a session of its own; writes who they are, and goes on.
LEAVES_CHILDREN = """
import pathlib, subprocess, sys
sys.stdin.readline()
words = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(words, stdout=subprocess.DEVNULL, **how) for how in (dict(env=dict()), dict(start_new_session=True))]
pathlib.Path({pids!r}).write_text(" ".join(str(child.pid) for child in children))
{then}
"""


def process(tmp_path: Path, code: str) -> TrackerProcess:
    return TrackerProcess("mlflow", CampaignPaths(tmp_path), argv=(sys.executable, "-c", code))


def tracking_through(tmp_path: Path, code: str, **more: Any) -> Tracking:
    """One tracker whose process does as `code` says."""
    several = Tracking(["mlflow"], CampaignPaths(tmp_path), more.pop("warn", print), **more)
    several._trackers["mlflow"].process = process(tmp_path, code)
    return several


def outcome(how: Outcome) -> RunOutcome:
    return RunOutcome(run="mb8_r1", attempt=1, hash="h", outcome=how)


class Recorder:
    """A tracker that keeps what it is sent, and fails where it is told to."""

    where = "memory"

    def __init__(self, failing: str = "") -> None:
        self.runs: list[TrackedRun] = []
        self.campaigns: list[TrackedCampaign] = []
        self._failing = failing

    def send_run(self, run: TrackedRun) -> None:
        if run.name == self._failing:
            raise ConnectionError(f"refused\nwith {TOKEN}")
        self.runs.append(run)

    def send_campaign(self, campaign: TrackedCampaign) -> None:
        self.campaigns.append(campaign)


def test_orders_are_obeyed_and_failures_are_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_campaign(tmp_path / "out")
    remake(paths.folder)
    recorder = Recorder(failing="mb8_r2")
    monkeypatch.setattr("seatrial.campaign.tracker_process.open_tracker", lambda name, folder: recorder)
    runs = [{"do": "run", "attempt": str(paths.run(name).attempt(1).folder)} for name in ("mb8_r2", "mb16_r1", "nothing_r1")]
    orders = [{"do": "open"}, *runs, {"do": "campaign"}]
    answers = io.StringIO()
    serve("mlflow", paths.folder, io.StringIO("".join(json.dumps(order) + "\n" for order in orders)), answers)
    told = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [answer["ok"] for answer in told] == [True, False, True, False, True]
    assert told[1]["reason"] == "ConnectionError: refused" and "holds no attempt" in told[3]["reason"]
    assert [run.name for run in recorder.runs] == ["mb16_r1"] and recorder.campaigns[0].name == "factory"


def test_one_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    hanging = process(tmp_path, HANGS)
    assert hanging.ask({"do": "open"}, 30).ok
    assert hanging._process is not None
    family = psutil.Process(hanging._process.pid)
    end_m = time.monotonic() + 30
    while not family.children() and time.monotonic() < end_m:
        time.sleep(0.01)
    everyone = [family, *family.children(recursive=True)]
    answer = hanging.ask({"do": "run"}, 0.2)
    assert not answer.ok and answer.reason == "no answer in 0 s"
    assert psutil.wait_procs(everyone, timeout=60)[1] == [] and len(everyone) == 2


def test_one_that_dies_is_told_and_started_again(tmp_path: Path) -> None:
    dying = process(tmp_path, DIES)
    for _ in range(2):
        answer = dying.ask({"do": "open"}, 30)
        assert not answer.ok and answer.reason == "its process ended with exit code 7"
    dying.close(10)


def test_one_that_closes_its_output_and_lingers_is_told_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_handle, "END_LIMIT_S", 0.2)
    lingering = process(tmp_path, LINGERS)
    lingering._started()
    assert lingering._process is not None
    family = psutil.Process(lingering._process.pid)
    answer = lingering.ask({"do": "open"}, 30)
    assert not answer.ok and answer.reason == "its process closed its output and did not end"
    assert psutil.wait_procs([family], timeout=60)[1] == []


@pytest.mark.parametrize("text", ["'rubbish\\n'", "'\\xff\\n'", "'[1]\\n'", "'{}\\n{}\\n'", "'[' * 100_000 + '\\n'", "'x' * 2_000_000"])
def test_rubbish_is_no_answer(tmp_path: Path, text: str) -> None:
    answer = process(tmp_path, SAYS.format(text=text)).ask({"do": "open"}, 30)
    assert not answer.ok and answer.reason == "its answer cannot be read"


def test_a_library_that_exits_is_an_answer_and_its_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "CLOSE_LIMIT_S", 0.2)
    warned: list[str] = []
    with tracking_through(tmp_path, EXITS, warn=warned.append) as several:
        several.open()
        several.send_run(tmp_path / "run-1")
        several.send_campaign()
    assert len(warned) == 2 and all("SystemExit: no licence" in line for line in warned)


def test_what_nobody_foresaw_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    several = tracking_through(tmp_path, DIES, warn=warned.append)
    monkeypatch.setattr(several._trackers["mlflow"].process, "ask", lambda *_: 1 / 0)
    several.open()
    assert "ZeroDivisionError: division by zero; the campaign goes on" in warned[0]


@pytest.mark.parametrize("unasked", [False, True])
def test_the_children_of_one_that_died_do_not_outlive_it(tmp_path: Path, unasked: bool) -> None:
    pids = tmp_path / "pids"
    then = """print('{"ok": true}', flush=True)""" if unasked else "sys.exit(7)"
    with tracking_through(tmp_path, LEAVES_CHILDREN.format(pids=str(pids), then=then)) as several:
        several.open()
        if unasked:
            child = several._trackers["mlflow"].process._process
            assert child is not None
            child.wait(60)
            several.open()
        left = [int(pid) for pid in pids.read_text().split()]
        wait_until(lambda: all(is_gone(pid) for pid in left), "both children are gone")
    assert len(left) == 2


def test_a_child_that_is_gone_saves_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"
    busy = process(tmp_path, LEAVES_CHILDREN.format(pids=str(pids), then="""print('{"ok": true}', flush=True); sys.stdin.readline()"""))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ended:
        gone = psutil.Process(ended.pid)
    assert busy.ask({"do": "open"}, 30).ok
    found = busy._started_by
    monkeypatch.setattr(busy, "_started_by", lambda pid: [gone, *found(pid)])
    busy.kill()
    left = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: all(is_gone(pid) for pid in left), "both children are gone")


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    answer = TrackerProcess("mlflow", CampaignPaths(tmp_path), argv=(str(tmp_path / "none"),)).ask({"do": "open"}, 5)
    assert not answer.ok and "No such file" in answer.reason


def test_two_failures_in_a_row_and_it_is_left_alone(tmp_path: Path) -> None:
    warned: list[str] = []
    with tracking_through(tmp_path, DIES, warn=warned.append) as several:
        for number in range(5):
            several.send_run(tmp_path / f"run-{number}")
        several.send_campaign()
        (told,) = several.account()
    assert len(warned) == 2 and "left alone" in warned[1] and "left alone" not in warned[0]
    assert told.startswith("mlflow: 0 of 5 runs sent; 5 not (its process ended with exit code 7)")
    assert f"`seatrial report {tmp_path} --track mlflow`" in told


def test_whoever_interrupts_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "CLOSE_LIMIT_S", 600.0)
    with pytest.raises(KeyboardInterrupt), tracking_through(tmp_path, HANGS) as several:
        several.open()
        raise KeyboardInterrupt


def test_an_order_under_way_is_given_up_and_none_is_given_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "OPEN_LIMIT_S", 600.0)
    monkeypatch.setattr(tracking, "ORDER_LIMIT_S", 600.0)
    monkeypatch.setattr(tracking, "CLOSE_LIMIT_S", 600.0)
    monkeypatch.setattr(tracking, "HURRIED_CLOSE_LIMIT_S", 0.2)
    paths, looks = CampaignPaths(tmp_path), itertools.count()

    def asked_to_end() -> bool:
        """Only while the second order is waited for: the first was answered with a place."""
        return several._trackers["mlflow"].where == "here" and next(looks) > 2

    with tracking_through(tmp_path, HANGS, warn=pytest.fail, give_up=asked_to_end) as several:
        listener = TrackingListener(PlainView(Console(file=io.StringIO())), several)
        listener.started(make_spec(tmp_path), 1, 1, 2)
        several.send_run(paths.run("mb8_r1").attempt(1).folder)
        several.send_campaign()
        (told,) = several.account()
    assert told.startswith("mlflow: 0 of 1 runs sent; 1 not (interrupted): `seatrial report ")


def test_a_run_cut_short_is_counted_and_not_sent(tmp_path: Path) -> None:
    warned: list[str] = []
    with tracking_through(tmp_path, DIES, warn=warned.append) as several:
        listener = TrackingListener(PlainView(Console(file=io.StringIO())), several)
        listener.ended(make_spec(tmp_path), outcome(Outcome.INTERRUPTED), None)
        assert several._trackers["mlflow"].process._process is None and warned == []
        listener.ended(make_spec(tmp_path), outcome(Outcome.FAILED), None)
        (told,) = several.account()
    assert warned and told.startswith("mlflow: 0 of 2 runs sent; 2 not (")


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_stop_signal_is_heard_whoever_handles_it_and_stays_heard(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.signal(number, lambda *_: None)
    ordinary = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with stop_wishes(tmp_path) as wished:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not wished()
            os.kill(os.getpid(), number)
            assert wished() and wished()
        with stop_wishes(tmp_path) as wished:
            assert not wished()
    finally:
        signal.signal(number, before)
        signal.signal(signal.SIGUSR1, ordinary)


def test_a_request_from_another_terminal_is_heard(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    with stop_wishes(tmp_path) as wished:
        with owned(paths):
            assert not wished()
            ask_to_stop(paths)
            assert wished()
        assert wished()


def test_every_attempt_that_is_over_through_real_processes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    paths = write_campaign(tmp_path / "out")
    remake(paths.folder)
    unfinished = paths.run("mb16_r9").attempt(1).folder
    unfinished.mkdir(parents=True)
    with Tracking(["tensorboard"], paths, pytest.fail) as several:
        send_all(several, [attempt for run in paths.runs() for attempt in run.attempts()])
        assert several.account() == [f"tensorboard: {RUNS + 1} of {RUNS + 1} runs sent to {paths.tensorboard}"]
    files = sorted(str(path.parent.relative_to(paths.tensorboard)) for path in paths.tensorboard.rglob("events.*"))
    assert files == ["campaign", "mb16_r1/attempt-1", "mb16_r2/attempt-1", "mb8_r1/attempt-1", "mb8_r1/attempt-2", "mb8_r2/attempt-1"]
    assert all(TOKEN.encode() not in path.read_bytes() for path in paths.tensorboard.rglob("events.*"))


def test_report_sends_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    paths = write_campaign(tmp_path / "out")
    code = run_command(["report", str(paths.folder)])
    assert run_command(["report", str(paths.folder), "--track", "tensorboard"]) == code
    assert f"tensorboard: {RUNS + 1} of {RUNS + 1} runs sent to" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [["run", "plan.yaml"], ["sweep", "-P", "x=1", "--", "true", "{x}"], ["report", "out"]])
def test_an_unknown_tracker_is_refused_before_anything(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text("name: a\nworkload: dummy\nlauncher: python\nsteps: 3\noutput: out\n")
    assert run_command([verb[0], "--track", "mlfow", *verb[1:]]) == 1
    assert "did you mean 'mlflow'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]


def test_one_that_is_not_installed_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = registry.TrackerKind(package="seatrial_absent", module="", pip="mlflow")
    monkeypatch.setitem(TRACKERS, "mlflow", absent)
    with pytest.raises(UsageError, match="not installed; run `pip install mlflow`"):
        chosen_trackers(["mlflow"])
    # A folder of that name, as wandb leaves one where it runs, is no package.
    (tmp_path / "seatrial_absent").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="not installed"):
        chosen_trackers(["mlflow"])


def test_a_tracker_named_twice_is_one() -> None:
    pytest.importorskip("tensorboard")
    assert chosen_trackers(["tensorboard", "tensorboard"]) == ["tensorboard"]
