"""Runs sent to trackers in processes of their own: what is sent, and what a tracker cannot break."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math
import os
import shutil
import signal
import sys
from pathlib import Path

import polars as pl
import psutil
import pytest
from rich.console import Console

from seatrial.campaign import tracking
from seatrial.campaign import tracking as tracker_handle
from seatrial.campaign.lock import hold_lock, request_stop
from seatrial.campaign.tracking import Answer, Request, StopRequested, TrackerProcess, Tracking, TrackingListener, Warn, never
from seatrial.cli.live_view import PlainView
from seatrial.cli.main import run_command
from seatrial.cli.run import stop_requests
from seatrial.collect.attempts import read_campaign
from seatrial.collect.steps import read_steps
from seatrial.core.errors import STOP_SIGNALS, UsageError
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.telemetry import GPU_COLUMNS
from seatrial.report import trackers
from seatrial.report.trackers import TrackedCampaign, TrackedRun, chosen_trackers
from seatrial.results.recompute import gather_results, recompute
from seatrial.results.tracked import (
    MAX_STEP_POINTS,
    MAX_TELEMETRY_POINTS,
    attempt_key,
    campaign_request,
    requested_run,
    run_request,
    thin,
    tracked_campaign,
    tracked_run,
)
from seatrial.results.tracker_process import serve
from tests.processes import is_gone
from tests.unit.launch.factory import make_spec
from tests.unit.report import factory as report_factory
from tests.unit.results.campaigns import RUNS, STEPS, TOKEN, write_campaign, write_samples
from tests.waiting import wait_until

MEASURED = report_factory.measured("mb8_nw2", 1)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignPaths:
    return write_campaign(tmp_path_factory.mktemp("tracked") / "out")


@pytest.fixture(scope="module")
def run(campaign: CampaignPaths) -> TrackedRun:
    measured = next(run for run in gather_results(campaign).runs if run.attempt.spec.run == "mb8_r2")
    return tracked_run(measured, read_steps(measured.attempt))


def test_names_figures_and_tags(run: TrackedRun) -> None:
    assert (run.name, run.campaign, run.group, run.outcome, run.attempt) == ("mb8_r2", "factory", "mb8", "ok", 1)
    assert run.params["micro_batch"] == 8 and run.params["loader"] == "fork" and run.params["d_model"] == 64
    assert run.tags["hash"] == "hash-mb8-2" and run.tags["fingerprint"] == "f00d" and run.tags["gpu_name"] == "Example GPU"
    assert run.figures["samples_per_s"] > 0 and run.figures["wall_p50_ms"] > 0 and all(map(math.isfinite, run.figures.values()))


def test_nothing_secret_leaves(run: TrackedRun) -> None:
    text = repr(run)
    assert TOKEN not in text and "sesame-open" not in text
    assert run.params["api_key"] == "***" and run.params["args"] == "--lr 0.1 --hub-token ***"


def test_points_are_those_of_rank_0(run: TrackedRun) -> None:
    assert [point.step for point in run.steps] == list(range(STEPS))
    point = run.steps[30]
    assert point.values["wall_iter_ms"] == 40.0 and point.values["samples_per_s"] == pytest.approx(200.0)
    assert "bwd_ms" not in point.values and math.isnan(run.steps[5].values["loss"])


def test_telemetry_is_by_time_since_launch(run: TrackedRun) -> None:
    assert [point.step for point in run.telemetry] == [2, 2, 4, 4, 6]
    assert run.telemetry[-1].values == {"host/cpu_user_pct": 12.5, "host/rss_kib": 1024.0}
    assert {name for point in run.telemetry for name in point.values} >= {"gpu0/power_w", "gpu0/util_gpu_pct"}


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_no_gpu_is_thinned_away(campaign: CampaignPaths, tmp_path: Path, gpus: int) -> None:
    shutil.copytree(campaign.folder, tmp_path / "copy")
    measured = next(run for run in gather_results(CampaignPaths(tmp_path / "copy")).runs if run.attempt.spec.run == "mb8_r2")
    assert measured.attempt.outcome is not None
    started_t = measured.attempt.outcome.started_t
    rows = [
        {"epoch_sec": started_t + 2 * at, "gpu_index": gpu, "power_w": 100 * gpu + at % 7}
        for at in range(3 * MAX_TELEMETRY_POINTS)
        for gpu in range(gpus)
    ]
    write_samples(AttemptPaths(Path(measured.attempt.folder)).gpu_telemetry, GPU_COLUMNS, rows)
    points = tracked_run(measured, read_steps(measured.attempt)).telemetry
    for gpu in range(gpus):
        drawn = [point for point in points if f"gpu{gpu}/power_w" in point.values]
        assert MAX_TELEMETRY_POINTS / 2 < len(drawn) <= MAX_TELEMETRY_POINTS
        assert drawn[-1].t - drawn[0].t > 0.9 * (rows[-1]["epoch_sec"] - started_t)
        assert all(100 * gpu <= point.values[f"gpu{gpu}/power_w"] < 100 * gpu + 7 for point in drawn)


def test_thinning_keeps_the_extremes_the_order_and_the_ends() -> None:
    times = [10.0 + at % 3 for at in range(100_000)]
    times[31_417], times[77_777] = 5000.0, 0.5
    frame = pl.DataFrame({"step": range(100_000), "iter_ms": times})
    few = thin(frame, "iter_ms", MAX_STEP_POINTS)
    assert MAX_STEP_POINTS / 2 < len(few) <= MAX_STEP_POINTS
    assert few["iter_ms"].max() == 5000.0 and few["iter_ms"].min() == 0.5
    assert few["step"].is_sorted() and few["step"].n_unique() == len(few)
    assert few["step"][0] == 0 and few["step"][-1] == 99_999


def test_thinning_steps_without_a_time() -> None:
    frame = pl.DataFrame({"step": range(10_000), "iter_ms": [None] * 10_000}, schema={"step": pl.Int64, "iter_ms": pl.Float64})
    few = thin(frame, "iter_ms", 100)
    assert 40 < len(few) <= 100 and few["step"][-1] == 9_999


def test_a_key_is_of_one_attempt_wherever_its_folder_lies(campaign: CampaignPaths, tmp_path: Path) -> None:
    shutil.copytree(campaign.folder, tmp_path / "copy")
    here, there = read_campaign(campaign), read_campaign(CampaignPaths(tmp_path / "copy"))
    assert [attempt_key(attempt) for attempt in here] == [attempt_key(attempt) for attempt in there]
    assert len({attempt_key(attempt) for attempt in here}) == len(here)
    # The same settings another night are another run.
    ended = here[0].outcome
    assert ended is not None
    later = dataclasses.replace(here[0], outcome=dataclasses.replace(ended, started_t=ended.started_t + 86_400))
    assert attempt_key(later) != attempt_key(here[0])


def test_the_campaign_brings_its_report(tmp_path: Path) -> None:
    paths = write_campaign(tmp_path / "out", nan_step=None)
    sent = tracked_campaign(recompute(paths.folder))
    assert sent is not None and sent.name == "factory"
    assert sent.tags["recommended"] == "mb8" and "mb8" in sent.text
    assert sent.tags["verdict"] == json.loads(paths.verdict.read_text())["verdict"]


def test_a_campaign_without_a_finished_run_has_nothing_to_send(tmp_path: Path) -> None:
    unfinished = dataclasses.replace(gather_results(write_campaign(tmp_path / "out")), runs=())
    assert tracked_campaign(unfinished) is None and campaign_request(unfinished)["campaign"] is None


# Answers the first order and then sleeps, with a child that sleeps too.
HANGS = """
import subprocess, sys, time
sys.stdin.readline()
print('{"ok": true, "where": "here"}', flush=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""
OBEYS = """
import sys
for line in sys.stdin:
    print('{"ok": true, "where": "here"}', flush=True)
"""
DIES = "import sys; sys.stdin.readline(); sys.exit(7)"
# Its output is closed, as Python closes it at its end, and something still keeps it.
LINGERS = "import os, sys, time; open({pids!r}, 'w').write(str(os.getpid())); sys.stdin.readline(); os.close(1); time.sleep(600)"
SAYS = "import sys, time; sys.stdin.readline(); sys.stdout.write({text}); sys.stdout.flush(); time.sleep(600)"
# A library that ends the process by itself, and then holds it up at its exit.
EXITS = """
import atexit, os, sys, time
from pathlib import Path
from seatrial.results import tracker_process as one
def leave(name, folder):
    atexit.register(time.sleep, 600)
    sys.exit("no licence")
one.open_tracker = leave
one.serve("mlflow", Path("."), sys.stdin, one.private_stdout())
"""
# Leaves a child in its own session that has no variables, and one with a session of its own; writes who they are, and goes on.
LEAVES_CHILDREN = """
import pathlib, subprocess, sys
sys.stdin.readline()
argv = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(argv, stdout=subprocess.DEVNULL, **how) for how in (dict(env=dict()), dict(start_new_session=True))]
pathlib.Path({pids!r}).write_text(" ".join(str(child.pid) for child in children))
{then}
"""


def process(tmp_path: Path, code: str) -> TrackerProcess:
    return TrackerProcess("mlflow", CampaignPaths(tmp_path), argv=(sys.executable, "-c", code))


def tracking_through(tmp_path: Path, code: str | TrackerProcess, warn: Warn = print, stop_requested: StopRequested = never) -> Tracking:
    """One tracker whose process is given, or runs `code`."""
    one = process(tmp_path, code) if isinstance(code, str) else code
    return Tracking(["mlflow"], CampaignPaths(tmp_path), warn, stop_requested=stop_requested, process_of=lambda name, paths: one)


def outcome(how: Outcome) -> RunOutcome:
    return RunOutcome(run="mb8_r1", attempt=1, hash="h", outcome=how)


class Recorder:
    """A tracker that keeps what it is sent, and fails for one run."""

    destination = "memory"

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
    results = recompute(paths.folder)
    recorder = Recorder(failing="mb8_r2")
    monkeypatch.setattr("seatrial.results.tracker_process.open_tracker", lambda name, folder: recorder)
    runs = [run_request(next(run for run in results.runs if run.attempt.spec.run == name)) for name in ("mb8_r2", "mb16_r1")]
    orders = [{"do": "open"}, *runs, {"do": "run"}, campaign_request(results)]
    answers = io.StringIO()
    serve("mlflow", paths.folder, io.StringIO("".join(json.dumps(order) + "\n" for order in orders)), answers)
    found = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [answer["ok"] for answer in found] == [True, False, True, False, True]
    assert found[1]["reason"] == "ConnectionError: refused" and found[3]["reason"] == "KeyError: 'run'"
    assert [run.name for run in recorder.runs] == ["mb16_r1"] and recorder.campaigns[0].name == "factory"


def test_one_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    hanging = process(tmp_path, HANGS)
    assert hanging.ask({"do": "open"}, 30).ok
    family = psutil.Process(hanging.pid)
    wait_until(family.children, "its child is started")
    everyone = [family, *family.children(recursive=True)]
    answer = hanging.ask({"do": "run"}, 0.2)
    assert not answer.ok and answer.reason == "no answer in 0 s"
    assert psutil.wait_procs(everyone, timeout=60)[1] == [] and len(everyone) == 2


def test_a_dead_process_is_reported_and_started_again(tmp_path: Path) -> None:
    dying = process(tmp_path, DIES)
    for _ in range(2):
        answer = dying.ask({"do": "open"}, 30)
        assert not answer.ok and answer.reason == "its process ended with exit code 7"
    dying.close(10)


def test_a_process_that_closes_its_output_and_lingers_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_handle, "END_LIMIT_S", 0.2)
    pids = tmp_path / "pids"
    answer = process(tmp_path, LINGERS.format(pids=str(pids))).ask({"do": "open"}, 30)
    assert not answer.ok and "closed its output" in answer.reason
    assert is_gone(int(pids.read_text()))


