"""The campaign loop: what is skipped, what ends an invocation, what is reported, and the plan in its folder. No process is started."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign import loop
from seatrial.campaign.early_end import CampaignEnd, repeated_failure
from seatrial.campaign.interrupts import Interrupts
from seatrial.campaign.loop import run_campaign, save_plan
from seatrial.campaign.preflight import PreflightResult
from seatrial.campaign.schedule import Schedule
from seatrial.core import files
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.observe.eta import CurrentRun
from seatrial.records.caution import Check
from seatrial.records.codec import from_json
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.results import LiveState, MeasuredRun
from tests.unit.analyse import factory
from tests.unit.results.campaigns import TOKEN, spec

PLAN = CampaignPlan(name="nightly", output="out", source="seatrial sweep -- train", repeats=2, runs=(spec("mb8", 1), spec("mb8", 2)))
RUN_S = 10.0


class Recorder:
    """A listener that writes everything down."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.states: list[LiveState] = []

    def warned(self, checks: Sequence[Check]) -> None:
        self.lines.append(f"warned of {len(checks)}")

    def skipped(self, spec: RunSpec, changes: str) -> None:
        self.lines.append(f"skipped {spec.run}")

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        self.lines.append(f"started {spec.run} {position}/{count} attempt {attempt}")

    def progress(self, state: LiveState) -> None:
        self.states.append(state)

    def stopping(self, spec: RunSpec) -> None:
        self.lines.append(f"stopping {spec.run}")

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        self.lines.append(f"ended {spec.run} {outcome.outcome.value}")

    @property
    def started_runs(self) -> list[str]:
        return [line.removeprefix("started ") for line in self.lines if line.startswith("started")]


