"""All runs of a plan in their order: what is skipped, what ends an invocation, and what is told meanwhile. No process is started."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial import files
from seatrial.campaign import all_runs
from seatrial.campaign.all_runs import CampaignEnd, run_all
from seatrial.campaign.interrupts import Interrupts
from seatrial.campaign.listener import Listener
from seatrial.campaign.preflight import Looked
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.check import Check
from seatrial.records.codec import to_json
from seatrial.records.live import LiveState
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec
from tests.unit.analyse import factory

RUN_S = 10.0


class Heard:
    """A listener that writes everything down."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.states: list[LiveState] = []

    def warned(self, checks: Sequence[Check]) -> None:
        self.told.append(f"warned of {len(checks)}")

    def skipped(self, spec: RunSpec, unlike: str) -> None:
        self.told.append(f"skipped {spec.run}")

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        self.told.append(f"started {spec.run} {position}/{count} attempt {attempt}")

    def progress(self, state: LiveState) -> None:
        self.states.append(state)

    def stopping(self, spec: RunSpec) -> None:
        self.told.append(f"stopping {spec.run}")

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        self.told.append(f"ended {spec.run} {outcome.outcome.value}")


class Runs:
    """Stands in for `run_one`: each run takes RUN_S of the test's clock and ends as `ends` says, `ok` else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: dict[str, Outcome | OSError] = {}
        self.now_m = 0.0
        monkeypatch.setattr(all_runs, "run_one", self.run_one)
        monkeypatch.setattr(all_runs, "refuse_what_can_only_fail", lambda plan, paths, gate: Looked(amiss=()))
        monkeypatch.setattr(all_runs, "record_run", lambda paths, attempt: None)
        made = all_runs._Campaign
        monkeypatch.setattr(all_runs, "_Campaign", lambda *args: made(*args, monotonic=lambda: self.now_m))

    def run_one(self, spec: RunSpec, attempt: AttemptPaths, interrupts: Interrupts, *_: Any, **__: Any) -> RunOutcome:
        self.now_m += RUN_S
        how = self.ends.get(spec.run, Outcome.OK)
        if isinstance(how, OSError):
            raise how
        outcome = RunOutcome(run=spec.run, attempt=attempt.number, hash=spec.hash, outcome=how, duration_s=RUN_S)
        files.write_json(attempt.outcome, to_json(outcome))
        return outcome


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def plan(out: Path, count: int = 3, **keys: Any) -> CampaignPlan:
    specs = tuple(replace(factory.spec("mb8", repeat), cwd=str(out)) for repeat in range(1, count + 1))
    return CampaignPlan(name="p", output=str(out), repeats=count, runs=specs, **keys)


def carried_out(asked: CampaignPlan, **how: Any) -> tuple[CampaignEnd, Heard]:
    heard = Heard()
    listener: Listener = heard
    return run_all(asked, listener, **how), heard


def test_every_run_in_the_plans_order_and_nothing_twice(tmp_path: Path, runs: Runs) -> None:
    end, heard = carried_out(plan(tmp_path, 2))
    assert end == CampaignEnd()
    assert heard.told == [
        "warned of 0",
        "started mb8_r1 1/2 attempt 1",
        "ended mb8_r1 ok",
        "started mb8_r2 2/2 attempt 1",
        "ended mb8_r2 ok",
    ]
    again, heard = carried_out(plan(tmp_path, 2))
    assert again == CampaignEnd() and heard.told == ["warned of 0", "skipped mb8_r1", "skipped mb8_r2"]


def test_finished_runs_are_run_again_where_that_is_asked(tmp_path: Path, runs: Runs) -> None:
    carried_out(plan(tmp_path, 1))
    _, heard = carried_out(plan(tmp_path, 1), again=True)
    assert heard.told[1:] == ["started mb8_r1 1/1 attempt 2", "ended mb8_r1 ok"]


def test_a_failed_run_is_data_and_is_run_again_the_next_time(tmp_path: Path, runs: Runs) -> None:
    runs.ends = {"mb8_r2": Outcome.FAILED}
    end, heard = carried_out(plan(tmp_path))
    assert end == CampaignEnd() and heard.states[-1].failed == 1 and heard.states[-1].finished == 3
    runs.ends = {}
    _, heard = carried_out(plan(tmp_path))
    assert [line for line in heard.told if line.startswith("started")] == ["started mb8_r2 1/1 attempt 2"]


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
    found, heard = carried_out(plan(tmp_path, **keys))
    assert found == end
    assert heard.states[-1].over and heard.states[-1].run is None


def test_an_error_that_is_no_disks_is_raised_and_the_end_is_told_all_the_same(tmp_path: Path, runs: Runs) -> None:
    runs.ends = {"mb8_r1": OSError(errno.ENOENT, "gone", "/x")}
    with pytest.raises(FileNotFoundError):
        carried_out(plan(tmp_path))
    assert files.read_json(CampaignPaths(tmp_path).progress)["over"] is True
    assert not (tmp_path / "mb8_r1" / "attempt-1").exists(), "where nothing was written there was no attempt"


def test_only_the_runs_that_were_chosen(tmp_path: Path, runs: Runs) -> None:
    _, heard = carried_out(plan(tmp_path, selected=("mb8_r2",)))
    assert [line for line in heard.told if line.startswith("started")] == ["started mb8_r2 1/1 attempt 1"]


def test_the_plan_is_kept_and_the_folder_is_free_again(tmp_path: Path, runs: Runs) -> None:
    carried_out(plan(tmp_path, 1))
    paths = CampaignPaths(tmp_path)
    assert files.read_json(paths.plan)["name"] == "p" and not paths.owner.exists()