@pytest.mark.parametrize("text", ["'rubbish\\n'", "'\\xff\\n'", "'[1]\\n'", "'{}\\n{}\\n'", "'[' * 100_000 + '\\n'", "'x' * 2_000_000"])
def test_rubbish_is_no_answer(tmp_path: Path, text: str) -> None:
    answer = process(tmp_path, SAYS.format(text=text)).ask({"do": "open"}, 30)
    assert not answer.ok and answer.reason == "its answer cannot be read"


def test_a_library_that_exits_is_an_answer_and_its_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "CLOSE_LIMIT_S", 0.2)
    warned: list[str] = []
    with tracking_through(tmp_path, EXITS, warn=warned.append) as several:
        several.open()
        several.send_run(MEASURED)
        several.send_campaign(report_factory.results())
    assert len(warned) == 2 and all("SystemExit: no licence" in line for line in warned)


def test_an_unexpected_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(TrackerProcess, "ask", lambda *_: 1 / 0)
    tracking_through(tmp_path, DIES, warn=warned.append).open()
    assert "ZeroDivisionError: division by zero; the campaign goes on" in warned[0]


@pytest.mark.parametrize("unasked", [False, True])
def test_the_children_of_one_that_died_do_not_outlive_it(tmp_path: Path, unasked: bool) -> None:
    pids = tmp_path / "pids"
    then = """print('{"ok": true}', flush=True)""" if unasked else "sys.exit(7)"
    leaving = process(tmp_path, LEAVES_CHILDREN.format(pids=str(pids), then=then))
    with tracking_through(tmp_path, leaving) as several:
        several.open()
        if unasked:
            # Reaped by the next call, and until then a zombie.
            wait_until(lambda: is_gone(leaving.pid or 0), "it ends by itself")
            several.open()
        left = [int(pid) for pid in pids.read_text().split()]
        wait_until(lambda: all(is_gone(pid) for pid in left), "both children are gone")
    assert len(left) == 2


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    answer = TrackerProcess("mlflow", CampaignPaths(tmp_path), argv=(str(tmp_path / "none"),)).ask({"do": "open"}, 5)
    assert not answer.ok and "No such file" in answer.reason


