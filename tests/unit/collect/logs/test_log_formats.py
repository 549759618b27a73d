"""Every ready format on recorded text: which steps, which losses, which pauses, which times."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.collect.logs.tables import read_logs
from seatrial.records.log_formats import PAUSE_LINES, READY, TELLING
from seatrial.records.steps import StepTables
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import RECORDED, write_attempt, write_log


def read(tmp_path: Path, name: str, *, ranks: int = 1, every_s: float = 0.5, **workload: object) -> StepTables:
    attempt = write_attempt(tmp_path, factory.spec(ranks=ranks, workload=workload))
    write_log(attempt, (RECORDED / f"{name}.log").read_bytes(), every_s=every_s)
    tables = read_logs(attempt)
    assert tables is not None
    return tables


@pytest.mark.parametrize(
    ("name", "fmt", "steps"),
    [
        ("seed", "seed", list(range(0, 101, 10))),
        ("hf_trainer", "hf_trainer", list(range(24))),
        ("hf_trainer_v4", "hf_trainer", list(range(20))),
        ("hf_trainer_quiet", "hf_trainer", [4, 9, 14, 19]),
        ("deepspeed", "deepspeed", list(range(10, 101, 10))),
        ("deepspeed_old", "deepspeed", [20, 40, 60, 80]),
        ("torchtitan", "torchtitan", [1, *range(10, 101, 10)]),
        ("lightning", "lightning", list(range(24))),
        ("nanogpt", "nanogpt", list(range(61))),
    ],
)
def test_the_format_is_found_by_itself_and_every_step_is_read(tmp_path: Path, name: str, fmt: str, steps: list[int]) -> None:
    tables = read(tmp_path, name)
    assert tables.source == f"log:{fmt}"
    assert tables.steps.filter(tables.steps["rank"] == 0)["step"].to_list() == steps


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("seed", 4.5, 3.5),
        ("hf_trainer_v4", 3.95, 3.2),
        ("hf_trainer_quiet", 4.158, 4.164),
        ("torchtitan", 8.16, 4.2),
        ("lightning", 3.07, 2.24),
        ("nanogpt", 4.28, 2.48),
    ],
)
def test_losses_are_those_of_training(tmp_path: Path, name: str, first: float, last: float) -> None:
    losses = read(tmp_path, name).steps["loss"].drop_nulls().to_list()
    assert (losses[0], losses[-1]) == pytest.approx((first, last))


def test_quoted_losses_of_the_newest_trainer_are_read(tmp_path: Path) -> None:
    losses = read(tmp_path, "hf_trainer").steps["loss"].drop_nulls().to_list()
    assert len(losses) == 4
    assert all(4 < loss < 5 for loss in losses)


@pytest.mark.parametrize(
    ("name", "pauses"),
    [
        ("seed", [(60, "eval")]),
        ("hf_trainer", [(12, "eval")]),
        ("hf_trainer_quiet", [(14, "eval")]),
        ("torchtitan", [(60, "checkpoint"), (60, "eval")]),
        ("lightning", [(12, "eval")]),
        ("nanogpt", [(30, "checkpoint"), (30, "eval")]),
        ("deepspeed", []),
    ],
)
def test_steps_that_waited_for_an_evaluation_or_checkpoint_are_named(tmp_path: Path, name: str, pauses: list[tuple[int, str]]) -> None:
    assert read(tmp_path, name).pauses.select("step", "name").rows() == pauses


def test_seed_timing_lines_are_points_and_ranks(tmp_path: Path) -> None:
    tables = read(tmp_path, "seed", ranks=2)
    assert [point.step for point in tables.timing_points] == list(range(0, 101, 10))
    first = tables.timing_points[0].values
    assert first["iter_ms_p50"] == pytest.approx(
        sum(first[f"{name}_ms_p50"] or 0 for name in ("data_wait", "preprocess", "fwd", "bwd", "step")), abs=0.05
    )
    other = tables.steps.filter(tables.steps["rank"] == 1)
    assert other["step"].to_list() == list(range(0, 101, 10))
    assert other["iter_ms"].null_count() == len(other)
    assert other["fwd_ms"].null_count() == 0


def read_recorded(tmp_path: Path, name: str) -> StepTables:
    """A log with the arrivals that were recorded beside it."""
    attempt = write_attempt(tmp_path)
    (Path(attempt.folder) / "launcher.log").write_bytes((RECORDED / f"{name}.log").read_bytes())
    (Path(attempt.folder) / "launcher_arrivals.csv").write_bytes((RECORDED / f"{name}_arrivals.csv").read_bytes())
    tables = read_logs(attempt)
    assert tables is not None
    return tables


def test_a_recorded_run_of_the_trainer_has_its_real_times(tmp_path: Path) -> None:
    tables = read_recorded(tmp_path, "hf_trainer")
    times = tables.steps["iter_ms"].to_list()
    assert times[0] is None
    assert all(time is not None and 100 < time < 4000 for time in times[1:])
    assert tables.steps.filter(tables.steps["step"] == 12)["iter_ms"].item() > 2000


def test_an_evaluation_after_the_training_is_no_training(tmp_path: Path) -> None:
    tables = read_recorded(tmp_path, "hf_trainer_evaluate")
    timed = tables.steps.drop_nulls("iter_ms")
    assert tables.steps["step"].to_list()[-1] == 59
    assert all(45 < time < 90 for time in timed["iter_ms"].to_list())
    assert len(tables.steps["loss"].drop_nulls()) == 6
    others = next(caution for caution in tables.cautions if caution.kind == "other_bars")
    assert others.numbers == {"read": "60", "left_out": "150"}
    assert "of 60" in others.text and "of 150" in others.text


def test_lightning_s_epochs_start_untimed_and_their_validation_costs_no_step(tmp_path: Path) -> None:
    tables = read(tmp_path, "lightning")
    untimed = tables.steps.filter(tables.steps["iter_ms"].is_null())
    assert untimed["step"].to_list() == [0, 12]
    assert [(caution.kind, caution.numbers) for caution in tables.cautions] == [("steps_restart", {"restarts": 1})]


def test_a_trainer_without_a_bar_that_was_cut_short_tells_no_steps(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    whole = (RECORDED / "hf_trainer_quiet.log").read_text()
    write_log(attempt, whole[: whole.index("{'train_runtime'")])
    tables = read_logs(attempt)
    assert tables is not None and (tables.source, tables.steps.height) == ("whole", 0), "a number that nobody told is not made up"
    (caution,) = tables.cautions
    assert caution.kind == "losses_without_steps" and caution.numbers["lines"] == whole.count("{'loss'")
    assert "add the probe's callback" in caution.text
    quiet = replace(attempt, spec=replace(attempt.spec, workload=replace(attempt.spec.workload, reads="none")))
    assert read_logs(quiet) is None


def test_every_format_names_a_step_and_pauses_belong_to_formats() -> None:
    assert all(any("(?P<step>" in line for line in fmt.lines) for fmt in READY.values())
    assert set(PAUSE_LINES) <= set(READY)
    assert [fmt.name for fmt in READY.values()] == list(READY)


def test_no_line_that_a_format_reads_is_passed_over_unread() -> None:
    of_steps = [line for fmt in READY.values() for line in fmt.lines]
    of_pauses = [line for pauses in PAUSE_LINES.values() for line in pauses.values()]
    patterns = [re.compile(text) for text in (*of_steps, *of_pauses)]
    read = [line for log in RECORDED.glob("*.log") for line in re.split(rb"[\r\n]", log.read_bytes())]
    told = [line for line in read if any(pattern.search(line.decode(errors="replace")) for pattern in patterns)]
    assert told and [line for line in told if not any(word in line for word in TELLING)] == []
