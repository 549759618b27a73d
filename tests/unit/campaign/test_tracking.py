"""Trackers in processes of their own: what is sent, and what becomes of those that fail, hang, die or are not there."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

import psutil
import pytest

from seatrial.campaign import tracking
from seatrial.campaign.results import remake
from seatrial.campaign.tracker_process import serve
from seatrial.campaign.tracking import TrackerProcess, Tracking, send_all
from seatrial.cli.main import run_command
from seatrial.errors import UsageError
from seatrial.paths import CampaignPaths
from seatrial.report.trackers import registry
from seatrial.report.trackers.registry import TRACKERS, chosen_trackers
from seatrial.report.trackers.tracker import TrackedCampaign, TrackedRun
from tests.unit.campaign.made_campaign import RUNS, TOKEN, write_campaign

# Answers the first order and then sleeps, with a child that sleeps too.
HANGS = """
import subprocess, sys, time
sys.stdin.readline()
print('{"ok": true, "where": "here"}', flush=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""
DIES = "import sys; sys.stdin.readline(); sys.exit(7)"


def process(tmp_path: Path, code: str) -> TrackerProcess:
    return TrackerProcess("mlflow", CampaignPaths(tmp_path), argv=(sys.executable, "-c", code))


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
    assert psutil.wait_procs(everyone, timeout=30)[1] == [] and len(everyone) == 2


def test_one_that_dies_is_told_and_started_again(tmp_path: Path) -> None:
    dying = process(tmp_path, DIES)
    for _ in range(2):
        answer = dying.ask({"do": "open"}, 30)
        assert not answer.ok and answer.reason == "its process ended with exit code 7"
    dying.close()


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    answer = TrackerProcess("mlflow", CampaignPaths(tmp_path), argv=(str(tmp_path / "none"),)).ask({"do": "open"}, 5)
    assert not answer.ok and "No such file" in answer.reason


def test_two_failures_in_a_row_and_it_is_left_alone(tmp_path: Path) -> None:
    warned: list[str] = []
    with Tracking(["mlflow"], CampaignPaths(tmp_path), warned.append) as several:
        several._trackers["mlflow"].process = process(tmp_path, DIES)
        for number in range(5):
            several.send_run(tmp_path / f"run-{number}")
        several.send_campaign()
        (told,) = several.account()
    assert len(warned) == 2 and "left alone" in warned[1] and "left alone" not in warned[0]
    assert told.startswith("mlflow: 0 of 5 runs sent; 5 not (its process ended with exit code 7)")
    assert f"`seatrial report {tmp_path} --track mlflow`" in told


def test_whoever_interrupts_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "CLOSE_LIMIT_S", 600.0)
    with pytest.raises(KeyboardInterrupt), Tracking(["mlflow"], CampaignPaths(tmp_path), print) as several:
        several._trackers["mlflow"].process = process(tmp_path, HANGS)
        several.open()
        raise KeyboardInterrupt


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
