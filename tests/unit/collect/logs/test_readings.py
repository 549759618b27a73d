"""Which format is believed of those that find steps in a script's lines."""

from __future__ import annotations

from typing import Any

from seatrial.collect.logs.readings import OWN, RANK_LINES, Reading, best_reading, read_format
from seatrial.collect.logs.source import StampedLine
from seatrial.collect.logs.step_numbers import Numbered
from seatrial.records.log_formats import READY
from seatrial.records.run_spec import LogPatterns
from tests.unit.analyse import factory

EPOCHS = LogPatterns(name="made_up", lines=(r"step (?P<step>\d+)(?: loss (?P<loss>[\d.]+))?",))


def stamped(*texts: str, rank: int | None = None) -> list[StampedLine]:
    return [StampedLine(rank, text, float(at), float(at)) for at, text in enumerate(texts)]


def best(lines: list[StampedLine], **workload: Any) -> tuple[Reading | None, list[str]]:
    found, cautions = best_reading(lines, factory.spec(workload=workload))
    return found, [caution.kind for caution in cautions]


def test_no_line_and_one_step_are_no_reading() -> None:
    assert best([]) == (None, [])
    assert best(stamped("step 1 loss 2.0"), patterns=EPOCHS.lines) == (None, [])


def test_numbers_that_only_go_back_tell_no_time() -> None:
    assert not Reading(name="x", numbered=Numbered()).is_enough
    assert not read_format(stamped("step 0", "step 0"), EPOCHS).is_enough


def test_the_plans_own_patterns_come_first() -> None:
    lines = stamped("{'loss': 1.0, 'step': 1}", "at 1", "{'loss': 1.0, 'step': 2}", "at 2", "at 3")
    found, cautions = best(lines, patterns=(r"at (?P<step>\d+)",))
    assert found is not None and found.name == OWN and [each.number for each in found.printed] == [1, 2, 3] and cautions == []


def test_a_pattern_that_is_none_is_said_and_the_ready_formats_are_tried() -> None:
    found, cautions = best(stamped("nothing"), patterns=("(",))
    assert found is None and cautions == ["bad_pattern"]


def test_the_lowest_rank_that_tells_two_steps_is_read() -> None:
    lines = [*stamped("step 1", rank=0), *stamped("step 1", "step 2", rank=1), *stamped("step 1", "step 2", "step 3", rank=2)]
    assert [each.number for each in read_format(lines, EPOCHS).printed] == [1, 2]
    unmarked = [*lines, *stamped("step 7", "step 8")]
    assert [each.number for each in read_format(unmarked, EPOCHS).printed] == [7, 8], "unmarked lines come before all ranks"


def test_losses_beside_the_steps_are_known() -> None:
    assert read_format(stamped("step 1 loss 2.0", "step 2"), EPOCHS).has_loss
    assert not read_format(stamped("step 1", "step 2"), EPOCHS).has_loss


def test_the_lines_of_the_ranks_count_where_nothing_else_tells_steps() -> None:
    lines = stamped(*(f"TimingRank step={step} rank={rank} fwd_ms=1.0" for step in (10, 20) for rank in (0, 1)))
    found, _ = best(lines)
    assert found is not None and found.name == RANK_LINES.name and [each.number for each in found.printed] == [10, 20]
    asked_for_another = next(name for name in READY if name != RANK_LINES.name)
    assert best(lines, reads=asked_for_another)[0] is None
