"""Several commands into one OUTPUT_ROOT, run by the harness itself: all of it in the report, nothing run twice, nothing lost.

The trainer is stood in for by a few steps in plain Python: the plans are the driver's own in all that names and hashes are made of.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.cli.carry_out import carry_out
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve
from seatrial_runbooks.stage1.to_plan import plan_mappings
from seatrial_runbooks.stage1.variables import read
from seatrial_runbooks.stage1.view import DriverView, driver_view
from tests.unit.runbooks.conftest import NOW, SMALL

TRAINER = """
import os, sys
from seatrial.probe import Probe
words = dict(word.split("=", 1) for word in sys.argv[1:])
if words["deepspeed_config_yaml.train_micro_batch_size_per_gpu"] == os.environ.get("FAIL_AT"):
    sys.exit("ValueError: asked to fail")
probe = Probe()
for step in range(int(words["++train.max_step_iterations"])):
    with probe.step(samples=4):
        pass
    probe.loss(1.0)
probe.close()
"""


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """One command of the driver: its exit code, and what it said of runs."""
    (folder / "train.py").write_text(TRAINER)

    def run(again: bool = False, **environ: str) -> tuple[int, list[str]]:
        code, views = 0, list[DriverView]()
        for mapping in plan_mappings(read({**SMALL, "WORLD_SIZE": "1", **environ}), folder, NOW, folder / "train.py"):
            plan = resolve(plan_from_mapping({**mapping, "launcher": "python"}, "test"), source="test", cwd=folder)
            code = carry_out(plan, again=again, view=driver_view(Path(plan.output), 3, views))
        said = capsys.readouterr().out.splitlines()
        return code, [" ".join(line.split()[1:4]) for line in said if line.startswith(("[INFO] START", "[INFO] SKIP", "[INFO] DONE"))]

    return run


def groups_in_report(folder: Path) -> list[str]:
    with open(folder / "out" / "group_summary.csv", newline="") as file:
        return sorted(row["group"] for row in csv.DictReader(file))


def manifest(folder: Path) -> list[tuple[str, str, str]]:
    with open(folder / "out" / "run_manifest.tsv", newline="") as file:
        return sorted((row["run"], row["attempt"], row["status"]) for row in csv.DictReader(file, delimiter="\t"))


def said(word: str, *groups: str) -> list[str]:
    return [f"{word} sweep_{group}_nw2_pf2 r1:" for group in groups]


def test_a_second_sentinel_is_appended_and_a_longer_list_resumes(folder: Path, command: Callable[..., tuple[int, list[str]]]) -> None:
    first = command(SWEEP_MICRO_BATCHES="4")
    second = command(SWEEP_ZERO_STAGES="1", SWEEP_MICRO_BATCHES="6")
    assert (first, second) == (
        (0, [*said("START", "z0_mb4"), *said("DONE", "z0_mb4")]),
        (0, [*said("START", "z1_mb6"), *said("DONE", "z1_mb6")]),
    )
    assert groups_in_report(folder) == ["sweep_z0_mb4_nw2_pf2", "sweep_z1_mb6_nw2_pf2"]

    code, lines = command(SWEEP_ZERO_STAGES="0,1", SWEEP_MICRO_BATCHES="4,6")
    assert code == 0
    # What is finished is said first, then the rest is run.
    assert lines[:2] == said("SKIP", "z0_mb4", "z1_mb6")
    assert lines[2:] == [line for group in ("z0_mb6", "z1_mb4") for line in (*said("START", group), *said("DONE", group))]
    assert len(groups_in_report(folder)) == 4
    assert manifest(folder) == [(f"sweep_z{z}_mb{mb}_nw2_pf2_r1", "1", "success") for z in (0, 1) for mb in (4, 6)]


def test_other_steps_are_other_runs_and_the_old_ones_stay_on_disk(folder: Path, command: Callable[..., tuple[int, list[str]]]) -> None:
    command(SWEEP_MICRO_BATCHES="4")
    code, lines = command(SWEEP_MICRO_BATCHES="4", MAX_STEPS="5")
    assert (code, lines[0]) == (0, "START sweep_z0_mb4_nw2_pf2 r1:")
    # The same matrix: the newer plan takes the place of the older one, whose attempt no longer counts.
    assert groups_in_report(folder) == ["sweep_z0_mb4_nw2_pf2"]
    assert manifest(folder) == [("sweep_z0_mb4_nw2_pf2_r1", "1", "success"), ("sweep_z0_mb4_nw2_pf2_r1", "2", "success")]


def test_plans_that_overlap_are_both_told(folder: Path, command: Callable[..., tuple[int, list[str]]]) -> None:
    command(SWEEP_MICRO_BATCHES="4")
    command(SWEEP_MICRO_BATCHES="4,6", MAX_STEPS="5")
    names = groups_in_report(folder)
    assert len(names) == 3 and [name.partition("~")[0] for name in names] == ["sweep_z0_mb4_nw2_pf2"] * 2 + ["sweep_z0_mb6_nw2_pf2"]


def test_running_again_makes_new_attempts(folder: Path, command: Callable[..., tuple[int, list[str]]]) -> None:
    command()
    assert command()[1] == said("SKIP", "z0_mb4")
    assert command(again=True)[1][0] == "START sweep_z0_mb4_nw2_pf2 r1:"
    assert [attempt for _, attempt, _ in manifest(folder)] == ["1", "2"]


def test_a_failure_of_the_first_command_counts_in_the_second(
    folder: Path, command: Callable[..., tuple[int, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL_AT", "4")
    assert command(SWEEP_MICRO_BATCHES="4")[0] == 2
    assert command(SWEEP_MICRO_BATCHES="6")[0] == 2
    monkeypatch.delenv("FAIL_AT")
    assert command(SWEEP_MICRO_BATCHES="4")[0] == 0
    assert ("sweep_z0_mb4_nw2_pf2_r1", "2", "success") in manifest(folder)
