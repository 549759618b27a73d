"""Step tables from a script's own output, for every known format."""

from __future__ import annotations

import csv
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.analyse.measure import measure_run
from seatrial.collect.logs.launcher_log import stamped_lines
from seatrial.collect.manifest import eta_point_rows, write_eta_points
from seatrial.collect.steps import (
    log_time_cautions,
    read_log_steps,
    read_steps,
)
from seatrial.core.log_lines import KEYWORDS, LOG_FORMATS, PAUSE_LINES, TimedPattern
from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.columns import ETA_POINTS, ETA_QUALITY
from seatrial.records.eta import EtaPoint, EtaQuality
from seatrial.records.results import MeasuredRun, runs_that_may_have_failed
from seatrial.records.run_table import run_cells
from tests.unit.analyse import factory
from tests.unit.collect import on_disk
from tests.unit.collect.on_disk import RECORDED, START_M, write_arrivals, write_attempt, write_log


def line(step: int, loss: float = 2.0) -> str:
    return f"iter {step}: loss {loss:.4f}, time 50.00ms, mfu 3.21%\n"


def read(tmp_path: Path, text: str, *, every_s: float = 0.5, **workload: object) -> StepTables:
    attempt = write_attempt(tmp_path, factory.spec(workload=workload, ranks=2))
    write_log(attempt, text, every_s=every_s)
    return tables_of(attempt)


def tables_of(attempt: Attempt) -> StepTables:
    found = read_log_steps(attempt)
    assert found is not None
    return found


def kinds(tables: StepTables) -> list[str]:
    return [caution.kind for caution in tables.cautions]


def test_step_times_are_those_of_arrival(tmp_path: Path) -> None:
    tables = read(tmp_path, "".join(line(step) for step in range(5)), every_s=0.2)
    assert tables.steps["iter_ms"].to_list() == [None, *[pytest.approx(200.0)] * 4]
    assert tables.steps["m"].to_list()[0] == pytest.approx(START_M + 0.2)
    assert tables.cautions == ()


def test_steps_between_lines_are_averaged(tmp_path: Path) -> None:
    tables = read(tmp_path, "".join(line(step) for step in range(0, 50, 10)), every_s=2.0)
    assert tables.steps["span"].to_list() == [1, 10, 10, 10, 10]
    assert tables.steps["iter_ms"].to_list()[1:] == pytest.approx([200.0] * 4)
    assert kinds(tables) == ["steps_between_lines"]
    assert tables.cautions[0].numbers == {"median_span": 10, "longest_span": 10}


def test_numbers_that_restart_with_an_epoch_are_counted_on(tmp_path: Path) -> None:
    tables = read(tmp_path, "".join(f"epoch {epoch} {line(step)}" for epoch in range(3) for step in (1, 2, 3)))
    assert tables.steps["step"].to_list() == list(range(1, 10))
    assert tables.steps["iter_ms"].to_list() == [None, *[pytest.approx(500.0)] * 2] * 3
    assert kinds(tables) == ["steps_restart"]
    assert tables.cautions[0].numbers == {"restarts": 2} and "2 times" in tables.cautions[0].text


def test_numbers_that_start_over_for_an_unknown_reason_are_counted_once(tmp_path: Path) -> None:
    tables = read(tmp_path, "".join(line(step) for last in (3, 5, 4) for step in range(last)))
    assert tables.steps["step"].to_list() == list(range(5))
    (caution,) = tables.cautions
    assert (caution.kind, caution.numbers) == ("steps_start_over", {"started_over": 2, "first": 0, "last": 4})
    # The series that counts is not the first: when the first step ended is not in the table.
    assert tables.steps["t"].to_list()[0] is None


def test_steps_reached_only_by_adding_up_make_a_run_doubtful(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(steps=30))
    write_log(attempt, "".join(line(step) for _ in range(2) for step in range(15)))
    run = MeasuredRun(attempt=attempt, measure=measure_run(attempt, tables_of(attempt)))
    (why,) = runs_that_may_have_failed([run]).values()
    assert why.endswith("exited 0 after step 14 of 30, with step numbers that start over")


