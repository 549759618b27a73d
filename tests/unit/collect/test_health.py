"""Whether a run was well, from what it left on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.analyse.measure import measure_run
from seatrial.campaign.ending import Ending, RankRecord, judge_ending
from seatrial.collect import health
from seatrial.collect.health import read_health
from seatrial.collect.steps import read_steps
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.run_spec import LauncherSpec
from tests.unit.analyse import factory
from tests.unit.collect.harmless_lines import BY_ID, HARMLESS_LINES
from tests.unit.collect.on_disk import event, write_attempt, write_events, write_log

RAISED = "[rank1]: Traceback (most recent call last):\n[rank1]:   File 'train.py', line 9\n[rank1]: ValueError: bad sample 17\n"


def counts(attempt: Attempt) -> dict[str, int]:
    return {one.id: one.lines for one in read_health(attempt, 2).harmless}


def write_ends(attempt: Attempt, *, done: int, ranks: int = 2) -> None:
    for rank in range(ranks):
        lines = [event(attempt, rank=rank, step=step, iter_ms=50.0) for step in range(20)]
        last = [event(attempt, "stop", rank=rank, steps=20)] if rank < done else []
        write_events(attempt, rank, "\n".join([*lines, *last]) + "\n")


def test_a_run_that_ends_well_with_harmless_lines_is_ok_and_lists_them(tmp_path: Path) -> None:
    assert judge_ending(Ending(returncode=0), RankRecord(started=2, done=2, stepped=True), 2, None).outcome is Outcome.OK
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    write_ends(attempt, done=2)
    write_log(attempt, "\n".join(["step 1", *HARMLESS_LINES, "step 2", HARMLESS_LINES[0]]) + "\n")

    found = measure_run(attempt, read_steps(attempt)).health

    assert found is not None
    assert (found.ranks, found.ranks_ended_well, found.tracebacks) == (2, 2, 0)
    assert {one.id: one.lines for one in found.harmless} == {**{id: len(lines) for id, lines in BY_ID.items()}, "triton_autotune": 4}
    assert all(one.meaning.endswith(".") for one in found.harmless)


@pytest.mark.parametrize("reads", ["auto", "none"])
def test_a_run_without_the_probe_is_looked_at_too(tmp_path: Path, reads: str) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2, workload={"reads": reads}))
    write_log(attempt, f"hello\n{HARMLESS_LINES[0]}\n")
    found = read_steps(attempt).health
    assert found is not None and (found.ranks_ended_well, len(found.harmless)) == (2, 1)


def test_of_a_failed_run_the_ranks_that_were_done_are_counted(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=3), outcome=Outcome.FAILED, cause=Cause.EXCEPTION)
    write_ends(attempt, done=2, ranks=3)
    write_log(attempt, RAISED + RAISED)
    found = read_health(attempt, 3)
    assert (found.ranks_ended_well, found.tracebacks, found.harmless) == (2, 2, ())


def test_a_stop_of_another_run_is_none_of_this_one(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=1), outcome=Outcome.FAILED)
    other = write_attempt(tmp_path, factory.spec(ranks=1, repeat=2), outcome=Outcome.FAILED)
    write_events(attempt, 0, event(attempt, step=1) + "\n" + event(other, "stop", steps=20) + "\n" + '{"kind":"stop",')
    assert read_health(attempt, 1).ranks_ended_well == 0


def test_of_a_failed_run_that_tells_nothing_nothing_is_said(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2), outcome=Outcome.FAILED)
    assert read_health(attempt, 2).ranks_ended_well is None


def test_deepspeed_says_itself_which_ranks_ended_well(tmp_path: Path) -> None:
    spec = factory.spec(ranks=2, launcher=LauncherSpec(kind="deepspeed"))
    attempt = write_attempt(tmp_path, spec, outcome=Outcome.FAILED)
    write_log(attempt, "[2026-11-15 12:44:17,121] [INFO] [launch.py:285:main] Process 4136 exits successfully.\n")
    assert read_health(attempt, 2).ranks_ended_well == 1


def test_of_a_large_log_head_and_end_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LARGEST_LOG_BYTES", 8000)
    monkeypatch.setattr(health, "BLOCK_BYTES", 1000)
    attempt = write_attempt(tmp_path)
    between = "step\n" * 1000
    write_log(attempt, f"{HARMLESS_LINES[0]}\n{between}{RAISED}{between}{between}{HARMLESS_LINES[0]}\n")
    assert counts(attempt) == {"triton_autotune": 2}
    assert read_health(attempt, 2).tracebacks == 0


@pytest.mark.parametrize("block_bytes", [1, 7, 60, 1000])
def test_no_line_is_lost_or_counted_twice_at_a_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    monkeypatch.setattr(health, "BLOCK_BYTES", block_bytes)
    attempt = write_attempt(tmp_path)
    write_log(attempt, "\n".join(["step", *HARMLESS_LINES] * 5))
    assert counts(attempt) == {id: 5 * len(lines) for id, lines in BY_ID.items()}


def test_a_log_that_is_not_there_or_no_file_says_nothing(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    assert counts(attempt) == {}
    AttemptPaths(Path(attempt.folder)).launcher_log.mkdir()
    assert counts(attempt) == {}
