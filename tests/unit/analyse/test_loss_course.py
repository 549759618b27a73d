"""Losses made short."""

from __future__ import annotations

import numpy as np
import pytest

from seatrial.analyse.loss_course import loss_course


def test_few_losses_are_kept_as_they_are() -> None:
    found = loss_course(np.arange(3), np.array([3.0, 2.0, 1.0]))
    assert found is not None
    assert (found.steps, found.losses, found.n, found.noise) == ((0, 1, 2), (3.0, 2.0, 1.0), 3, 0.0)


@pytest.mark.parametrize("count", [200, 201, 500, 1234])
def test_many_are_means_over_equal_parts(count: int) -> None:
    losses = np.linspace(4, 2, count)
    found = loss_course(np.arange(count) * 10, losses)
    assert found is not None
    assert len(found.steps) == len(found.losses) == 200
    assert found.steps[-1] == (count - 1) * 10
    assert found.n == count
    sizes = np.diff([-10, *found.steps]) // 10
    assert set(sizes) <= {count // 200, count // 200 + 1}
    assert np.average(found.losses, weights=sizes) == pytest.approx(losses.mean())


def test_noise_is_that_of_a_single_loss_about_its_course() -> None:
    generator = np.random.default_rng(4)
    found = loss_course(np.arange(2000), np.linspace(5, 1, 2000) + generator.normal(0, 0.2, 2000))
    assert found is not None
    assert found.noise == pytest.approx(0.2, rel=0.1)


def test_it_ends_before_the_first_loss_that_is_no_number_and_says_where() -> None:
    found = loss_course(np.arange(4), np.array([3.0, 2.0, np.nan, 1.0]))
    assert found is not None
    assert (found.steps, found.n, found.broken_step, found.last_step) == ((0, 1), 2, 2, 3)
    at_once = loss_course(np.arange(5, 7), np.array([np.inf, 1.0]))
    assert at_once is not None
    assert (at_once.steps, at_once.losses, at_once.n, at_once.broken_step, at_once.last_step) == ((), (), 0, 5, 6)


def test_steps_without_a_loss_are_left_out_and_count_as_steps() -> None:
    told = np.array([True, False, True, False])
    found = loss_course(np.arange(4), np.array([3.0, np.nan, 2.0, np.nan]), told)
    assert found is not None
    assert (found.steps, found.losses, found.broken_step, found.last_step) == ((0, 2), (3.0, 2.0), None, 3)
    assert loss_course(np.arange(4), np.full(4, np.nan), np.zeros(4, dtype=bool)) is None
    assert loss_course(np.arange(0), np.array([])) is None
