"""What the driver prints and logs."""

from __future__ import annotations

import dataclasses
import functools
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.core.durable_writes import AppendFile
from seatrial.core.paths import CampaignPaths
from seatrial.machine.gpus import Driver, Gpu
from seatrial.machine.software import GitState
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.measure import RunMeasure
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.results import MeasuredRun
from seatrial_runbooks.stage1 import driver_output
from seatrial_runbooks.stage1.driver_output import DriverView, head_lines, logged_to, notes
from seatrial_runbooks.stage1.variables import read
from tests.unit.runbooks.conftest import SMALL


def test_both_streams_go_there_and_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "not yet" / "there" / "driver.log"
    with logged_to(path):
        print("one")
        print("two", file=sys.stderr)
    with logged_to(path):
        print("\x1b[31mthree\x1b[0m — é")
    print("four")
    assert path.read_text() == "one\ntwo\nthree — é\n"
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("one\n\x1b[31mthree\x1b[0m — é\nfour\n", "two\n")


def test_a_file_that_can_never_be_is_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with logged_to(tmp_path / "file" / "driver.log"):
        print("said")
    shown = capsys.readouterr()
    assert shown.out == "said\n"
    assert shown.err.startswith(f"[WARN] continuing without the driver log {tmp_path}/file/driver.log: ")
    assert "a file is where a folder is needed" in shown.err


@pytest.mark.parametrize(
    ("kept_in", "ending"), [("kept", "; the rest was written to the fallback folder and merged back\n"), ("/dev/full/x", "\n")]
)
def test_a_full_disk_costs_lines_of_the_log_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kept_in: str, ending: str
) -> None:
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / kept_in))
    monkeypatch.setattr(driver_output, "AppendFile", functools.partial(AppendFile, sleep=lambda wait_s: None))
    with logged_to(Path("/dev/full")):
        print("said")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("said\n", f"[WARN] the driver log /dev/full is incomplete: No space left on device{ending}")


Said = Callable[..., list[str]]
GPUS = Driver(
    gpus=tuple(Gpu(index=index, name="RTX 4090", compute_capability="8.9", power_limit_w=450.0) for index in (0, 1)), version="550"
)


@pytest.fixture
def head(plans: Callable[..., list[CampaignPlan]], monkeypatch: pytest.MonkeyPatch) -> Said:
    monkeypatch.setattr(driver_output, "read_driver", lambda: GPUS)
    monkeypatch.setattr(driver_output, "read_git_state", lambda folder, output: GitState(commit="abc", branch="main", dirty="false"))
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", "/kept")
    return lambda **environ: head_lines(read({**SMALL, **environ}), plans(**environ))


def test_every_line(head: Said) -> None:
    lines = head(ATTN_IMPL="sdpa", TEXT_ATTN_IMPL="eager", DRIVER_LOG_PATH="out/driver.log")
    assert lines[0].startswith("[INFO] Output root: /")
    assert lines[1:] == [
        "[INFO] Mode=sweep, REPEATS=1, MAX_STEPS=3, INCLUDE=localhost, WORLD_SIZE=2",
        "[INFO] Dataset: root=tree, manifest=tree/manifest.tsv, use_trim=false, offline_trimmed=true",
        "[INFO] Timing: cuda_sync=false, rank_scope=rank0, eta=true, eta_mode=rank0, eta_min_samples=10, tail_points=20",
        "[INFO] Runtime snapshot: ranks on the CPU",
        "[INFO] Precision/attention (auto: decided by train.py where it runs): precision=auto, model_dtype=auto, speech_attn=sdpa, "
        "text_attn=eager",
        "[INFO] Math backend: tf32=true, matmul_precision=high",
        "[INFO] Code revision: commit=abc, branch=main, dirty=false",
        "[INFO] Compile: enabled=false, mode=max-autotune, dynamic=true",
        "[INFO] Fixed slice: enabled=false, seconds=none",
        "[INFO] Length bucketing: enabled=false, boundaries_sec=1.0,1.5,2.0,2.5,3.0",
        "[INFO] Telemetry: gpu=true, gpu_every_sec=2, host=false, host_every_sec=2, stall_alert_ratio=2",
        "[INFO] Manifest durability: writes that fail go to /kept and are merged back",
        "[INFO] Driver log: out/driver.log",
        "[INFO] Plan stage1-sweep_z0_mb4_nw2_pf2: groups=1, runs=1, order=nested",
    ]


def test_the_gpus_that_are_used(head: Said) -> None:
    machine = "[INFO] Runtime snapshot: GPUs 1 RTX 4090 (cc 8.9, 450 W); driver 550"
    assert machine in head(INCLUDE="localhost:1", WORLD_SIZE="")
    assert "[INFO] Runtime snapshot: none of the GPUs 4,5 found (no such GPU)" in head(INCLUDE="localhost:4,5", WORLD_SIZE="")


