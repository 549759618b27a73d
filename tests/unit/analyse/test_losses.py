"""Whether a loss falls, its curve, and loss parity."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from seatrial.analyse.losses import ABOVE_ERRORS, loss_curve, loss_fall_pct, loss_falls, loss_parity
from seatrial.analyse.statistics import MAD_TO_SIGMA, MEDIAN_TO_MEAN_ERROR
from seatrial.records.comparison import ComparedGroup, LossVerdict
from seatrial.records.measure import LossCurve
from tests.unit.analyse.factory import course, golden, side

SENTENCES = golden("losses")


def test_loss_falls_needs_eight_losses_and_a_number_at_the_end() -> None:
    falling = list(np.linspace(4, 2, 40))
    assert loss_falls(falling) is True
    assert loss_falls(falling[::-1]) is False
    assert loss_falls(falling[:7]) is None
    assert loss_falls([*falling, math.nan]) is False
    assert loss_falls([math.nan]) is False
    assert loss_falls([]) is None
    noisy = [value + (3 if index == 38 else 0) for index, value in enumerate(falling)]
    assert loss_falls(noisy) is True


@pytest.mark.parametrize("count", [8, 20, 60, 200])
def test_a_flat_noisy_loss_is_neither_taken_to_fall_nor_to_rise(count: int) -> None:
    found = [loss_falls(3 + np.random.default_rng([count, seed]).normal(0, 0.1, count)) for seed in range(300)]
    assert found.count(True) / len(found) <= 0.07
    assert found.count(False) / len(found) <= 0.08
    assert found.count(None) / len(found) >= 0.85


@pytest.mark.parametrize("count", [20, 60, 200])
def test_a_noisy_fall_is_seen(count: int) -> None:
    course = 1 + 3 * np.exp(-4 * np.arange(count) / count)
    found = [loss_falls(course * np.exp(np.random.default_rng(seed).normal(0, 0.1, count))) for seed in range(300)]
    assert found.count(True) >= 297


@pytest.mark.parametrize("count", [20, 60, 200])
def test_a_noisy_rise_is_seen(count: int) -> None:
    found = [loss_falls(3 + np.linspace(0, 0.5, count) + np.random.default_rng(seed).normal(0, 0.1, count)) for seed in range(300)]
    assert found.count(False) >= 290


@pytest.mark.parametrize("count", [10, 20, 60, 600])
def test_a_loss_that_explodes_at_the_end_does_not_fall(count: int) -> None:
    falling = np.linspace(4, 3, count) + np.random.default_rng(count).normal(0, 0.05, count)
    falling[-(count // 10) :] = 50.0
    assert loss_falls(falling) is False


def test_one_loss_that_is_no_number_is_enough() -> None:
    falling = list(np.linspace(4, 2, 60))
    assert loss_falls([*falling[:10], *[math.nan] * 44, *falling[54:]]) is False
    assert loss_falls([*falling[:10], math.inf, *falling[10:]]) is False


def test_a_constant_loss_shows_nothing() -> None:
    assert loss_falls([3.0] * 40) is None


def test_a_long_run_is_judged_as_a_short_one() -> None:
    generator = np.random.default_rng(1)
    assert loss_falls(np.linspace(4, 3, 100_000) + generator.normal(0, 0.1, 100_000)) is True


def test_how_far_a_loss_falls() -> None:
    assert loss_fall_pct([4.0] * 4 + [3.0] * 8 + [1.0] * 4) == pytest.approx(75.0)
    assert loss_fall_pct([4.0, 1.0]) is None
    assert loss_fall_pct([4.0] * 7 + [math.nan]) is None
    assert loss_fall_pct([0.0] * 8) is None


@pytest.mark.parametrize(("share", "falls"), [(0.99, None), (1.01, False)])
def test_an_end_above_the_start_is_beyond_the_error_of_both_medians(share: float, falls: bool | None) -> None:
    """Of a start of 10 losses and a tail of 4, the error of the difference is that of two medians, added as squares."""
    losses = np.random.default_rng(11).normal(3.0, 0.1, 40)
    steps = np.diff(losses)
    noise = float(np.median(np.abs(steps - np.median(steps)))) * MAD_TO_SIGMA / math.sqrt(2)
    bound = ABOVE_ERRORS * MEDIAN_TO_MEAN_ERROR * noise * math.sqrt(1 / 10 + 1 / 4)
    losses[-4:] += np.median(losses[:10]) + share * bound - np.median(losses[-4:])
    assert loss_falls(losses) is falls


def test_few_losses_are_kept_as_they_are() -> None:
    found = loss_curve(np.arange(3), np.array([3.0, 2.0, 1.0]))
    assert found is not None
    assert (found.steps, found.losses, found.n, found.noise) == ((0, 1, 2), (3.0, 2.0, 1.0), 3, 0.0)


@pytest.mark.parametrize("count", [200, 201, 500, 1234])
def test_many_are_means_over_equal_parts(count: int) -> None:
    losses = np.linspace(4, 2, count)
    found = loss_curve(np.arange(count) * 10, losses)
    assert found is not None
    assert len(found.steps) == len(found.losses) == 200
    assert found.steps[-1] == (count - 1) * 10
    assert found.n == count
    sizes = np.diff([-10, *found.steps]) // 10
    assert set(sizes) <= {count // 200, count // 200 + 1}
    assert np.average(found.losses, weights=sizes) == pytest.approx(losses.mean())


def test_noise_is_that_of_a_single_loss_about_its_course() -> None:
    generator = np.random.default_rng(4)
    found = loss_curve(np.arange(2000), np.linspace(5, 1, 2000) + generator.normal(0, 0.2, 2000))
    assert found is not None
    assert found.noise == pytest.approx(0.2, rel=0.1)


def test_it_ends_before_the_first_loss_that_is_no_number_and_gives_the_step() -> None:
    found = loss_curve(np.arange(4), np.array([3.0, 2.0, np.nan, 1.0]))
    assert found is not None
    assert (found.steps, found.n, found.broken_step, found.last_step) == ((0, 1), 2, 2, 3)
    at_once = loss_curve(np.arange(5, 7), np.array([np.inf, 1.0]))
    assert at_once is not None
    assert (at_once.steps, at_once.losses, at_once.n, at_once.broken_step, at_once.last_step) == ((), (), 0, 5, 6)


def test_steps_without_a_loss_are_left_out_and_count_as_steps() -> None:
    has_loss = np.array([True, False, True, False])
    found = loss_curve(np.arange(4), np.array([3.0, np.nan, 2.0, np.nan]), has_loss)
    assert found is not None
    assert (found.steps, found.losses, found.broken_step, found.last_step) == ((0, 2), (3.0, 2.0), None, 3)
    assert loss_curve(np.arange(4), np.full(4, np.nan), np.zeros(4, dtype=bool)) is None
    assert loss_curve(np.arange(0), np.array([])) is None


def learning(name: str, *courses: LossCurve | None, **changes: Any) -> ComparedGroup:
    made = side(name, [100.0] * len(courses), **changes)
    runs = (dataclasses.replace(run, loss=loss) for run, loss in zip(made.runs, courses, strict=True))
    return dataclasses.replace(made, runs=tuple(runs))


def test_the_same_training_is_comparable() -> None:
    found = loss_parity(learning("a", course(2.0), course(2.0, seed=1)), learning("b", course(2.0, seed=2), course(2.0, seed=3)))
    assert found.verdict is LossVerdict.COMPARABLE
    assert found.allowed == pytest.approx(0.0205, abs=0.003) and found.last_step == 199 and found.n == 50
    assert found.reason in SENTENCES


def test_equals_are_never_called_worse_by_their_noise() -> None:
    worse = 0
    for seed in range(0, 800, 4):
        noisy = [course(2.0, noise=0.3, seed=seed + at) for at in range(4)]
        worse += loss_parity(learning("a", *noisy[:2]), learning("b", *noisy[2:])).verdict is LossVerdict.WORSE
    assert worse / 200 <= 0.05


@pytest.mark.parametrize("runs", [1, 3])
def test_a_worse_one_is_reported_and_a_better_one_is_no_harm(runs: int) -> None:
    good, bad = [course(2.0, seed=at) for at in range(runs)], [course(2.2, seed=10 + at) for at in range(runs)]
    found = loss_parity(learning("a", *good), learning("b", *bad))
    assert found.verdict is LossVerdict.WORSE
    assert found.difference == pytest.approx(0.2, abs=0.03)
    assert loss_parity(learning("a", *bad), learning("b", *good)).verdict is LossVerdict.COMPARABLE


def test_repeats_that_scatter_allow_for_their_scatter() -> None:
    scattered = loss_parity(learning("a", *map(course, (1.97, 2.03, 2.0))), learning("b", *map(course, (2.02, 2.06, 1.98))))
    assert scattered.verdict is LossVerdict.COMPARABLE and scattered.allowed is not None and scattered.allowed > 0.05


def test_a_scatter_that_would_hide_anything_is_no_parity() -> None:
    wide = loss_parity(learning("a", *map(course, (1.6, 2.4, 2.0))), learning("b", *map(course, (2.1, 2.5, 1.7))))
    assert wide.verdict is LossVerdict.UNKNOWN and wide.reason in SENTENCES


def test_losses_that_go_with_the_one_before_are_noisier_than_they_look() -> None:
    worse = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        pair = []
        for _ in range(2):
            noise = list(random.normal(0, 0.3, 2000))
            for at in range(1, 2000):
                noise[at] += 0.6 * noise[at - 1]
            found = loss_curve(np.arange(2000), 2.0 + np.asarray(noise))
            assert found is not None
            pair.append(found)
        worse += loss_parity(learning("a", pair[0]), learning("b", pair[1])).verdict is LossVerdict.WORSE
    assert worse <= 8


def test_a_small_share_of_the_loss_never_matters() -> None:
    quiet = [course(2.0, noise=1e-6), course(2.015, noise=1e-6)]
    assert loss_parity(learning("a", quiet[0]), learning("b", quiet[1])).verdict is LossVerdict.COMPARABLE


def cut(full: LossCurve, steps: int, **changes: Any) -> LossCurve:
    return dataclasses.replace(full, steps=full.steps[:steps], losses=full.losses[:steps], n=steps, **changes)


def test_runs_of_nearly_one_length_are_read_over_the_steps_both_have() -> None:
    full = course(2.0, steps=200)
    found = loss_parity(learning("a", full), learning("b", cut(full, 190)))
    assert (found.verdict, found.last_step) == (LossVerdict.COMPARABLE, 189)


def test_losses_that_end_well_before_a_run_are_unknown() -> None:
    full = course(2.0, steps=200)
    shorter = loss_parity(learning("a", full), learning("b", cut(full, 100)))
    assert shorter.verdict is LossVerdict.UNKNOWN and shorter.reason in SENTENCES
    silent = cut(full, 100, last_step=199)
    assert loss_parity(learning("a", cut(full, 100)), learning("b", silent)).verdict is LossVerdict.UNKNOWN


@pytest.mark.parametrize("batch", ["8", "16"])
def test_a_loss_that_is_no_number_is_worse(batch: str) -> None:
    losses = np.where(np.arange(200) < 100, course(2.0).losses, np.nan)
    broken = loss_curve(np.arange(200), losses)
    b = learning("b", course(2.0, seed=1), broken, settings={"bs": batch}, metric="steps_per_s")
    a = learning("a", course(2.0), course(2.0, seed=2), settings={"bs": "8"}, metric="steps_per_s")
    found = loss_parity(a, b)
    assert (found.verdict, found.last_step) == (LossVerdict.WORSE, 100)
    assert found.reason in SENTENCES
    baseline = loss_parity(b, a)
    assert baseline.verdict is LossVerdict.UNKNOWN and baseline.reason in SENTENCES
    assert loss_parity(b, b).verdict is LossVerdict.UNKNOWN


def test_one_silent_run_of_several_is_unknown() -> None:
    found = loss_parity(learning("a", course(2.0), course(2.0)), learning("b", course(2.0), None))
    assert found.verdict is LossVerdict.UNKNOWN and found.reason in SENTENCES


def test_thinned_courses_represent_the_middle_of_their_parts() -> None:
    """A line that falls by 1 a step: parts of 1 and of 20 steps must give the same mean."""
    fine = LossCurve(steps=tuple(range(400)), losses=tuple(1000.0 - at for at in range(400)), n=400, noise=0.1)
    coarse = LossCurve(steps=tuple(range(19, 400, 20)), losses=tuple(1000.0 - (at - 9.5) for at in range(19, 400, 20)), n=400, noise=0.1)
    found = loss_parity(learning("a", fine), learning("b", coarse))
    assert found.difference == pytest.approx(0, abs=1.0)


def test_no_losses_are_unknown() -> None:
    found = loss_parity(learning("a", course(2.0)), learning("b", None))
    assert found.verdict is LossVerdict.UNKNOWN and found.reason in SENTENCES


def test_too_few_losses_are_unknown() -> None:
    assert loss_parity(learning("a", course(2.0, steps=12)), learning("b", course(2.0, steps=12))).verdict is LossVerdict.UNKNOWN


def test_steps_that_do_not_overlap_are_unknown() -> None:
    early = course(2.0, steps=50)
    late = LossCurve(steps=tuple(range(100, 200)), losses=(2.0,) * 100, n=100, noise=0.01)
    assert loss_parity(learning("a", early), learning("b", late)).verdict is LossVerdict.UNKNOWN


def test_another_batch_makes_losses_incomparable() -> None:
    a = learning("a", course(2.0))
    doubled = learning("b", course(2.5))
    runs = tuple(dataclasses.replace(run, figures={**run.figures, "samples_per_s": 200.0}) for run in doubled.runs)
    found = loss_parity(a, dataclasses.replace(doubled, runs=runs))
    assert found.verdict is LossVerdict.UNKNOWN and found.reason in SENTENCES
    only_steps = [learning(name, course(2.0), metric="steps_per_s", settings={"bs": bs}) for name, bs in (("a", "8"), ("b", "16"))]
    assert loss_parity(*only_steps).reason in SENTENCES
