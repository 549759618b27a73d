"""What ranks tell beside their steps: where they run, figures of their own, and that they were halted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.events.places import HEAD_BYTES
from seatrial.collect.steps import read_steps
from seatrial.records.attempt import Attempt
from seatrial.records.health import RankPlace, ReportedFigure
from seatrial.records.outcome import Outcome
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events, write_log


def write_rank(attempt: Attempt, rank: int, *before: str, after: tuple[str, ...] = (), steps: int = 3) -> None:
    lines = [event(attempt, rank=rank, step=step, iter_ms=50.0, m=2.0 + step) for step in range(steps)]
    write_events(attempt, rank, "".join(f"{line}\n" for line in (*before, *lines, *after)))


def start(attempt: Attempt, rank: int, **fields: Any) -> str:
    return event(attempt, "start", rank=rank, world_size=2, **fields)


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return write_attempt(tmp_path, factory.spec(ranks=2))


def test_places_are_read_from_the_start_events(attempt: Attempt) -> None:
    write_rank(attempt, 0, start(attempt, 0, host="jw1", local_rank=0, gpu="2"))
    write_rank(attempt, 1, start(attempt, 1, host="jw2", local_rank=0, gpu="GPU-3f"))
    assert read_steps(attempt).places == (
        RankPlace(rank=0, host="jw1", gpu="2"),
        RankPlace(rank=1, host="jw2", gpu="GPU-3f"),
    )


def test_files_of_an_older_probe_tell_the_host_alone(attempt: Attempt) -> None:
    write_rank(attempt, 0, start(attempt, 0, host="jw1"))
    write_rank(attempt, 1)
    assert read_steps(attempt).places == (RankPlace(rank=0, host="jw1"),)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"start", "host": "torn',
        '{"kind":"start","host":"of another run","run":"x","attempt":1,"rank":0}',
        '\x00\x01 no event "start"',
    ],
)
def test_a_first_line_of_another_program_is_passed_over(attempt: Attempt, line: str) -> None:
    write_rank(attempt, 0, line, start(attempt, 0, host="jw1", local_rank=-1, gpu=["0"]))
    assert read_steps(attempt).places == (RankPlace(rank=0, host="jw1"),)


def test_a_start_that_lies_far_into_the_file_is_not_looked_for(attempt: Attempt) -> None:
    write_rank(attempt, 0, " " * HEAD_BYTES, start(attempt, 0, host="jw1"))
    assert read_steps(attempt).places == ()


def test_the_last_figure_told_counts_and_the_lowest_rank_that_tells_it(attempt: Attempt) -> None:
    figure = {"name": "ttft_p99_ms", "unit": "ms", "n": 500}
    write_rank(
        attempt,
        0,
        event(attempt, "figure", rank=0, value=900.0, **figure),
        after=(event(attempt, "figure", rank=0, value=310.5, **figure), event(attempt, "figure", rank=0, name="gate_entropy", value=1)),
    )
    write_rank(
        attempt,
        1,
        after=(event(attempt, "figure", rank=1, value=100.0, **figure), event(attempt, "figure", rank=1, name="rougeL", value=2.5)),
    )
    assert read_steps(attempt).reported == {
        "gate_entropy": ReportedFigure(value=1.0, file="events_rank0.jsonl"),
        "rougeL": ReportedFigure(value=2.5, file="events_rank1.jsonl"),
        "ttft_p99_ms": ReportedFigure(value=310.5, unit="ms", n=500, file="events_rank0.jsonl"),
    }


def test_a_last_word_that_is_no_number_counts_as_such(attempt: Attempt) -> None:
    told = [event(attempt, "figure", rank=0, name="score", value=value) for value in (0.9, None)]
    odd = [event(attempt, "figure", rank=0, name=name, value=value) for name, value in (("Bad Name", 1.0), (None, 1.0), ("flag", True))]
    write_rank(attempt, 0, *told, *odd)
    found = read_steps(attempt).reported
    assert list(found) == ["flag", "score"]
    assert all(math.isnan(figure.value) for figure in found.values())


def test_figures_and_places_are_known_of_a_job_without_steps(attempt: Attempt) -> None:
    write_events(
        attempt, 0, "\n".join([start(attempt, 0, host="jw1"), event(attempt, "figure", name="tokens_per_s", value=812.0, n=20)]) + "\n"
    )
    write_log(attempt, "done\n")
    tables = read_steps(attempt)
    assert tables.source == "whole"
    assert tables.reported == {"tokens_per_s": ReportedFigure(value=812.0, n=20, file="events_rank0.jsonl")}
    assert tables.places == (RankPlace(rank=0, host="jw1"),)


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.STALLED])
def test_a_rank_that_was_halted_makes_the_run_halted(tmp_path: Path, outcome: Outcome) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2), outcome=outcome)
    write_rank(attempt, 0)
    write_rank(attempt, 1, after=(event(attempt, "halt", rank=1, step=2, at_step=3), event(attempt, "stop", rank=1, steps=3)))
    health = read_steps(attempt).health
    assert health is not None and health.halted


def test_the_watchdogs_own_file_makes_it_too(attempt: Attempt) -> None:
    write_rank(attempt, 0)
    (Path(attempt.folder) / ".HALT").write_text("halt: heartbeat_stall\n")
    health = read_steps(attempt).health
    assert health is not None and health.halted


def test_a_run_that_nobody_halted_is_not(attempt: Attempt) -> None:
    other = write_attempt(Path(attempt.folder).parents[1], factory.spec(ranks=2, repeat=2))
    write_rank(attempt, 0, after=(event(other, "halt", rank=0, step=2), '{"kind":"halt"', event(attempt, "pause", name="halt", step=1)))
    health = read_steps(attempt).health
    assert health is not None and not health.halted