def test_two_failures_in_a_row_and_it_is_left_alone(tmp_path: Path) -> None:
    warned: list[str] = []
    with tracking_through(tmp_path, DIES, warn=warned.append) as several:
        for number in range(5):
            several.send_run(report_factory.measured("mb8_nw2", 1, number=number))
        several.send_campaign(report_factory.results())
        (account,) = several.account()
    assert len(warned) == 2 and "nothing more is sent to it" in warned[1] and "nothing more" not in warned[0]
    assert account.startswith("mlflow: 0 of 5 runs sent; 5 not (its process ended with exit code 7)")
    assert f"`seatrial report {tmp_path} --track mlflow`" in account


def test_an_interrupt_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "CLOSE_LIMIT_S", 600.0)
    with pytest.raises(KeyboardInterrupt), tracking_through(tmp_path, HANGS) as several:
        several.open()
        raise KeyboardInterrupt


def test_an_order_under_way_is_given_up_and_none_is_given_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "OPEN_LIMIT_S", 600.0)
    monkeypatch.setattr(tracking, "REQUEST_LIMIT_S", 600.0)
    monkeypatch.setattr(tracking, "CLOSE_LIMIT_S", 600.0)
    monkeypatch.setattr(tracking, "INTERRUPTED_CLOSE_LIMIT_S", 0.2)
    looks = itertools.count()
    asked: list[object] = []

    def stop_requested() -> bool:
        """Only while the second order is waited for."""
        return "run" in asked and next(looks) > 2

    class Heard(TrackerProcess):
        def ask(self, request: Request, limit_s: float, stop_requested: StopRequested = never) -> Answer:
            asked.append(request["do"])
            return super().ask(request, limit_s, stop_requested)

    hanging = Heard("mlflow", CampaignPaths(tmp_path), argv=(sys.executable, "-c", HANGS))
    with tracking_through(tmp_path, hanging, warn=pytest.fail, stop_requested=stop_requested) as several:
        listener = TrackingListener(PlainView(Console(file=io.StringIO())), several)
        listener.started(make_spec(tmp_path), 1, 1, 2)
        several.send_run(MEASURED)
        several.send_campaign(report_factory.results())
        (account,) = several.account()
    assert account.startswith("mlflow: 0 of 1 runs sent; 1 not (interrupted): `seatrial report ")


