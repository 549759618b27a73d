"""Steps in printed lines: numbering, progress bars, a Trainer without its bar, the choice of a format."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from seatrial.collect.logs.launcher_log import StampedLine
from seatrial.collect.logs.steps import (
    RANK_LINES,
    LineValues,
    NumberedSteps,
    Reading,
    best_reading,
    count_losses,
    number_steps,
    read_format,
    steps_by_epoch,
    training_bar,
)
from seatrial.core.log_lines import LOG_FORMATS, STEP_AND_LOSS, LogPatterns
from tests.unit.analyse import factory


def numbered(numbers: list[float], *, total: int | None = None, is_bar: bool = False, names_epochs: bool = False) -> NumberedSteps:
    extra = {} if total is None else {"total": total}
    lines: list[LineValues] = []
    for at, number in enumerate(numbers):
        epoch = sum(later < one for one, later in itertools.pairwise(numbers[: at + 1])) if names_epochs else None
        line = StampedLine(None, "", float(at), float(at))
        lines.append(LineValues(line=line, at=at, values={"step": number, **extra}, pattern=0, epoch=epoch))
    return number_steps(lines, is_bar=is_bar)


def steps(found: NumberedSteps) -> list[int]:
    return [each.step for each in found.printed]


@pytest.mark.parametrize(
    ("numbers", "expected", "restarts"),
    [
        ([0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 4, 5], 1),
        ([1, 2, 3, 1, 2, 3], [1, 2, 3, 4, 5, 6], 1),
        ([0, 10, 20, 0, 10, 20], [0, 10, 20, 30, 40, 50], 1),
        ([10, 20, 10, 20, 10, 20], [10, 20, 30, 40, 50, 60], 2),
        ([0, 5, 10, 2, 5, 10], [0, 5, 10, 15, 18, 23], 1),
        ([7], [7], 0),
        ([], [], 0),
    ],
)
def test_epochs_are_counted_on(numbers: list[float], expected: list[int], restarts: int) -> None:
    found = numbered(numbers, names_epochs=True)
    assert (steps(found), found.restarts, found.num_late, found.num_started_over) == (expected, restarts, 0, 0)


@pytest.mark.parametrize(
    ("numbers", "counted", "started_over"),
    [
        ([0, 1, 2, 0, 1, 2], [0, 1, 2], 1),
        ([0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 3], 2),
        ([10, 20, 10, 20, 10, 20], [10, 20], 2),
    ],
)
def test_numbers_that_start_over_without_an_epoch_are_not_added_up(numbers: list[float], counted: list[int], started_over: int) -> None:
    found = numbered(numbers)
    assert (steps(found), found.restarts, found.num_late, found.num_started_over) == (counted, 0, 0, started_over)


@pytest.mark.parametrize(
    "named",
    [
        [f"epoch {epoch} step {step} loss 2.0" for epoch in range(2) for step in range(3)],
        [f"Epoch [{epoch}/2], Step [{step}/3], Loss: 2.0" for epoch in (1, 2) for step in (1, 2, 3)],
        [f"| epoch {epoch:03d}: step {step} loss=2.0" for epoch in (1, 2) for step in (1, 2, 3)],
        [line for epoch in (1, 2) for line in (f"=== Epoch {epoch}/2 ===", *(f"step {step} loss 2.0" for step in range(3)))],
        [line for epoch in (1, 2) for line in (*(f"step {step} loss 2.0" for step in range(3)), f"epoch {epoch} done, val loss 2.0")],
    ],
)
def test_epochs_may_be_named_in_the_lines_or_between_them(named: list[str]) -> None:
    found = best(stamped(*named))[0]
    assert found is not None and found.printed[-1].step - found.printed[0].step == 5
    assert (found.numbered.restarts, found.numbered.num_started_over) == (1, 0)
    first, second = named[: len(named) // 2], named[len(named) // 2 :]
    again = best(stamped(*first, *second, *first, *second))[0]
    assert again is not None and again.numbered.num_started_over == 1, "the same epochs again are no further ones"


def test_an_epoch_may_be_named_in_a_line_of_no_rank() -> None:
    lines = [
        line for epoch in (1, 2) for line in (*stamped(f"Epoch {epoch}"), *stamped(*(f"step {step} loss 2.0" for step in range(3)), rank=0))
    ]
    found = best(lines)[0]
    assert found is not None and found.printed[-1].step - found.printed[0].step == 5


def test_a_number_that_goes_back_within_an_epoch_is_late() -> None:
    found = numbered([*range(30), 20, *range(30, 60), 58])
    assert (steps(found), found.restarts, found.num_late, found.increasing_only) == (list(range(60)), 0, 2, False)


def test_with_many_late_lines_only_increasing_numbers_are_kept() -> None:
    found = numbered([0, 1, 0, 1, 2, 2, 3, 0, 4, 3])
    assert (steps(found), found.restarts, found.increasing_only) == ([0, 1, 2, 3, 4], 0, True)
    assert (found.lines, found.num_late) == (10, 5)


def test_two_patterns_may_match_one_step_but_one_pattern_twice_is_two_processes() -> None:
    line = StampedLine(None, "", 0.0, 0.0)
    lines = [
        LineValues(line=line, at=at, values={"step": 10, name: 1.0}, pattern=at % 2)
        for at, name in enumerate(("loss", "tokens", "samples"))
    ]
    found = number_steps(lines)
    assert found.printed[0].values == {"loss": 1.0, "tokens": 1.0}
    assert (len(found.printed), found.num_late) == (1, 1)


def test_a_line_without_a_step_adds_to_the_last_one() -> None:
    line = StampedLine(None, "", 0.0, 0.0)
    values: list[dict[str, float]] = [{"loss": 9.0}, {"step": 1}, {"loss": 2.0}, {"step": math.nan, "tokens": 3.0}]
    found = number_steps([LineValues(line=line, at=at, values=each) for at, each in enumerate(values)])
    assert [(each.step, each.values) for each in found.printed] == [(1, {"loss": 2.0, "tokens": 3.0})]


def test_each_number_of_a_countdown_is_a_restart() -> None:
    assert [each.restarts for each in numbered([5, 4, 3, 2], names_epochs=True).printed] == [False, True, True, True]
    assert len(numbered([5, 4, 3, 2]).printed) == 1


def test_a_bar_shows_steps_done_and_may_be_drawn_again() -> None:
    found = numbered([0, 1, 2, 2, 3, 3, 0, 1, 3], total=3, is_bar=True)
    assert steps(found) == [0, 1, 2, 3, 5]
    assert [each.at for each in found.printed] == [1, 2, 4, 7, 8]
    assert [each.restarts for each in found.printed] == [False, False, False, True, False]
    assert found.num_late == 0


def test_a_bar_not_drawn_to_its_end_has_its_shown_length() -> None:
    assert steps(numbered([0, 4, 8, 0, 4, 8], total=10, is_bar=True, names_epochs=True)) == [3, 7, 13, 17]
    assert steps(numbered([0, 4, 8, 0, 4, 8], is_bar=True, names_epochs=True)) == [3, 7, 11, 15]
    # One that broke off may be of a job that was started again.
    assert steps(numbered([0, 4, 8, 0, 4, 8], total=10, is_bar=True)) == [3, 7]


class Output:
    """Lines as they come, each some time after the one before."""

    def __init__(self) -> None:
        self.lines: list[LineValues] = []
        self.now_s = 0.0

    def add(self, **values: float) -> Output:
        self.lines.append(LineValues(line=StampedLine(None, "", self.now_s, self.now_s), at=len(self.lines), values=values, pattern=0))
        return self

    def bar(self, total: int, *, step_s: float = 0.1, loss_every: int = 0) -> Output:
        self.add(step=0, total=total)
        for done in range(1, total + 1):
            self.now_s += step_s
            self.add(step=done, total=total)
            if loss_every and done % loss_every == 0:
                self.add(loss=2.0)
                self.add(step=done, total=total)
        return self


@pytest.mark.parametrize(
    ("output", "steps", "total", "left_out"),
    [
        pytest.param(Output().bar(300, step_s=9).bar(60, loss_every=10).bar(150), 150, 150, (60, 300), id="as long as the plan says"),
        pytest.param(Output().bar(300, step_s=9).bar(60, loss_every=10).bar(150), 999, 60, (150, 300), id="with losses"),
        pytest.param(Output().bar(300, step_s=0.01).bar(60).bar(20), None, 60, (20, 300), id="the longest"),
        pytest.param(Output().bar(100, loss_every=10).bar(100), None, 100, (100,), id="an evaluation as long as the training"),
        pytest.param(Output().bar(60, loss_every=60).bar(40, loss_every=5), None, 40, (60,), id="more losses"),
    ],
)
def test_the_training_bar_among_several(output: Output, steps: int | None, total: int, left_out: tuple[int, ...]) -> None:
    found = training_bar(output.lines, steps)
    assert (found.total, found.left_out) == (total, left_out)
    assert found.found[0].number == 0
    assert len({each.number for each in found.found if each.number is not None}) == total + 1


def test_losses_after_a_bar_has_ended_are_not_its_own() -> None:
    found = training_bar(Output().bar(30).add(loss=2.0).add(loss=1.9).lines, None)
    assert not any("loss" in each.values for each in found.found)


def test_the_last_loss_counts_though_the_bar_is_not_drawn_again() -> None:
    found = training_bar(Output().bar(30, loss_every=10).add(loss=1.0).lines, None)
    assert found.found[-1].values == {"loss": 1.0}


def test_bars_of_one_length_without_losses_are_epochs_of_one_training() -> None:
    output = Output().bar(50).bar(10).bar(50).bar(10)
    found = training_bar(output.lines, None)
    assert (len(found.found), found.total, found.left_out) == (102, 50, (10,))


def test_a_bar_that_never_moved_is_ignored() -> None:
    found = training_bar(Output().bar(20).add(step=0, total=5).lines, None)
    assert (found.total, found.left_out) == (20, ())
    assert training_bar(Output().add(step=0, total=5).lines, None).found == []


def test_a_bar_without_a_length_is_separate() -> None:
    output = Output().bar(20).add(step=1).add(step=2)
    assert training_bar(output.lines, None).left_out == (None,)


SUMMARY = "{'train_runtime': 20.0, 'train_steps_per_second': 5.0, 'train_loss': 1.5, 'epoch': 2.0}"


def stamped(*texts: str, rank: int | None = None) -> list[StampedLine]:
    return [StampedLine(rank, text, float(at), float(at)) for at, text in enumerate(texts)]


def loss(value: object, epoch: object) -> str:
    return f"{{'loss': {value}, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': {epoch}}}"


def test_steps_follow_from_the_last_line() -> None:
    lines = stamped("loading", loss(2.5, 0.5), "noise", loss(2.25, 1.0), loss(2.0, 2.0), SUMMARY)
    found = [(each.at, each.values["step"], each.values["loss"]) for each in steps_by_epoch(lines).found]
    assert found == [(1, 24, 2.5), (3, 49, 2.25), (4, 99, 2.0)]


def test_without_its_summary_a_trainer_has_losses_and_no_steps() -> None:
    lines = stamped(loss(2.5, 0.5), loss(2.25, 1.0))
    assert steps_by_epoch(lines).found == [] and count_losses(lines) == 2
    assert steps_by_epoch([]).found == [] and count_losses([]) == 0


def test_newer_versions_print_numbers_as_text() -> None:
    (line,) = steps_by_epoch(stamped("{'loss': '2.5', 'epoch': '2'}", SUMMARY.replace("20.0", "'20.0'"))).found
    assert line.values == {"step": 99, "loss": 2.5}


@pytest.mark.parametrize("odd", [loss(1.0, 9.0), loss(1.0, -1), "{'loss': 1.0}", "{'loss': 'high', 'epoch': 1.0}"])
def test_a_loss_that_has_no_step_is_left_out(odd: str) -> None:
    assert [line.at for line in steps_by_epoch(stamped(odd, loss(2.0, 1.0), SUMMARY)).found] == [1]


@pytest.mark.parametrize("summary", [SUMMARY.replace("20.0", "0"), SUMMARY.replace("2.0}", "0}"), SUMMARY.replace("20.0", "1e999")])
def test_an_invalid_summary_gives_no_steps(summary: str) -> None:
    assert steps_by_epoch(stamped(loss(2.0, 1.0), summary)).found == []


def trainer_log(total: int, every: int, *, epochs: float = 1.0, first: bool = False, seconds: float = 100.0) -> list[str]:
    """What a Trainer prints that logs every so many steps: losses count down from the total, epochs have two decimals."""
    logged = sorted({*([1] if first else []), *range(every, total + 1, every)})
    summary = {
        "train_runtime": seconds,
        "train_samples_per_second": round(8 * total / seconds, 3),
        "train_steps_per_second": round(total / seconds, 3),
        "train_loss": 1.0,
        "epoch": round(epochs, 2),
    }
    return [*(loss(float(total - step), round(step / total * epochs, 2)) for step in logged), str(summary)]


@pytest.mark.parametrize(
    ("total", "every", "epochs", "first"),
    [
        (500, 1, 1.0, False),
        (500, 1, 1.0, True),
        (1000, 3, 1.0, False),
        (1000, 10, 3.0, False),
        (505, 10, 1.0, True),
        (60, 1, 0.13, False),
        (60, 5, 0.02, False),
        (10_000, 100, 1.0, False),
        (10_000, 150, 1.0, False),
        (100, 30, 0.4, False),
        (40, 10, 0.03, False),
    ],
)
def test_rounded_epochs_coarser_than_steps_do_not_move_a_loss(total: int, every: int, epochs: float, first: bool) -> None:
    found = steps_by_epoch(stamped(*trainer_log(total, every, epochs=epochs, first=first)))
    expected = sorted({*([1] if first else []), *range(every, total + 1, every)})
    assert [each.values["step"] + 1 for each in found.found] == expected
    assert [each.values["loss"] for each in found.found] == [total - step for step in expected]
    assert not found.is_even and number_steps(found.found).num_late == 0


def test_epochs_of_four_digits_are_coarser_the_later_they_are() -> None:
    lines = [f"{{'loss': '{step}', 'epoch': '{step / 1000:.4g}'}}" for step in range(1, 20_001)]
    summary = "{'train_runtime': '1000', 'train_steps_per_second': '20', 'epoch': '20'}"
    found = steps_by_epoch(stamped(*lines, summary)).found
    assert [each.values["step"] + 1 for each in found] == [each.values["loss"] for each in found] == list(range(1, 20_001))


def test_irregular_lines_are_spread_evenly_over_the_reported_steps() -> None:
    lines = [loss(1.0, epoch) for epoch in (0.01, 0.01, 0.01, 0.9, 0.9, 1.0)]
    found = steps_by_epoch(stamped(*lines, trainer_log(600, 600)[-1]))
    assert [each.values["step"] + 1 for each in found.found] == [100, 200, 300, 400, 500, 600] and found.is_even


def test_the_number_of_steps_is_that_of_the_header_or_the_plan_where_the_summary_agrees() -> None:
    # 0.123 steps a second over 30,000 s may be 3,675 to 3,705.
    lines = trainer_log(3700, 10, seconds=30_000.0)
    assert steps_by_epoch(stamped(*lines)).total == 3690
    assert steps_by_epoch(stamped(*lines), 3700).total == 3700
    assert steps_by_epoch(stamped("  Total optimization steps = 3,700", *lines), 5).total == 3700
    assert steps_by_epoch(stamped("  Total optimization steps = 9,000", *lines)).total == 3690, "it ended early"


def test_a_nan_loss_is_kept() -> None:
    (line,) = steps_by_epoch(stamped(loss("nan", 1.0), SUMMARY)).found
    assert math.isnan(line.values["loss"]) and count_losses(stamped(loss("nan", 1.0))) == 1


EPOCHS = LogPatterns(name="made_up", lines=(r"step (?P<step>\d+)(?: loss (?P<loss>[\d.]+))?",))


def best(lines: list[StampedLine], **workload: Any) -> tuple[Reading | None, list[str]]:
    found, cautions = best_reading(lines, factory.spec(workload=workload).workload, None)
    return found, [caution.kind for caution in cautions]


def test_no_line_and_one_step_are_no_reading() -> None:
    assert best([]) == (None, [])
    assert best(stamped("step 1 loss 2.0"), patterns=EPOCHS.lines) == (None, [])


def test_a_repeated_number_is_no_reading() -> None:
    assert not Reading(name="x", numbered=NumberedSteps()).is_enough
    assert not read_format(stamped("step 0", "step 0"), EPOCHS).is_enough


def test_an_invalid_pattern_is_reported() -> None:
    found, cautions = best(stamped("nothing"), patterns=("(",))
    assert found is None and cautions == ["bad_pattern"]


def test_the_lowest_rank_with_two_steps_is_read() -> None:
    lines = [
        *stamped("step 1", rank=0),
        *stamped("step 1", "step 2", rank=1),
        *stamped("step 1", "step 2", "step 3", rank=2),
    ]
    assert [each.number for each in read_format(lines, EPOCHS).printed] == [1, 2]
    unmarked = [*lines, *stamped("step 7", "step 8")]
    assert [each.number for each in read_format(unmarked, EPOCHS).printed] == [7, 8], "unmarked lines come before all ranks"


def test_timing_rank_lines_count_where_nothing_else_has_steps() -> None:
    lines = stamped(*(f"TimingRank step={step} rank={rank} fwd_ms=1.0" for step in (10, 20) for rank in (0, 1)))
    found, _ = best(lines)
    assert found is not None and found.name == RANK_LINES.name and [each.number for each in found.printed] == [10, 20]
    other_format = next(name for name in LOG_FORMATS if name != RANK_LINES.name)
    assert best(lines, reads=other_format)[0] is None


def test_any_line_with_a_step_and_a_loss_counts_where_no_format_fits() -> None:
    lines = stamped(
        *(f"epoch 0 step {step} lr 1e-4 loss {4 - step / 10:.2f}" for step in range(5)), "eval step 7 loss 3.0", "step 8 val loss 2"
    )
    found, _ = best(lines)
    assert found is not None and found.name == STEP_AND_LOSS.name
    assert [(each.number, each.values["loss"]) for each in found.printed] == [(step, 4 - step / 10) for step in range(5)]
    assert best(lines, reads="none")[0] is None and best(lines, reads="nanogpt")[0] is None
    # What a known format, or the plan's own pattern, reads stays as it is.
    known = stamped(*(f"iter {step}: loss 3.2, time 10.0ms" for step in (0, 10)))
    assert (reading := best([*lines, *known])[0]) is not None and reading.name == "nanogpt"
    assert (reading := best(lines, patterns=EPOCHS.lines)[0]) is not None and reading.name == "plan"


def test_a_bar_without_losses_does_not_hide_lines_of_no_known_format() -> None:
    bars = stamped(*(f" {done}%|## | {done}/100 [00:01<00:01, 9.9it/s]" for done in range(0, 101, 10)))
    found, _ = best([*bars, *stamped(*(f"step {step} loss {4 - step / 10:.2f}" for step in range(5)))])
    assert found is not None and (found.name, len(found.printed)) == (STEP_AND_LOSS.name, 5)


def test_what_lies_between_head_and_end_of_a_large_log_is_unknown() -> None:
    head, end = stamped(*(f"step {step} loss 2" for step in range(50))), stamped(*(f"step {step} loss 2" for step in range(20, 60)))
    found, _ = best([*head, *(replace(line, part=1) for line in end)])
    assert found is not None and [len(each) for each in found.numbered.series] == [50, 40]


@pytest.mark.parametrize(("total", "every", "begun"), [(2000, 10, 1000), (10_000, 50, 2500), (3000, 7, 700)])
def test_losses_of_a_resumed_training_are_at_their_own_steps(total: int, every: int, begun: int) -> None:
    """The summary counts the steps before the checkpoint too, and their lines are in another log."""
    lines = trainer_log(total, every, epochs=0.5)
    found = steps_by_epoch(stamped(*lines[begun // every :]))
    expected = list(range(begun + every, total + 1, every))
    assert [each.values["step"] + 1 for each in found.found] == pytest.approx(expected, abs=every / 2)
    assert found.found[-1].values["step"] + 1 == expected[-1]
