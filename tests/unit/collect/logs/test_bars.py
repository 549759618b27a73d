"""Which bar is the training's."""

from __future__ import annotations

import pytest

from seatrial.collect.logs.bars import training_bar
from seatrial.collect.logs.source import StampedLine
from seatrial.collect.logs.step_numbers import Told


class Output:
    """Lines as they come, each some time after the one before."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.now_s = 0.0

    def say(self, **values: float) -> Output:
        self.told.append(Told(line=StampedLine(None, "", self.now_s, self.now_s), at=len(self.told), values=values, teller=0))
        return self

    def bar(self, total: int, *, step_s: float = 0.1, loss_every: int = 0) -> Output:
        self.say(step=0, total=total)
        for done in range(1, total + 1):
            self.now_s += step_s
            self.say(step=done, total=total)
            if loss_every and done % loss_every == 0:
                self.say(loss=2.0)
                self.say(step=done, total=total)
        return self


def test_one_bar_is_the_training_s() -> None:
    output = Output().bar(20)
    found = training_bar(output.told, None)
    assert (found.told, found.total, found.left_out) == (output.told, 20, ())


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
def test_of_several_bars(output: Output, steps: int | None, total: int, left_out: tuple[int, ...]) -> None:
    found = training_bar(output.told, steps)
    assert (found.total, found.left_out) == (total, left_out)
    assert found.told[0].number == 0
    assert len({each.number for each in found.told if each.number is not None}) == total + 1


def test_losses_after_a_bar_has_ended_are_not_its_own() -> None:
    found = training_bar(Output().bar(30).say(loss=2.0).say(loss=1.9).told, None)
    assert not any("loss" in each.values for each in found.told)


def test_the_last_loss_counts_though_the_bar_is_not_drawn_again() -> None:
    found = training_bar(Output().bar(30, loss_every=10).say(loss=1.0).told, None)
    assert found.told[-1].values == {"loss": 1.0}


def test_bars_of_one_length_without_losses_are_epochs_of_one_training() -> None:
    output = Output().bar(50).bar(10).bar(50).bar(10)
    found = training_bar(output.told, None)
    assert (len(found.told), found.total, found.left_out) == (102, 50, (10,))


def test_a_bar_that_never_moved_is_none() -> None:
    found = training_bar(Output().bar(20).say(step=0, total=5).told, None)
    assert (found.total, found.left_out) == (20, ())
    assert training_bar(Output().say(step=0, total=5).told, None).told == []


def test_a_bar_without_a_length_is_one_of_its_own() -> None:
    output = Output().bar(20).say(step=1).say(step=2)
    assert training_bar(output.told, None).left_out == (None,)