def test_a_run_cut_short_is_counted_and_not_sent(tmp_path: Path) -> None:
    warned: list[str] = []
    dying = process(tmp_path, DIES)
    with tracking_through(tmp_path, dying, warn=warned.append) as several:
        listener = TrackingListener(PlainView(Console(file=io.StringIO())), several)
        listener.ended(make_spec(tmp_path), outcome(Outcome.INTERRUPTED), None)
        assert dying.pid is None and warned == []
        listener.ended(make_spec(tmp_path), outcome(Outcome.FAILED), MEASURED)
        (account,) = several.account()
    assert warned and account.startswith("mlflow: 0 of 2 runs sent; 2 not (its process ended with exit code 7)")


def test_a_run_that_could_not_be_measured_is_counted_and_not_sent(tmp_path: Path) -> None:
    with tracking_through(tmp_path, DIES, warn=pytest.fail) as several:
        TrackingListener(PlainView(Console(file=io.StringIO())), several).ended(make_spec(tmp_path), outcome(Outcome.FAILED), None)
        (account,) = several.account()
    assert account.startswith("mlflow: 0 of 1 runs sent; 1 not (its files cannot be read)")


def test_one_that_does_not_read_a_large_request_holds_nothing_up(tmp_path: Path) -> None:
    deaf = process(tmp_path, HANGS)
    assert deaf.ask({"do": "open"}, 30).ok
    assert deaf.ask({"do": "run", "run": "x" * 2_000_000}, 0.2).reason == "no answer in 0 s"


