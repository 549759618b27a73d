"""Phase B: the sentinels are the driver's own runs, and the check has the last word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli import carry_out as harness
from seatrial.records.campaign_plan import CampaignPlan
from seatrial_runbooks.stage1 import driver, phaseb
from seatrial_runbooks.stage1.phaseb_check import SENTINELS

# What the two single commands of the procedure say.
FIRST = {"SWEEP_ZERO_STAGES": "0", "SWEEP_MICRO_BATCHES": "128", "SWEEP_NUM_WORKERS_LIST": "6", "SWEEP_PREFETCH_LIST": "4"}
SECOND = {"SWEEP_ZERO_STAGES": "1", "SWEEP_MICRO_BATCHES": "160", "SWEEP_NUM_WORKERS_LIST": "6", "SWEEP_PREFETCH_LIST": "2"}
SINGLE = {"MODE": "sweep", "REPEATS": "3", "MAX_STEPS": "1000", "TIMING_RANK_SCOPE": "all"}


class Asked:
    """Stands in for the harness and the check."""

    def __init__(self) -> None:
        self.plans: list[CampaignPlan] = []
        self.checked: list[list[str]] = []
        self.code, self.verdict = 0, 0

    def carry_out(self, plan: CampaignPlan, **options: Any) -> int:
        self.plans.append(plan)
        return self.code

    def check(self, argv: list[str]) -> int:
        self.checked.append(argv)
        return self.verdict


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(harness, "carry_out", made.carry_out)
    monkeypatch.setattr(phaseb, "check", made.check)
    return made


@pytest.fixture
def exported(folder: Path, small: dict[str, str]) -> dict[str, str]:
    """What the procedure exports beforehand: nothing of the matrix, no number of steps or repeats."""
    return {name: value for name, value in small.items() if not name.startswith("SWEEP_") and name not in SINGLE}


@pytest.fixture
def run(exported: dict[str, str]) -> Callable[..., int]:
    return lambda *words, **environ: phaseb.main({**exported, **environ}, words)


def hashes(plans: list[CampaignPlan]) -> dict[str, str]:
    return {run.run: run.hash for plan in plans for run in plan.runs}


def test_the_sentinels_three_times_each(run: Callable[..., int], asked: Asked, folder: Path) -> None:
    assert run() == 0
    assert [spec.run for plan in asked.plans for spec in plan.runs] == [f"{group}_r{n}" for group in SENTINELS for n in (1, 2, 3)]
    assert {(spec.steps, spec.rank_scope) for plan in asked.plans for spec in plan.runs} == {(1001, "all")}
    assert asked.checked == [["--output-root", str(folder / "out"), "--groups", ",".join(SENTINELS)]]


def test_they_are_the_runs_of_the_two_single_commands(run: Callable[..., int], asked: Asked, exported: dict[str, str]) -> None:
    run()
    in_one = list(asked.plans)
    asked.plans.clear()
    for sentinel in (FIRST, SECOND):
        assert driver.main({**exported, **SINGLE, **sentinel}, []) == 0
    assert hashes(in_one) == hashes(asked.plans)
    assert [plan.name for plan in in_one] == [plan.name for plan in asked.plans]


def test_steps_and_repeats_can_be_changed_and_the_matrix_cannot(
    run: Callable[..., int], asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last two are what the table has by itself: the page that exports them for all commands has wished for nothing.
    given = {"SWEEP_MICRO_BATCHES": "4", "SWEEP_NUM_WORKERS": "1", "MODE": "ab", "TIMING_RANK_SCOPE": "rank0"}
    run(MAX_STEPS="5", REPEATS="1", SWEEP_LOG_EVERY="1", SWEEP_ZERO_STAGES="0", **given)
    assert [spec.group for plan in asked.plans for spec in plan.runs] == list(SENTINELS)
    assert (asked.plans[0].runs[0].steps, asked.plans[0].runs[0].rank_scope) == (6, "all")
    warned = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "has no effect: phase B runs" in line]
    assert sorted(warned) == ["SWEEP_MICRO_BATCHES", "SWEEP_NUM_WORKERS"]


@pytest.mark.parametrize(("code", "verdict", "ended", "num_checks"), [(0, 2, 2, 1), (2, 2, 2, 1), (3, 0, 0, 1), (130, 0, 130, 0)])
def test_the_check_has_the_last_word_unless_interrupted(
    run: Callable[..., int], asked: Asked, code: int, verdict: int, ended: int, num_checks: int
) -> None:
    asked.code, asked.verdict = code, verdict
    assert (run(), len(asked.checked)) == (ended, num_checks)


def test_wrong_use_is_told_and_nothing_is_checked(run: Callable[..., int], asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(REPEATS="x") == 1
    assert (asked.plans, asked.checked) == ([], [])
    assert "[ERROR] REPEATS is 'x'" in capsys.readouterr().err


def test_a_dry_run_shows_both(run: Callable[..., int], asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dry-run") == 0
    said = capsys.readouterr().out
    assert all(f"{group}_r3\n" in said for group in SENTINELS)
    assert (asked.plans, asked.checked) == ([], [])


def test_where_nobody_says_the_folder_is_the_procedures_own(run: Callable[..., int], asked: Asked, folder: Path) -> None:
    run(OUTPUT_ROOT="")
    assert asked.plans[0].output == str(folder / "outputs" / "bench_4090_phaseB_diag")


def test_help_has_the_procedures_own_defaults(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    said = capsys.readouterr().out
    assert "run_phaseb_4090_stability.sh" in said and "0 steady" in said
    assert "default 1000." in said and "default 5000. Becomes: steps" not in said


def test_too_few_repeats_and_nonsense_are_told_before_the_start(
    run: Callable[..., int], asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    run(REPEATS="1")
    assert "[WARN] REPEATS is 1, and the check asks for 3: it cannot pass" in capsys.readouterr().out
    asked.plans.clear()
    assert run(SWEEP_MICRO_BATCHES="abc") == 1
    assert asked.plans == [] and "[ERROR] SWEEP_MICRO_BATCHES is 'abc'" in capsys.readouterr().err