def test_an_epoch_that_starts_within_a_chunk_is_timed_from_that_chunk_on(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    text = "".join(f"epoch {at // 4} {line(at % 4)}" for at in range(8))
    write_log(attempt, text)
    size = len(f"epoch 0 {line(0)}")
    write_arrivals(attempt, [size * end for end in (1, 2, 3, 6, 7, 8)])
    tables = tables_of(attempt)
    assert tables.steps["iter_ms"].to_list() == [None, 500.0, 500.0, None, None, None, 500.0, 500.0]


def test_late_lines_of_another_process_are_skipped_and_counted(tmp_path: Path) -> None:
    steps = [*range(20), 17, *range(20, 40)]
    tables = read(tmp_path, "".join(line(step) for step in steps))
    assert tables.steps["step"].to_list() == list(range(40))
    assert kinds(tables) == ["steps_out_of_order"]
    assert tables.cautions[0].numbers == {"passed_over": 1, "lines": 41}


def test_two_processes_without_prefixes_are_timed_by_the_first(tmp_path: Path) -> None:
    late = [step for start in range(0, 60, 3) for step in (start, start + 1, start, start + 1, start + 2, start + 2)]
    tables = read(tmp_path, "".join(line(step) for step in late), every_s=0.1)
    assert tables.steps["step"].to_list() == list(range(60))
    assert kinds(tables) == ["steps_out_of_order"]
    assert tables.cautions[0].numbers == {"passed_over": 60, "lines": 120}
    assert "only increasing numbers" in tables.cautions[0].text


def test_own_patterns_name_a_pause(tmp_path: Path) -> None:
    test = "testing now\n"
    text = "".join(f"{test if step == 6 else ''}tick {step}\n" for step in range(10))
    patterns = (r"tick (?P<step>\d+)", r"(?P<pause>testing) now")
    tables = read(tmp_path, text, patterns=patterns)
    assert tables.steps["step"].to_list() == list(range(10))
    assert tables.pauses.rows() == [(0, 6, "pause", None)]


def test_pauses_that_known_scripts_print_count_for_own_patterns_too(tmp_path: Path) -> None:
    evaluation = "step 6: train loss 2.0, val loss 2.1\nsaving checkpoint to out\n"
    text = "".join(f"{evaluation if step == 6 else ''}tick {step}\n" for step in range(10))
    tables = read(tmp_path, text, patterns=(r"tick (?P<step>\d+)",))
    assert tables.pauses.select("step", "name").rows() == [(6, "checkpoint"), (6, "eval")]


def bar(done: int, total: int) -> str:
    return f"\r {done * 100 // total:3d}%|##        | {done}/{total} [00:01<00:01,  9.90it/s]"


def test_lines_with_a_loss_win_over_a_longer_bar(tmp_path: Path) -> None:
    tokenising = "".join(bar(done, 300) for done in range(301))
    tables = read(tmp_path, tokenising + "\n" + "".join(line(step) for step in range(0, 50, 5)))
    assert tables.source == "log:nanogpt"
    assert tables.steps["step"].to_list() == list(range(0, 50, 5))


def test_lines_without_a_loss_win_over_a_bar_without_one(tmp_path: Path) -> None:
    text = "".join(bar(done, 300) for done in range(301)) + "\n"
    text += "".join(f"[INFO] [Rank 0] step={step}, skipped=0, lr=[0.1]\n" for step in range(10, 60, 10))
    tables = read(tmp_path, text)
    assert tables.source == "log:deepspeed"


def test_lines_of_deepspeeds_launcher_are_not_the_scripts(tmp_path: Path) -> None:
    launcher = (RECORDED.parent / "failures" / "deepspeed_rank_killed.log").read_text().splitlines(keepends=True)
    begin, end = launcher[:9], launcher[-4:]
    ranks = [f"[rank0]: {line}" for line in (RECORDED / "deepspeed.log").read_text().splitlines(keepends=True)]
    tables = read(tmp_path, "".join([*begin, *ranks, *end]))
    assert tables.source == "log:deepspeed"
    assert tables.steps["step"].to_list() == list(range(10, 101, 10))
    assert set(tables.steps["rank"].to_list()) == {0}


def test_a_trainer_without_its_bar_is_not_read_by_the_bar_of_something_else(tmp_path: Path) -> None:
    text = "".join(bar(done, 300) for done in range(301)) + "\n" + (RECORDED / "hf_trainer_quiet.log").read_text()
    tables = read(tmp_path, text)
    assert tables.steps["step"].to_list() == [4, 9, 14, 19]


def test_pauses_between_most_lines_are_counted(tmp_path: Path) -> None:
    evaluation = "step 9: train loss 2.0000, val loss 2.1000\n"
    tables = read(tmp_path, "".join(line(step) + evaluation for step in range(5)))
    assert len(tables.pauses) == 0
    assert kinds(tables) == ["pauses_counted"]


def test_a_step_printed_twice_counts_at_its_first_time(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1) + line(1) + line(2))
    assert tables.steps["step"].to_list() == [0, 1, 2]
    assert tables.steps["iter_ms"].to_list()[1:] == pytest.approx([500.0, 1000.0])