def test_an_answer_to_a_request_that_was_not_read_is_none(tmp_path: Path) -> None:
    hasty = process(tmp_path, "import time; print('{\"ok\": true}', flush=True); time.sleep(600)")
    answer = hasty.ask({"do": "run", "run": "x" * 2_000_000}, 30)
    assert not answer.ok and hasty.pid is None, "the next request would follow a torn line"


def test_what_is_sent_arrives_as_it_was_measured(campaign: CampaignPaths, run: TrackedRun) -> None:
    measured = next(one for one in gather_results(campaign).runs if one.attempt.spec.run == run.name)
    arrived = requested_run(json.loads(json.dumps(run_request(measured))))
    # By its text: a loss that is not a number is unequal to itself.
    assert repr(arrived) == repr(run) and math.isnan(arrived.steps[5].values["loss"])


def test_a_run_is_read_once_for_all_trackers(campaign: CampaignPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (measured, *_), reads = gather_results(campaign).runs, []
    monkeypatch.setattr("seatrial.collect.steps.read_steps", lambda attempt: reads.append(attempt) or read_steps(attempt))
    with Tracking(["mlflow", "wandb"], CampaignPaths(tmp_path), pytest.fail, process_of=lambda *_: process(tmp_path, OBEYS)) as several:
        several.send_run(measured)
        assert [account.split(";")[0] for account in several.account()] == [f"{name}: 1 of 1 runs sent to here" for name in several.names]
    assert len(reads) == 1


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_stop_signal_is_heard_whoever_handles_it_and_stays_heard(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.signal(number, lambda *_: None)
    ordinary = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with stop_requests(tmp_path) as requested:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not requested()
            os.kill(os.getpid(), number)
            assert requested() and requested()
        with stop_requests(tmp_path) as requested:
            assert not requested()
    finally:
        signal.signal(number, before)
        signal.signal(signal.SIGUSR1, ordinary)


def test_a_request_from_another_terminal_is_heard(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    with stop_requests(tmp_path) as requested:
        with hold_lock(paths):
            assert not requested()
            request_stop(paths)
            assert requested()
        assert requested()


def test_every_attempt_that_is_over_through_real_processes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    paths = write_campaign(tmp_path / "out")
    recompute(paths.folder)
    unfinished = paths.run("mb16_r9").attempt(1).folder
    unfinished.mkdir(parents=True)
    with Tracking(["tensorboard"], paths, pytest.fail) as several:
        several.send_all(gather_results(paths))
        assert several.account() == [f"tensorboard: {RUNS + 1} of {RUNS + 1} runs sent to {paths.tensorboard}"]
    files = sorted(str(path.parent.relative_to(paths.tensorboard)) for path in paths.tensorboard.rglob("events.*"))
    assert files == ["campaign", "mb16_r1/attempt-1", "mb16_r2/attempt-1", "mb8_r1/attempt-1", "mb8_r1/attempt-2", "mb8_r2/attempt-1"]
    assert all(TOKEN.encode() not in path.read_bytes() for path in paths.tensorboard.rglob("events.*"))


def test_report_sends_and_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    monkeypatch.setattr(trackers, "TRACKERS", ("seatrial_absent",))
    with pytest.raises(UsageError, match="not installed; run `pip install seatrial_absent`"):
        chosen_trackers(["seatrial_absent"])
    # A folder of that name, as wandb leaves one where it runs, is no package.
    (tmp_path / "seatrial_absent").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="not installed"):
        chosen_trackers(["seatrial_absent"])