class Runs:
    """Replaces `run_one`: each run takes RUN_S of the test's clock and has its outcome in `ends`, else `ok`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: dict[str, Outcome | OSError | RunOutcome] = {}
        self.now_m = 0.0
        monkeypatch.setattr(loop, "run_one", self.run_one)
        monkeypatch.setattr(loop, "run_preflight", lambda plan, paths, server: PreflightResult(warnings=()))

    def run_one(self, spec: RunSpec, attempt: AttemptPaths, interrupts: Interrupts, *_: Any, **__: Any) -> RunOutcome:
        self.now_m += RUN_S
        how = self.ends.get(spec.run, Outcome.OK)
        if isinstance(how, OSError):
            raise how
        outcome = how if isinstance(how, RunOutcome) else RunOutcome(run=spec.run, attempt=1, hash="", outcome=how)
        return replace(outcome, attempt=attempt.number, hash=spec.hash, duration_s=RUN_S)

    def run(self, plan: CampaignPlan, **how: Any) -> tuple[CampaignEnd, Recorder]:
        recorder = Recorder()
        return run_campaign(plan, recorder, monotonic=lambda: self.now_m, **how), recorder


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def plan(out: Path, count: int = 3, **keys: Any) -> CampaignPlan:
    specs = tuple(replace(factory.spec("mb8", repeat), cwd=str(out)) for repeat in range(1, count + 1))
    return CampaignPlan(name="p", output=str(out), repeats=count, runs=specs, **keys)


def test_runs_are_run_in_order_and_skipped_when_finished(tmp_path: Path, runs: Runs) -> None:
    end, recorder = runs.run(plan(tmp_path, 2))
    assert end == CampaignEnd()
    assert recorder.lines == [
        "warned of 0",
        "started mb8_r1 1/2 attempt 1",
        "ended mb8_r1 ok",
        "started mb8_r2 2/2 attempt 1",
        "ended mb8_r2 ok",
    ]
    again, recorder = runs.run(plan(tmp_path, 2))
    assert again == CampaignEnd() and recorder.lines == ["warned of 0", "skipped mb8_r1", "skipped mb8_r2"]
    assert runs.run(plan(tmp_path, 2), again=True)[1].started_runs == ["mb8_r1 1/2 attempt 2", "mb8_r2 2/2 attempt 2"]


def test_a_failed_run_is_data_and_is_run_again_the_next_time(tmp_path: Path, runs: Runs) -> None:
    runs.ends = {"mb8_r2": Outcome.FAILED}
    end, recorder = runs.run(plan(tmp_path))
    assert end == CampaignEnd() and recorder.states[-1].failed == 1 and recorder.states[-1].finished == 3
    runs.ends = {}
    assert runs.run(plan(tmp_path))[1].started_runs == ["mb8_r2 1/1 attempt 2"]


@pytest.mark.parametrize(
    ("keys", "ends", "end"),
    [
        ({"stop_on_error": True}, {"mb8_r1": Outcome.FAILED}, CampaignEnd(stopped_on_error=True, left=2)),
        ({"stop_on_error": True}, {"mb8_r3": Outcome.TIMEOUT}, CampaignEnd(stopped_on_error=True, left=0)),
        ({}, {"mb8_r2": Outcome.INTERRUPTED}, CampaignEnd(interrupted=True, left=2)),
        ({"budget_s": RUN_S * 2.5}, {}, CampaignEnd(out_of_budget=True, left=1)),
        ({"budget_s": RUN_S * 3}, {}, CampaignEnd()),
        ({"budget_s": -1.0}, {}, CampaignEnd(out_of_budget=True, left=3)),
        (
            {},
            {"mb8_r2": OSError(errno.ENOSPC, "No space left on device", "/x")},
            CampaignEnd(disk_trouble="/x: No space left on device", left=2),
        ),
    ],
)
def test_what_ends_an_invocation_early(
    tmp_path: Path, runs: Runs, keys: dict[str, Any], ends: dict[str, Outcome | OSError], end: CampaignEnd
) -> None:
    runs.ends = ends
    found, recorder = runs.run(plan(tmp_path, **keys))
    assert found == end
    assert recorder.states[-1].over and recorder.states[-1].run is None


def test_an_error_that_is_not_the_disks_is_raised_and_the_end_is_published_all_the_same(tmp_path: Path, runs: Runs) -> None:
    runs.ends = {"mb8_r1": OSError(errno.ENOENT, "gone", "/x")}
    with pytest.raises(FileNotFoundError):
        runs.run(plan(tmp_path))
    assert files.read_json(CampaignPaths(tmp_path).progress)["over"] is True
    assert not (tmp_path / "mb8_r1" / "attempt-1").exists(), "where nothing was written there was no attempt"


def test_only_selected_runs_are_run_and_the_folder_is_free_again(tmp_path: Path, runs: Runs) -> None:
    assert runs.run(plan(tmp_path, selected=("mb8_r2",)))[1].started_runs == ["mb8_r2 1/1 attempt 1"]
    paths = CampaignPaths(tmp_path)
    assert files.read_json(paths.plan)["name"] == "p" and not paths.owner.exists()


def test_the_time_left_is_that_of_the_runs_that_fit_the_budget() -> None:
    specs = [factory.spec(group, 1) for group in ("a", "b", "c")]
    durations_s = {spec.group_key: [10.0] for spec in specs}
    current = CurrentRun(group_key=specs[0].group_key, elapsed_s=4.0)
    left = Schedule(specs, durations_s).time_left(current)
    assert left is not None and left.eta_s == pytest.approx(26.0)
    left = Schedule(specs, durations_s, budget_s=17.0, monotonic=lambda: 0.0).time_left(current)
    assert left is not None and left.eta_s == pytest.approx(16.0)


def test_the_latest_plan_is_at_the_top_and_each_under_its_name_without_secrets(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    save_plan(PLAN, paths)
    save_plan(replace(PLAN, name="weekly", source=f"seatrial sweep -- train --hub-token {TOKEN}"), paths)
    assert sorted(path.name for path in paths.plans.iterdir()) == ["nightly.json", "weekly.json"]
    assert files.read_json(paths.plan)["name"] == "weekly"
    assert from_json(CampaignPlan, files.read_json(paths.plans / "nightly.json")).runs[0].run == "mb8_r1"
    text = paths.plan.read_text()
    assert TOKEN not in text and "sesame-open" not in text


def test_selection_output_and_source_do_not_change_a_plans_hash(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    first = save_plan(PLAN, paths)
    assert save_plan(replace(PLAN, selected=("mb8_r1",), output="elsewhere", source="p.yaml"), paths) == first
    assert save_plan(replace(PLAN, repeats=3), paths) != first


def failed(cause: Cause, detail: str) -> RunOutcome:
    return RunOutcome(run="r", attempt=1, hash="h", outcome=Outcome.FAILED, cause=cause, signature=cause.value, detail=detail)


NO_TORCH = failed(Cause.IMPORT_ERROR, "ModuleNotFoundError: No module named 'torch'")


def test_three_alike_failures_that_no_setting_explains_end_a_campaign(tmp_path: Path, runs: Runs) -> None:
    runs.ends = {f"mb8_r{repeat}": replace(NO_TORCH, run=f"mb8_r{repeat}") for repeat in range(1, 7)}
    end, recorder = runs.run(plan(tmp_path, 6))
    assert end == CampaignEnd(repeated_failure="import_error: ModuleNotFoundError: No module named 'torch'", left=3)
    assert len(recorder.started_runs) == 3
    assert runs.run(plan(tmp_path / "other", 6), keep_going=True)[0] == CampaignEnd()


def test_a_success_before_or_other_failures_do_not_end_it(tmp_path: Path, runs: Runs) -> None:
    runs.ends = {f"mb8_r{repeat}": replace(NO_TORCH, run=f"mb8_r{repeat}") for repeat in range(2, 7)}
    assert runs.run(plan(tmp_path, 6))[0] == CampaignEnd()


@pytest.mark.parametrize(
    ("last", "alike"),
    [
        ([NO_TORCH] * 3, True),
        ([NO_TORCH] * 2, False),
        ([replace(NO_TORCH, detail=f"rank {rank}: {NO_TORCH.detail}") for rank in range(3)], True),
        ([failed(Cause.PORT_IN_USE, f"port {port} is in use") for port in range(3)], True),
        # Each run asked for another file: its setting explains it.
        ([failed(Cause.FILE_MISSING, f"FileNotFoundError: 'shard-{number}'") for number in range(3)], False),
        ([failed(Cause.CUDA_OOM, "out of memory")] * 3, False),
        ([failed(Cause.COLLECTIVE_TIMEOUT, "timeout")] * 3, False),
        ([replace(NO_TORCH, outcome=Outcome.TIMEOUT)] * 3, False),
        ([NO_TORCH, failed(Cause.PROGRAM_MISSING, "x"), NO_TORCH], False),
    ],
)
def test_alike_failures(last: list[RunOutcome], alike: bool) -> None:
    runs = [(factory.spec("mb8", repeat), outcome) for repeat, outcome in enumerate(last, 1)]
    assert bool(repeated_failure(runs, [factory.spec("mb8", 9)])) is alike


@pytest.mark.parametrize(
    ("failed", "left", "alike"),
    [
        # All that failed have one attention, and a run to come has another: that may be why.
        ([{"attn": "flash", "bs": size} for size in (1, 2, 4)], [{"attn": "sdpa", "bs": 1}], False),
        ([{"attn": "flash", "bs": size} for size in (1, 2, 4)], [{"attn": "flash", "bs": 8}], True),
        ([{"attn": name, "bs": 1} for name in ("flash", "sdpa", "eager")], [{"attn": "flex", "bs": 1}], True),
    ],
)
def test_alike_failures_that_a_setting_explains(failed: list[dict[str, Any]], left: list[dict[str, Any]], alike: bool) -> None:
    runs = [(replace(factory.spec(), axes=axes), NO_TORCH) for axes in failed]
    assert bool(repeated_failure(runs, [replace(factory.spec(), axes=axes) for axes in left])) is alike