def test_the_hosts_that_are_used(head: Said, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n1 slots=2\nn2 slots=1\n")
    some = head(HOSTFILE=str(tmp_path / "hosts"), INCLUDE="n1:0,1@n2", WORLD_SIZE="")
    assert some[1] == f"[INFO] Mode=sweep, REPEATS=1, MAX_STEPS=3, INCLUDE=n1:0,1@n2, HOSTFILE={tmp_path}/hosts, WORLD_SIZE=3"
    assert "[INFO] Runtime snapshot: hosts n1 (2 ranks, GPUs 0,1), n2 (1 rank)" in some
    assert "INCLUDE=all" in head(HOSTFILE=str(tmp_path / "hosts"), INCLUDE="", WORLD_SIZE="")[1]
    assert "[INFO] Runtime snapshot: hosts unknown" in head(HOSTFILE="nowhere", INCLUDE="", WORLD_SIZE="2")


def test_both_plans_are_named(head: Said) -> None:
    assert [line.split(":")[0] for line in head(MODE="both")[-2:]] == ["[INFO] Plan stage1-ab", "[INFO] Plan stage1-sweep_z0_mb4_nw2_pf2"]


SAME_STEPS = "[INFO] MODE=ab: both groups have timing points every 20 steps"


@pytest.mark.parametrize(
    ("environ", "head"),
    [
        ({}, [SAME_STEPS]),
        ({"AB_OLD_LOG_EVERY": "20"}, []),
        ({"MODE": "sweep", "SWEEP_LOG_EVERY": "50", "SWEEP_NUM_WORKERS_LIST": "4,6"}, []),
        ({"MODE": "both", "SWEEP_LOG_EVERY": "50", "AB_MICRO_BATCH": "64"}, [SAME_STEPS]),
        (
            {"MODE": "sweep", "MANIFEST_WRITE_RETRIES": "5", "MANIFEST_WRITE_RETRY_SLEEP_SEC": "1"},
            ["[INFO] no effect here: MANIFEST_WRITE_RETRIES, MANIFEST_WRITE_RETRY_SLEEP_SEC; a failed write is retried"],
        ),
        (
            {"MODE": "sweep", "SWEEP_NUM_WORKERS": "4", "SWEEP_NUM_WORKERS_LIST": "6"},
            ["[WARN] SWEEP_NUM_WORKERS has no effect: SWEEP_NUM_WORKERS_LIST overrides it"],
        ),
        (
            {"MODE": "sweep", "MASTER_PORT": "29500", "MASTER_PORT_BASE": "1"},
            ["[WARN] MASTER_PORT_BASE has no effect: MASTER_PORT overrides it"],
        ),
        (
            {"SWEEP_MICRO_BATCHES": "160", "SWEEP_LOG_EVERY": "50"},
            ["[WARN] no effect here: SWEEP_LOG_EVERY and 1 more; MODE is ab, did you mean MODE=sweep or MODE=both?", SAME_STEPS],
        ),
        (
            {"MODE": "sweep", "AB_MICRO_BATCH": "160"},
            ["[WARN] no effect here: AB_MICRO_BATCH; MODE is sweep, did you mean MODE=ab or MODE=both?"],
        ),
        ({"MODE": "sweep", "ETA_MIN_SAMPLES": "1"}, ["[INFO] ETA_MIN_SAMPLES is 1: the first ETA needs 2 timed steps"]),
        (
            {"MODE": "sweep", "FIXED_SLICE_SECONDS": "2.0", "HOST_TELEMETRY_INTERVAL_SEC": "5", "TORCH_COMPILE_MODE": "default"},
            [
                "[INFO] no effect here: FIXED_SLICE_SECONDS (ENABLE_LENGTH_FIXED_SLICE is false), HOST_TELEMETRY_INTERVAL_SEC "
                "(ENABLE_HOST_TELEMETRY is false), TORCH_COMPILE_MODE (ENABLE_TORCH_COMPILE is false)"
            ],
        ),
        ({"MODE": "sweep", "FIXED_SLICE_SECONDS": "2.0", "ENABLE_LENGTH_FIXED_SLICE": "true"}, []),
        ({"MODE": "sweep", "MAX_STEPS": "20"}, ["[WARN] train.log has a line every 100 steps only, in a run of 21"]),
    ],
)
def test_notes(environ: dict[str, str], head: list[str]) -> None:
    lines = notes(read(environ))
    assert len(lines) == len(head)
    for line, begins in zip(lines, head, strict=True):
        assert line.startswith(begins)


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
def printed() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def view(folder: Path, printed: io.StringIO) -> DriverView:
    return DriverView(Console(file=printed, width=80), 30.0, folder / "out", tail_lines=2)


def lines(printed: io.StringIO) -> list[str]:
    return printed.getvalue().splitlines()


def outcome(spec: RunSpec, how: Outcome = Outcome.OK, **changes: Any) -> RunOutcome:
    made = RunOutcome(run=spec.run, attempt=1, hash=spec.hash, outcome=how, exit_code=0, duration_s=412.1234)
    return dataclasses.replace(made, **changes)


def measured(spec: RunSpec, ended: RunOutcome, last_step: int | None = 1200) -> MeasuredRun:
    attempt = Attempt(folder="out/x", number=1, spec=spec, outcome=ended, provenance=Provenance())
    return MeasuredRun(attempt=attempt, measure=RunMeasure(source="events", last_step=last_step, stage1=dict(DONE)))


def test_start_and_where_its_logs_are(view: DriverView, spec: RunSpec, printed: io.StringIO, folder: Path) -> None:
    view.started(spec, 1, 1, 8)
    run = folder / "out" / "sweep_z0_mb4_nw2_pf2_r1" / "attempt-1"
    assert lines(printed) == [
        "[INFO] START sweep_z0_mb4_nw2_pf2 r1: z=0, mb=4, nw=2, pf=2, port=29650+, precision=auto, model_dtype=auto, speech_attn=auto, "
        "text_attn=auto, tf32=true, compile=false · [1/8]",
        f"[INFO] Logs: launcher={run}/launcher.log, train={run}/train.log",
    ]


def test_start_of_a_group_of_ab_at_a_fixed_port_for_the_second_time(view: DriverView, plans: Plans, printed: io.StringIO) -> None:
    (plan,) = plans(MODE="ab", MASTER_PORT="29500")
    view.started(plan.runs[1], 2, 2, 2)
    assert lines(printed)[0].startswith("[INFO] START tuned r1: z=1, mb=128, nw=2, pf=2, port=29500, ")
    assert lines(printed)[0].endswith(" · [2/2] (attempt 2)")


def test_done(view: DriverView, spec: RunSpec, printed: io.StringIO) -> None:
    ended = outcome(spec)
    view.ended(spec, ended, measured(spec, ended))
    assert lines(printed) == [
        "[INFO] DONE sweep_z0_mb4_nw2_pf2 r1: duration_sec=412.123, last_step=1200, last_iter_ms_p50=301.2, last_eta=00:00:00, "
        "eta_mode=rank0, unstable_run_flag=false, iter_p90_over_p50=1.250000"
    ]
    assert view.failed == 0


def test_skip_says_what_was_otherwise(view: DriverView, spec: RunSpec, printed: io.StringIO) -> None:
    view.skipped(spec, "")
    view.skipped(spec, "commit a → b")
    assert lines(printed) == [
        "[INFO] SKIP sweep_z0_mb4_nw2_pf2 r1: already successful in manifest",
        "[INFO] SKIP sweep_z0_mb4_nw2_pf2 r1: already successful in manifest; it ran under other conditions (commit a → b); "
        "RESUME_RUNS=false runs it again",
    ]


def failed(spec: RunSpec) -> RunOutcome:
    return outcome(spec, Outcome.FAILED, exit_code=1, duration_s=38.2, cause=Cause.CUDA_OOM, detail="out of memory", action="smaller batch")


def test_a_failure_has_its_cause_and_the_ends_of_its_logs(view: DriverView, spec: RunSpec, printed: io.StringIO, folder: Path) -> None:
    attempt = CampaignPaths(folder / "out").run(spec.run).attempt(1)
    attempt.folder.mkdir(parents=True)
    attempt.launcher_log.write_text("first\nsecond\n\x1b[31mthird\x1b[0m\n")
    view.ended(spec, failed(spec), None)
    assert lines(printed) == [
        "[WARN] sweep_z0_mb4_nw2_pf2 repeat 1 failed (exit_code=1, duration_sec=38.2, last_step=none)",
        "[WARN] failed, cuda_oom: out of memory",
        "[WARN] what to do: smaller batch",
        "===== launcher tail (last 2 lines) =====",
        "second",
        "third",
    ]
    assert view.failed == 1


def test_a_run_that_was_broken_off_is_no_failure(view: DriverView, spec: RunSpec, printed: io.StringIO) -> None:
    view.stopping(spec)
    view.ended(spec, outcome(spec, Outcome.INTERRUPTED, exit_code=None, duration_s=2.0), None)
    assert lines(printed) == [
        "[WARN] sweep_z0_mb4_nw2_pf2 r1: stopping (up to 20.0 s). Ctrl-C again kills it",
        "[WARN] sweep_z0_mb4_nw2_pf2 repeat 1 interrupted (exit_code=none, duration_sec=2, last_step=none)",
    ]
    assert view.failed == 0
