"""Steps of a Trainer without its progress bar."""

from __future__ import annotations

import pytest

from seatrial.collect.logs.hf_lines import LossLine, count_losses, steps_by_epoch
from seatrial.collect.logs.source import StampedLine

SUMMARY = "{'train_runtime': 20.0, 'train_steps_per_second': 5.0, 'train_loss': 1.5, 'epoch': 2.0}"


def stamped(*texts: str) -> list[StampedLine]:
    return [StampedLine(None, text, float(at), float(at)) for at, text in enumerate(texts)]


def loss(value: object, epoch: object) -> str:
    return f"{{'loss': {value}, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': {epoch}}}"


def test_steps_follow_from_the_last_line() -> None:
    lines = stamped("loading", loss(2.5, 0.5), "noise", loss(2.25, 1.0), loss(2.0, 2.0), SUMMARY)
    assert steps_by_epoch(lines) == [
        LossLine(at=1, step=24, loss=2.5),
        LossLine(at=3, step=49, loss=2.25),
        LossLine(at=4, step=99, loss=2.0),
    ]


def test_a_run_that_did_not_come_to_its_last_line_tells_losses_and_no_steps() -> None:
    lines = stamped(loss(2.5, 0.5), loss(2.25, 1.0))
    assert steps_by_epoch(lines) == [] and count_losses(lines) == 2
    assert steps_by_epoch([]) == [] and count_losses([]) == 0


def test_newer_versions_print_numbers_as_text() -> None:
    (line,) = steps_by_epoch(stamped("{'loss': '2.5', 'epoch': '2'}", SUMMARY.replace("20.0", "'20.0'")))
    assert (line.step, line.loss) == (99, 2.5)


@pytest.mark.parametrize("odd", [loss(1.0, 9.0), loss(1.0, -1), "{'loss': 1.0}", "{'loss': 'high', 'epoch': 1.0}"])
def test_a_loss_that_has_no_step_is_left_out(odd: str) -> None:
    assert [line.at for line in steps_by_epoch(stamped(odd, loss(2.0, 1.0), SUMMARY))] == [1]


@pytest.mark.parametrize("summary", [SUMMARY.replace("20.0", "0"), SUMMARY.replace("2.0}", "0}"), SUMMARY.replace("20.0", "1e999")])
def test_a_last_line_that_cannot_be_tells_nothing(summary: str) -> None:
    assert steps_by_epoch(stamped(loss(2.0, 1.0), summary)) == []


def test_a_loss_that_broke_is_told() -> None:
    (line,) = steps_by_epoch(stamped(loss("nan", 1.0), SUMMARY))
    assert line.loss != line.loss and count_losses(stamped(loss("nan", 1.0))) == 1
