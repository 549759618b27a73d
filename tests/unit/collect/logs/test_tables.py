"""Reading a script's own lines: times, spans, ranks, odd logs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from seatrial.bounded_pattern import BoundedPattern
from seatrial.collect.logs.arrivals import read_arrivals
from seatrial.collect.logs.source import stamped_lines
from seatrial.collect.logs.tables import read_logs
from seatrial.collect.steps import read_steps
from seatrial.paths import AttemptPaths
from seatrial.records.steps import StepTables
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import RECORDED, START_M, write_arrivals, write_attempt, write_log


def line(step: int, loss: float = 2.0) -> str:
    return f"iter {step}: loss {loss:.4f}, time 50.00ms, mfu 3.21%\n"


def read(tmp_path: Path, text: str, *, every_s: float = 0.5, **workload: object) -> StepTables | None:
    attempt = write_attempt(tmp_path, factory.spec(workload=workload, ranks=2))
    write_log(attempt, text, every_s=every_s)
    return read_logs(attempt)


def kinds(tables: StepTables) -> list[str]:
    return [caution.kind for caution in tables.cautions]


def test_time_is_that_of_arrival_and_not_what_the_script_says(tmp_path: Path) -> None:
    tables = read(tmp_path, "".join(line(step) for step in range(5)), every_s=0.2)
    assert tables is not None
    assert tables.steps["iter_ms"].to_list() == [None, *[pytest.approx(200.0)] * 4]
    assert tables.steps["m"].to_list()[0] == pytest.approx(START_M + 0.2)
    assert tables.cautions == ()


def test_steps_between_lines_are_averaged_and_that_is_said(tmp_path: Path) -> None:
    tables = read(tmp_path, "".join(line(step) for step in range(0, 50, 10)), every_s=2.0)
    assert tables is not None
    assert tables.steps["span"].to_list() == [1, 10, 10, 10, 10]
    assert tables.steps["iter_ms"].to_list()[1:] == pytest.approx([200.0] * 4)
    assert kinds(tables) == ["steps_between_lines"]
    assert tables.cautions[0].numbers == {"median_span": 10, "longest_span": 10}


def test_numbers_that_start_again_are_counted_on(tmp_path: Path) -> None:
    tables = read(tmp_path, "".join(line(step) for _ in range(3) for step in (1, 2, 3)))
    assert tables is not None
    assert tables.steps["step"].to_list() == list(range(1, 10))
    assert tables.steps["iter_ms"].to_list() == [None, *[pytest.approx(500.0)] * 2] * 3
    assert kinds(tables) == ["steps_restart"]
    assert tables.cautions[0].numbers == {"restarts": 2} and "2 times" in tables.cautions[0].text


def test_an_epoch_that_starts_in_the_midst_of_a_chunk_is_timed_from_that_chunk_on(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    text = "".join(line(step) for step in (0, 1, 2, 3, 0, 1, 2, 3))
    write_log(attempt, text)
    size = len(line(0))
    write_arrivals(attempt, [size * end for end in (1, 2, 3, 6, 7, 8)])
    tables = read_logs(attempt)
    assert tables is not None
    assert tables.steps["iter_ms"].to_list() == [None, 500.0, 500.0, None, None, None, 500.0, 500.0]


def test_numbers_that_count_down_are_a_whole_run(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_log(attempt, "".join(line(step) for step in range(50, 0, -1)))
    tables = read_steps(attempt)
    assert tables.source == "whole"
    assert "growing" in tables.cautions[0].text


def test_late_lines_of_another_process_are_passed_over_and_counted(tmp_path: Path) -> None:
    steps = [*range(20), 17, *range(20, 40)]
    tables = read(tmp_path, "".join(line(step) for step in steps))
    assert tables is not None
    assert tables.steps["step"].to_list() == list(range(40))
    assert kinds(tables) == ["steps_out_of_order"]
    assert tables.cautions[0].text.startswith("1 line with an earlier step number was passed over; several processes")


def test_two_processes_that_print_without_a_mark_are_timed_by_the_first(tmp_path: Path) -> None:
    late = [step for start in range(0, 60, 3) for step in (start, start + 1, start, start + 1, start + 2, start + 2)]
    tables = read(tmp_path, "".join(line(step) for step in late), every_s=0.1)
    assert tables is not None
    assert tables.steps["step"].to_list() == list(range(60))
    assert kinds(tables) == ["steps_out_of_order"]
    assert tables.cautions[0].numbers == {"passed_over": 60, "lines": 120}
    assert "only growing numbers" in tables.cautions[0].text


def test_own_patterns_name_a_pause(tmp_path: Path) -> None:
    test = "testing now\n"
    text = "".join(f"{test if step == 6 else ''}tick {step}\n" for step in range(10))
    patterns = (r"tick (?P<step>\d+)", r"(?P<pause>testing) now")
    tables = read(tmp_path, text, patterns=patterns)
    assert tables is not None
    assert tables.steps["step"].to_list() == list(range(10))
    assert tables.pauses.rows() == [(0, 6, "pause", None)]


def test_pauses_that_known_scripts_print_count_for_own_patterns_too(tmp_path: Path) -> None:
    evaluation = "step 6: train loss 2.0, val loss 2.1\nsaving checkpoint to out\n"
    text = "".join(f"{evaluation if step == 6 else ''}tick {step}\n" for step in range(10))
    tables = read(tmp_path, text, patterns=(r"tick (?P<step>\d+)",))
    assert tables is not None
    assert tables.pauses.select("step", "name").rows() == [(6, "checkpoint"), (6, "eval")]


def bar(done: int, total: int) -> str:
    return f"\r {done * 100 // total:3d}%|##        | {done}/{total} [00:01<00:01,  9.90it/s]"


def test_lines_with_a_loss_win_over_a_longer_bar(tmp_path: Path) -> None:
    tokenising = "".join(bar(done, 300) for done in range(301))
    tables = read(tmp_path, tokenising + "\n" + "".join(line(step) for step in range(0, 50, 5)))
    assert tables is not None
    assert tables.source == "log:nanogpt"
    assert tables.steps["step"].to_list() == list(range(0, 50, 5))


def test_lines_without_a_loss_win_over_a_bar_without_one(tmp_path: Path) -> None:
    text = "".join(bar(done, 300) for done in range(301)) + "\n"
    text += "".join(f"[INFO] [Rank 0] step={step}, skipped=0, lr=[0.1]\n" for step in range(10, 60, 10))
    tables = read(tmp_path, text)
    assert tables is not None and tables.source == "log:deepspeed"


def test_lines_of_deepspeed_s_own_launcher_are_none_of_the_script_s(tmp_path: Path) -> None:
    launcher = (RECORDED.parent / "failures" / "deepspeed_rank_killed.log").read_text().splitlines(keepends=True)
    begin, end = launcher[:9], launcher[-4:]
    ranks = [f"[rank0]: {line}" for line in (RECORDED / "deepspeed.log").read_text().splitlines(keepends=True)]
    tables = read(tmp_path, "".join([*begin, *ranks, *end]))
    assert tables is not None and tables.source == "log:deepspeed"
    assert tables.steps["step"].to_list() == list(range(10, 101, 10))
    assert set(tables.steps["rank"].to_list()) == {0}


def test_a_trainer_without_its_bar_is_not_read_by_the_bar_of_something_else(tmp_path: Path) -> None:
    text = "".join(bar(done, 300) for done in range(301)) + "\n" + (RECORDED / "hf_trainer_quiet.log").read_text()
    tables = read(tmp_path, text)
    assert tables is not None
    assert tables.steps["step"].to_list() == [4, 9, 14, 19]


def test_a_bar_at_its_start_is_no_step(tmp_path: Path) -> None:
    tables = read(tmp_path, "".join(bar(done, 60) for done in range(61)), every_s=1.0)
    assert tables is not None
    assert tables.steps["step"].to_list() == list(range(60))
    assert tables.steps["m"].to_list()[0] == pytest.approx(START_M + 2.0)
    assert tables.cautions == ()


def test_pauses_between_most_lines_are_counted_and_that_is_said(tmp_path: Path) -> None:
    evaluation = "step 9: train loss 2.0000, val loss 2.1000\n"
    tables = read(tmp_path, "".join(line(step) + evaluation for step in range(5)))
    assert tables is not None
    assert len(tables.pauses) == 0
    assert kinds(tables) == ["pauses_counted"]


def test_a_step_told_twice_is_one_step_at_its_first_time(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1) + line(1) + line(2))
    assert tables is not None
    assert tables.steps["step"].to_list() == [0, 1, 2]
    assert tables.steps["iter_ms"].to_list()[1:] == pytest.approx([500.0, 1000.0])


def test_lines_that_came_together_are_one_time(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    text = "".join(line(step) for step in range(8))
    write_log(attempt, text)
    size = len(line(0))
    write_arrivals(attempt, [size * 4, size * 8], every_s=2.0)
    tables = read_logs(attempt)
    assert tables is not None
    assert tables.steps["iter_ms"].to_list() == [None] * 7 + [pytest.approx(500.0)]
    assert tables.steps["span"].to_list()[-1] == 4
    assert "buffered_output" in kinds(tables)


def test_without_arrivals_the_script_s_own_times_are_taken_and_that_is_said(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_log(attempt, "".join(line(step) for step in range(5)))
    (Path(attempt.folder) / "launcher_arrivals.csv").unlink()
    tables = read_logs(attempt)
    assert tables is not None
    assert tables.steps["iter_ms"].to_list() == [None, 50.0, 50.0, 50.0, 50.0]
    assert kinds(tables) == ["times_from_text"]


def test_the_lowest_rank_that_prints_steps_is_read(tmp_path: Path) -> None:
    text = "W1114 torchrun says something\n[rank1]: loading\n"
    text += "".join(f"[rank3]: {line(step, 3.0)}[rank2]: {line(step, 2.0)}" for step in range(4))
    tables = read(tmp_path, text)
    assert tables is not None
    assert tables.steps["loss"].to_list() == [2.0] * 4
    assert tables.world_size == 2


def test_the_plan_s_patterns_come_first(tmp_path: Path) -> None:
    text = "".join(f"{line(step)}batch {step // 2} done n=1,024\n" for step in range(8))
    tables = read(tmp_path, text, patterns=(r"batch (?P<step>\d+) done n=(?P<samples>[\d,]+)",))
    assert tables is not None
    assert tables.source == "log:plan"
    assert tables.steps["step"].to_list() == [0, 1, 2, 3]
    assert tables.steps["samples"].to_list() == [1024.0] * 4


def test_patterns_that_find_nothing_leave_it_to_the_known_formats(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1), patterns=(r"never (?P<step>\d+)",))
    assert tables is not None and tables.source == "log:nanogpt"


def test_a_wrong_pattern_is_said_and_does_not_stop_the_report(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1), patterns=(r"step (?P<stap>\d+)",))
    assert tables is not None
    assert kinds(tables) == ["bad_pattern"]


def test_a_named_format_is_kept_to(tmp_path: Path) -> None:
    assert read(tmp_path, line(0) + line(1), reads="deepspeed") is None


def test_samples_per_step_of_the_plan_fill_in(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1), samples_per_step=16.0, tokens_per_step=4096.0)
    assert tables is not None
    assert (tables.steps["samples"].to_list(), tables.steps["tokens"].to_list()) == ([16.0] * 2, [4096.0] * 2)


def test_a_loss_that_is_no_number_is_kept(tmp_path: Path) -> None:
    tables = read(tmp_path, line(0) + line(1).replace("2.0000", "nan"))
    assert tables is not None
    assert tables.steps["loss"].is_nan().to_list() == [False, True]


def test_rubbish_and_torn_ends_are_read_over(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_log(
        attempt,
        line(0).encode() + b"\xff\xfe\x00 binary\n" + line(1).encode() + b"x" * 3_000_000 + b"\n" + line(2).encode() + b"iter 3: lo",
    )
    tables = read_logs(attempt)
    assert tables is not None
    assert tables.steps["step"].to_list() == [0, 1, 2]


def test_bars_keep_the_rank_their_line_began_with(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    log.write_text("[rank1]: a\rb\rc\nd\n[rank2]: e\n")
    found = [(each.rank, each.text) for each in stamped_lines(log, [])]
    assert found == [(1, "a"), (1, "b"), (1, "c"), (None, "d"), (2, "e")]


def test_arrivals_with_a_torn_row_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    path = tmp_path / "launcher_arrivals.csv"
    path.write_text("offset_bytes,t,m\n10,1.0,2.0\n20,1.5,2.5\n30,1.")
    assert [arrival.end_bytes for arrival in read_arrivals(path).rows] == [10, 20]
    assert read_arrivals(tmp_path / "none.csv").rows == ()


def test_a_script_that_prints_no_step_is_timed_as_a_whole_and_told_what_to_do(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    write_log(attempt, (RECORDED / "silent.log").read_bytes())
    tables = read_steps(attempt)
    assert (tables.source, len(tables.steps), len(tables.pauses), tables.world_size) == ("whole", 0, 0, 2)
    assert kinds(tables) == ["whole_run_only"]
    assert "workload.patterns" in tables.cautions[0].text and "probe" in tables.cautions[0].text


def test_reads_none_times_the_whole_though_steps_are_printed(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(workload={"reads": "none"}))
    write_log(attempt, line(0) + line(1))
    assert read_steps(attempt).source == "whole"


def test_no_log_at_all_is_a_whole_run(tmp_path: Path) -> None:
    assert read_steps(write_attempt(tmp_path)).source == "whole"


def test_of_a_log_without_end_both_ends_are_read_and_no_time_is_taken_over_the_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.collect.logs.source.LARGEST_LOG_BYTES", 2000)
    attempt = write_attempt(tmp_path)
    write_log(attempt, "".join(line(step) for step in range(400)))
    tables = read_logs(attempt)
    assert tables is not None and "large_log" in kinds(tables)
    found = tables.steps["step"].to_list()
    assert found[0] == 0 and found[-1] == 399 and len(found) < 100
    gap = next(at for at, (one, later) in enumerate(itertools.pairwise(found)) if later - one > 1)
    assert tables.steps["iter_ms"].to_list()[gap + 1] is None
    assert {time for time in tables.steps["iter_ms"].to_list() if time is not None} == {500.0}


def test_a_pattern_that_takes_too_long_is_not_used_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedPattern.__init__, "__defaults__", (0.05,))
    text = "".join(line(step) for step in range(10)) + "1 " + "a" * 60 + "b\n"
    tables = read(tmp_path, text, patterns=(r"(?P<step>\d+) (a+)+$",))
    assert tables is not None and tables.source == "log:nanogpt"
    assert "slow_pattern" in kinds(tables)


def test_a_log_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    AttemptPaths(Path(attempt.folder)).launcher_log.mkdir()
    assert [caution.kind for caution in read_steps(attempt).cautions] == ["unreadable_file", "whole_run_only"]