def test_lines_of_one_chunk_have_one_time(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    text = "".join(line(step) for step in range(8))
    write_log(attempt, text)
    size = len(line(0))
    write_arrivals(attempt, [size * 4, size * 8], every_s=2.0)
    tables = tables_of(attempt)
    assert tables.steps["iter_ms"].to_list() == [None] * 7 + [pytest.approx(500.0)]
    assert tables.steps["span"].to_list()[-1] == 4
    assert "buffered_output" in kinds(tables)


def test_without_arrivals_the_scripts_own_times_are_used(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_log(attempt, "".join(line(step) for step in range(5)))
    (Path(attempt.folder) / "launcher_arrivals.csv").unlink()
    tables = tables_of(attempt)
    assert tables.steps["iter_ms"].to_list() == [None, 50.0, 50.0, 50.0, 50.0]
    assert kinds(tables) == ["times_from_text"]


def test_the_plans_patterns_come_first(tmp_path: Path) -> None:
    text = "".join(f"{line(step)}batch {step // 2} done n=1,024\n" for step in range(8))
    tables = read(tmp_path, text, patterns=(r"batch (?P<step>\d+) done n=(?P<samples>[\d,]+)",))
    assert tables.source == "log:plan"
    assert tables.steps["step"].to_list() == [0, 1, 2, 3]
    assert tables.steps["samples"].to_list() == [1024.0] * 4


def test_patterns_that_find_nothing_leave_it_to_the_known_formats(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1), patterns=(r"never (?P<step>\d+)",))
    assert tables.source == "log:nanogpt"


def test_a_named_format_is_kept_to(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(workload={"reads": "deepspeed"}))
    write_log(attempt, line(0) + line(1))
    assert read_log_steps(attempt) is None


def test_samples_per_step_of_the_plan_fill_in(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1), samples_per_step=16.0, tokens_per_step=4096.0)
    assert (tables.steps["samples"].to_list(), tables.steps["tokens"].to_list()) == ([16.0] * 2, [4096.0] * 2)


def test_a_loss_that_is_no_number_is_kept(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1).replace("2.0000", "nan"))
    assert tables.steps["loss"].is_nan().to_list() == [False, True]


