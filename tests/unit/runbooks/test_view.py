"""The driver's lines about runs: START, DONE, SKIP, failed, and the ends of the logs."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.paths import CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.command import Provenance
from seatrial.records.measure import RunMeasure
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec
from seatrial_runbooks.stage1.view import DriverView, driver_view

Plans = Callable[..., list[CampaignPlan]]
DONE = {
    "last_iter_p50_ms": 301.2,
    "last_eta_hms": "00:00:00",
    "last_eta_mode": "rank0",
    "unstable_run_flag": False,
    "iter_p90_over_p50": 1.25,
}


@pytest.fixture
def spec(plans: Plans) -> RunSpec:
    return plans()[0].runs[0]


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def view(folder: Path, said: io.StringIO) -> DriverView:
    return DriverView(Console(file=said, width=80), 30.0, folder / "out", tail_lines=2)


def lines(said: io.StringIO) -> list[str]:
    return said.getvalue().splitlines()


def outcome(spec: RunSpec, how: Outcome = Outcome.OK, **changes: Any) -> RunOutcome:
    made = RunOutcome(run=spec.run, attempt=1, hash=spec.hash, outcome=how, exit_code=0, duration_s=412.1234)
    return dataclasses.replace(made, **changes)


def measured(spec: RunSpec, ended: RunOutcome, last_step: int | None = 1200) -> MeasuredRun:
    attempt = Attempt(folder="out/x", number=1, spec=spec, outcome=ended, provenance=Provenance())
    return MeasuredRun(attempt=attempt, measure=RunMeasure(source="events", last_step=last_step, seed=dict(DONE)))


def test_start_and_where_its_logs_are(view: DriverView, spec: RunSpec, said: io.StringIO, folder: Path) -> None:
    view.started(spec, 1, 1, 8)
    run = folder / "out" / "sweep_z0_mb4_nw2_pf2_r1" / "attempt-1"
    assert lines(said) == [
        "[INFO] START sweep_z0_mb4_nw2_pf2 r1: z=0, mb=4, nw=2, pf=2, port=29650+, precision=auto, model_dtype=auto, speech_attn=auto, "
        "text_attn=auto, tf32=true, compile=false · [1/8]",
        f"[INFO] Logs: launcher={run}/launcher.log, train={run}/train.log",
    ]


def test_start_of_a_group_of_ab_at_a_fixed_port_for_the_second_time(view: DriverView, plans: Plans, said: io.StringIO) -> None:
    (plan,) = plans(MODE="ab", MASTER_PORT="29500")
    view.started(plan.runs[1], 2, 2, 2)
    assert lines(said)[0].startswith("[INFO] START tuned r1: z=1, mb=128, nw=2, pf=2, port=29500, ")
    assert lines(said)[0].endswith(" · [2/2] (attempt 2)")


def test_done(view: DriverView, spec: RunSpec, said: io.StringIO) -> None:
    ended = outcome(spec)
    view.ended(spec, ended, measured(spec, ended))
    assert lines(said) == [
        "[INFO] DONE sweep_z0_mb4_nw2_pf2 r1: duration_sec=412.123, last_step=1200, last_iter_ms_p50=301.2, last_eta=00:00:00, "
        "eta_mode=rank0, unstable_run_flag=false, iter_p90_over_p50=1.250000"
    ]
    assert view.failed == 0


def test_done_where_nothing_could_be_measured(view: DriverView, spec: RunSpec, said: io.StringIO) -> None:
    view.ended(spec, outcome(spec), None)
    assert lines(said)[0].startswith("[INFO] DONE sweep_z0_mb4_nw2_pf2 r1: duration_sec=412.123, last_step=none, last_iter_ms_p50=none")


def test_skip_says_what_was_otherwise(view: DriverView, spec: RunSpec, said: io.StringIO) -> None:
    view.skipped(spec, "")
    view.skipped(spec, "commit a → b")
    assert lines(said) == [
        "[INFO] SKIP sweep_z0_mb4_nw2_pf2 r1: already successful in manifest",
        "[INFO] SKIP sweep_z0_mb4_nw2_pf2 r1: already successful in manifest; it ran under other conditions (commit a → b), "
        "RESUME_RUNS=false runs it anew",
    ]


def failed(spec: RunSpec) -> RunOutcome:
    return outcome(spec, Outcome.FAILED, exit_code=1, duration_s=38.2, cause=Cause.CUDA_OOM, detail="out of memory", action="smaller batch")


def test_a_failure_has_its_cause_and_the_ends_of_its_logs(view: DriverView, spec: RunSpec, said: io.StringIO, folder: Path) -> None:
    attempt = CampaignPaths(folder / "out").run(spec.run).attempt(1)
    attempt.folder.mkdir(parents=True)
    attempt.launcher_log.write_text("first\nsecond\n\x1b[31mthird\x1b[0m\n")
    view.ended(spec, failed(spec), None)
    assert lines(said) == [
        "[WARN] sweep_z0_mb4_nw2_pf2 repeat 1 failed (exit_code=1, duration_sec=38.2, last_step=none)",
        "[WARN] failed, cuda_oom: out of memory",
        "[WARN] what to do: smaller batch",
        "===== launcher tail (last 2 lines) =====",
        "second",
        "third",
    ]
    assert view.failed == 1


def test_without_tails_where_they_are_not_wanted(folder: Path, spec: RunSpec, said: io.StringIO) -> None:
    DriverView(Console(file=said, width=80), 30.0, folder / "out", tail_lines=0).ended(spec, failed(spec), None)
    assert len(lines(said)) == 3 and "=====" not in said.getvalue()


def test_a_run_that_was_broken_off_is_no_failure(view: DriverView, spec: RunSpec, said: io.StringIO) -> None:
    view.stopping(spec)
    view.ended(spec, outcome(spec, Outcome.INTERRUPTED, exit_code=None, duration_s=2.0), None)
    assert lines(said) == [
        "[WARN] sweep_z0_mb4_nw2_pf2 r1: stopping, up to 20.0 s for it to end by itself; Ctrl-C again kills it at once",
        "[WARN] sweep_z0_mb4_nw2_pf2 repeat 1 interrupted (exit_code=none, duration_sec=2, last_step=none)",
    ]
    assert view.failed == 0


@pytest.mark.parametrize(("asked", "every_s"), [(None, 30.0), (0.0, 0.0), (5.0, 5.0)])
def test_the_view_is_kept_to_be_asked_afterwards(folder: Path, said: io.StringIO, asked: float | None, every_s: float) -> None:
    kept: list[DriverView] = []
    with driver_view(folder, 80, kept)(Console(file=said), asked) as shown:
        assert kept == [shown]
        assert shown._heartbeat_s == every_s