def test_binary_data_and_an_unfinished_line_are_skipped(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_log(
        attempt,
        line(0).encode() + b"\xff\xfe\x00 binary\n" + line(1).encode() + b"x" * 3_000_000 + b"\n" + line(2).encode() + b"iter 3: lo",
    )
    tables = tables_of(attempt)
    assert tables.steps["step"].to_list() == [0, 1, 2]


def test_bars_keep_the_rank_their_line_began_with(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    log.write_text("[rank1]: a\rb\rc\nd\n[rank2]: e\n")
    found = [(each.rank, each.text) for each in stamped_lines(log, [])]
    assert found == [(1, "a"), (1, "b"), (1, "c"), (None, "d"), (2, "e")]


def test_a_script_that_prints_no_step_is_timed_as_a_whole(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    write_log(attempt, (RECORDED / "silent.log").read_bytes())
    tables = read_steps(attempt)
    assert (tables.source, len(tables.steps), len(tables.pauses), tables.world_size) == ("whole", 0, 0, 2)
    assert [(caution.kind, caution.subject) for caution in tables.cautions] == [("whole_run_only", attempt.spec.run)]
    assert "workload.patterns" in tables.cautions[0].text and "probe" in tables.cautions[0].text


def test_reads_none_times_the_whole_though_steps_are_printed(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(workload={"reads": "none"}))
    write_log(attempt, line(0) + line(1))
    assert read_steps(attempt).source == "whole"


def test_a_huge_log_is_read_at_both_ends_without_a_time_across_the_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.collect.logs.launcher_log.LARGEST_LOG_BYTES", 2000)
    attempt = write_attempt(tmp_path)
    write_log(attempt, "".join(line(step) for step in range(400)))
    tables = tables_of(attempt)
    assert "large_log" in kinds(tables)
    found = tables.steps["step"].to_list()
    assert found[0] == 0 and found[-1] == 399 and len(found) < 100
    gap = next(at for at, (one, later) in enumerate(itertools.pairwise(found)) if later - one > 1)
    assert tables.steps["iter_ms"].to_list()[gap + 1] is None
    assert {time for time in tables.steps["iter_ms"].to_list() if time is not None} == {500.0}


def test_a_pattern_that_takes_too_long_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimedPattern.__init__, "__defaults__", (0.05,))
    text = "".join(line(step) for step in range(10)) + "a" * 5000 + "\n"
    tables = read(tmp_path, text, patterns=(r"^(?P<step>([a-z])+.)+[A-Z]([a-z])+$",))
    assert tables.source == "log:nanogpt"
    assert "slow_pattern" in kinds(tables)


def test_an_unreadable_log_is_a_caution(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    AttemptPaths(Path(attempt.folder)).launcher_log.mkdir()
    assert [caution.kind for caution in read_steps(attempt).cautions] == ["unreadable_file", "whole_run_only"]


def read_steadily(tmp_path: Path, name: str, *, ranks: int = 1, every_s: float = 0.5, **workload: object) -> StepTables:
    attempt = write_attempt(tmp_path, factory.spec(ranks=ranks, workload=workload))
    write_log(attempt, (RECORDED / f"{name}.log").read_bytes(), every_s=every_s)
    return tables_of(attempt)


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
def test_the_format_is_recognised_and_every_step_is_read(tmp_path: Path, name: str, fmt: str, steps: list[int]) -> None:
    tables = read_steadily(tmp_path, name)
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
    losses = read_steadily(tmp_path, name).steps["loss"].drop_nulls().to_list()
    assert (losses[0], losses[-1]) == pytest.approx((first, last))


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
    assert read_steadily(tmp_path, name).pauses.select("step", "name").rows() == pauses


def test_seed_timing_lines_are_points_and_ranks(tmp_path: Path) -> None:
    tables = read_steadily(tmp_path, "seed", ranks=2)
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
    return tables_of(attempt)


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
    tables = read_steadily(tmp_path, "lightning")
    untimed = tables.steps.filter(tables.steps["iter_ms"].is_null())
    assert untimed["step"].to_list() == [0, 12]
    assert [(caution.kind, caution.numbers) for caution in tables.cautions] == [("steps_restart", {"restarts": 1})]


def test_a_trainer_without_a_bar_that_was_cut_short_has_no_steps(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    whole = (RECORDED / "hf_trainer_quiet.log").read_text()
    write_log(attempt, whole[: whole.index("{'train_runtime'")])
    tables = tables_of(attempt)
    assert (tables.source, tables.steps.height) == ("whole", 0), "steps are not invented"
    (caution,) = tables.cautions
    assert caution.kind == "losses_without_steps" and caution.numbers["lines"] == whole.count("{'loss'")
    assert "add the probe's callback" in caution.text
    quiet = replace(attempt, spec=replace(attempt.spec, workload=replace(attempt.spec.workload, reads="none")))
    assert read_log_steps(quiet) is None
    (caution,) = read_steps(quiet).cautions
    assert caution.kind == "whole_run_only" and "as the plan asks" in caution.text


def test_every_line_of_a_format_has_a_keyword() -> None:
    of_steps = [line for fmt in LOG_FORMATS.values() for line in fmt.lines]
    of_pauses = [line for pauses in PAUSE_LINES.values() for line in pauses.values()]
    patterns = [re.compile(text) for text in (*of_steps, *of_pauses)]
    read = [line for log in RECORDED.glob("*.log") for line in re.split(rb"[\r\n]", log.read_bytes())]
    matched = [line for line in read if any(pattern.search(line.decode(errors="replace")) for pattern in patterns)]
    assert matched and [line for line in matched if not any(word in line for word in KEYWORDS)] == []


def test_the_seeds_own_estimates_are_read_and_held_against_the_truth(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path, factory.spec(ranks=2, steps=101))
    on_disk.write_log(attempt, (on_disk.RECORDED / "seed.log").read_bytes())
    tables = tables_of(attempt)
    assert [point.step for point in tables.eta_points] == list(range(10, 101, 10))
    first = tables.eta_points[0]
    assert (first.remain_steps, first.eta_s, first.mode, first.source) == (90, 21.1, "rank0", "log")
    assert (first.basis_iter_ms, first.samples, first.low_s) == (235.0, 11, None)
    found = measure_run(attempt, tables)
    assert [point.eta_s for point in found.eta_points] == [point.eta_s for point in tables.eta_points]
    assert (found.stage1["eta_points"], found.stage1["eta_first_sec"], found.stage1["eta_first_hms"]) == (10, 21.1, "00:00:22")
    assert found.eta_points[-1].actual_s == 0.0
    assert found.eta_quality is not None
    assert (found.eta_quality.points, found.eta_quality.covered) == (9, None)


def test_a_row_has_the_seeds_columns_first_and_the_error_last(tmp_path: Path) -> None:
    point = EtaPoint(
        index=2,
        step=150,
        remain_steps=50,
        eta_s=61.2,
        mode="global_max",
        source="events",
        low_s=55.0,
        high_s=70.0,
        basis_iter_ms=1200.5,
        samples=100,
        actual_s=60.0,
    )
    unknown = EtaPoint(index=3, step=199, remain_steps=1, eta_s=0.4, mode="rank0", source="log")
    run = factory.measured(measure={"eta_points": (point, unknown)})
    assert run.measure is not None
    path = tmp_path / "eta_points.csv"
    write_eta_points(path, eta_point_rows(run.attempt, run.measure))
    with open(path, newline="") as source:
        header, *rows = list(csv.reader(source))
    assert tuple(header) == ETA_POINTS
    assert header[:10] == ["mode", "group", "repeat", "index", "step", "remain_steps", "eta_sec", "eta_hms", "eta_mode", "train_log"]
    first, second = (dict(zip(header, row, strict=True)) for row in rows)
    assert (first["eta_sec"], first["eta_hms"], first["eta_mode"], first["error_sec"]) == ("61.2", "00:01:02", "global_max", "1.2")
    assert (first["eta_low_sec"], first["eta_high_sec"], first["basis_iter_ms"], first["samples"]) == ("55", "70", "1200.5", "100")
    assert (second["eta_hms"], second["actual_sec"], second["error_sec"]) == ("00:00:01", "", "")


def test_a_table_without_points_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "eta_points.csv"
    path.write_text("old\n")
    write_eta_points(path, [])
    assert not path.exists()


def test_the_errors_of_a_run_are_cells_of_its_row() -> None:
    quality = EtaQuality(points=20, median_error_s=1.5, p90_error_s=4.0, median_fraction=0.004, p90_fraction=0.011, covered=0.9)
    run = factory.measured(measure={"eta_quality": quality})
    cells = run_cells(run.attempt, run.measure)
    assert [cells[name] for name in ETA_QUALITY] == [1.5, 4.0, 0.004, 0.011]
    without = factory.measured()
    assert not set(ETA_QUALITY) & set(run_cells(without.attempt, without.measure))


Row = dict[str, float | int | None]


def row(iter_ms: float | None = 50.0, span: int = 1, m: float | None = 1.0) -> Row:
    return {"iter_ms": iter_ms, "span": span, "m": m}


def numbered(rows: list[Row], every: int = 1) -> list[Row]:
    return [{**row, "step": every * at} for at, row in enumerate(rows)]


def time_caution_kinds(rows: list[Row], **how: Any) -> list[str]:
    return [caution.kind for caution in log_time_cautions(numbered(rows), **how)]


def test_no_caution_where_every_step_has_its_time() -> None:
    assert time_caution_kinds([row(None), row(), row()]) == []
    assert time_caution_kinds([row(None)]) == [], "the first line has no time, and that is as it should be"


def test_output_that_came_together_is_buffered() -> None:
    assert time_caution_kinds([row(None), row(None), row(None), row()]) == ["buffered_output"]
    assert time_caution_kinds([row(None), row(None), row()]) == [], "half of them is not most"
    assert time_caution_kinds([row(None), row(None), row(None), row()], restarts=1) == [], "the first line of an epoch has no time either"


def test_lines_that_sometimes_come_together_say_nothing_about_the_script() -> None:
    """On a busy host two lines may be read at once: each step was printed, and at once."""
    rows = [row(None), *[row(), row(None), row(span=2), row()] * 5]
    assert time_caution_kinds(rows) == []
    (buffered,) = log_time_cautions(numbered([row(None), *[row(None), row(None), row(span=3)] * 5]))
    assert buffered.kind == "buffered_output" and "If the script buffers its output" in buffered.text


def test_cautions_about_steps_between_lines_and_pauses() -> None:
    (between,) = log_time_cautions(numbered([row(None), row(span=10), row(span=30)], every=10))
    assert between.kind == "steps_between_lines" and between.numbers == {"median_span": 30, "longest_span": 30}
    assert time_caution_kinds([row(None), row()], pauses_count=True) == ["pauses_counted"]
