"""The guard beside a speed-up."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from seatrial.analyse.loss_course import loss_course
from seatrial.analyse.loss_parity import loss_parity
from seatrial.records.comparison import LossVerdict, Side
from seatrial.records.health import LossCourse
from tests.unit.analyse.made_sides import course, side


def learning(name: str, *courses: LossCourse | None, **changes: Any) -> Side:
    made = side(name, [100.0] * len(courses), **changes)
    runs = (dataclasses.replace(run, loss=loss) for run, loss in zip(made.runs, courses, strict=True))
    return dataclasses.replace(made, runs=tuple(runs))


def test_the_same_training_is_comparable() -> None:
    found = loss_parity(learning("a", course(2.0), course(2.0, seed=1)), learning("b", course(2.0, seed=2), course(2.0, seed=3)))
    assert found.verdict is LossVerdict.COMPARABLE
    assert found.allowed == pytest.approx(0.0205, abs=0.003) and found.last_step == 199 and found.n == 50
    assert "steps 150–199" in found.reason


def test_equals_are_never_called_worse_by_their_noise() -> None:
    worse = 0
    for seed in range(0, 800, 4):
        noisy = [course(2.0, noise=0.3, seed=seed + at) for at in range(4)]
        worse += loss_parity(learning("a", *noisy[:2]), learning("b", *noisy[2:])).verdict is LossVerdict.WORSE
    assert worse / 200 <= 0.05


@pytest.mark.parametrize("runs", [1, 3])
def test_a_worse_one_is_told_and_a_better_one_is_no_harm(runs: int) -> None:
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
    assert wide.verdict is LossVerdict.UNKNOWN and "too wide to say more" in wide.reason


def test_losses_that_go_with_the_one_before_are_noisier_than_they_look() -> None:
    worse = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        pair = []
        for _ in range(2):
            noise = list(random.normal(0, 0.3, 2000))
            for at in range(1, 2000):
                noise[at] += 0.6 * noise[at - 1]
            found = loss_course(np.arange(2000), 2.0 + np.asarray(noise))
            assert found is not None
            pair.append(found)
        worse += loss_parity(learning("a", pair[0]), learning("b", pair[1])).verdict is LossVerdict.WORSE
    assert worse <= 8


def test_a_small_share_of_the_loss_never_matters() -> None:
    quiet = [course(2.0, noise=1e-6), course(2.015, noise=1e-6)]
    assert loss_parity(learning("a", quiet[0]), learning("b", quiet[1])).verdict is LossVerdict.COMPARABLE


def cut(full: LossCourse, steps: int, **changes: Any) -> LossCourse:
    return dataclasses.replace(full, steps=full.steps[:steps], losses=full.losses[:steps], n=steps, **changes)


def test_runs_of_nearly_one_length_are_read_over_the_steps_both_have() -> None:
    full = course(2.0, steps=200)
    found = loss_parity(learning("a", full), learning("b", cut(full, 190)))
    assert (found.verdict, found.last_step) == (LossVerdict.COMPARABLE, 189)


def test_losses_that_end_well_before_a_run_are_unknown() -> None:
    full = course(2.0, steps=200)
    shorter = loss_parity(learning("a", full), learning("b", cut(full, 100)))
    assert shorter.verdict is LossVerdict.UNKNOWN and "the losses of b end at step 99, while a run went on to step 199" in shorter.reason
    silent = cut(full, 100, last_step=199)
    assert loss_parity(learning("a", cut(full, 100)), learning("b", silent)).verdict is LossVerdict.UNKNOWN


@pytest.mark.parametrize("batch", ["8", "16"])
def test_a_loss_that_is_no_number_is_worse(batch: str) -> None:
    losses = np.where(np.arange(200) < 100, course(2.0).losses, np.nan)
    broken = loss_course(np.arange(200), losses)
    b = learning("b", course(2.0, seed=1), broken, settings={"bs": batch}, metric="steps_per_s")
    a = learning("a", course(2.0), course(2.0, seed=2), settings={"bs": "8"}, metric="steps_per_s")
    found = loss_parity(a, b)
    assert (found.verdict, found.last_step) == (LossVerdict.WORSE, 100)
    assert found.reason == "the loss of b_r2 is no number at step 100 (the last is 199)"
    baseline = loss_parity(b, a)
    assert baseline.verdict is LossVerdict.UNKNOWN and "the loss of b_r2 is no number at step 100" in baseline.reason
    assert loss_parity(b, b).verdict is LossVerdict.UNKNOWN


def test_a_loss_that_never_was_a_number_is_worse() -> None:
    broken = loss_course(np.arange(20), np.full(20, np.inf))
    assert loss_parity(learning("a", course(2.0)), learning("b", broken)).verdict is LossVerdict.WORSE


def test_a_lower_loss_reads_well() -> None:
    found = loss_parity(learning("a", course(2.0), course(2.0, seed=1)), learning("b", course(1.8, seed=2), course(1.8, seed=3)))
    assert found.verdict is LossVerdict.COMPARABLE and found.reason.startswith("loss 1.82 against 2.015: lower (steps 150–199"), (
        found.reason
    )


def test_one_silent_run_of_several_is_unknown() -> None:
    found = loss_parity(learning("a", course(2.0), course(2.0)), learning("b", course(2.0), None))
    assert found.verdict is LossVerdict.UNKNOWN and "b_r2 tells no losses" in found.reason


def test_thinned_courses_stand_for_the_middle_of_their_parts() -> None:
    """A line that falls by 1 a step: parts of 1 and of 20 steps must give the same mean."""
    fine = LossCourse(steps=tuple(range(400)), losses=tuple(1000.0 - at for at in range(400)), n=400, noise=0.1)
    coarse = LossCourse(steps=tuple(range(19, 400, 20)), losses=tuple(1000.0 - (at - 9.5) for at in range(19, 400, 20)), n=400, noise=0.1)
    found = loss_parity(learning("a", fine), learning("b", coarse))
    assert found.difference == pytest.approx(0, abs=1.0)


def test_no_losses_are_unknown() -> None:
    found = loss_parity(learning("a", course(2.0)), learning("b", None))
    assert found.verdict is LossVerdict.UNKNOWN and "b tells no losses" in found.reason


def test_too_few_losses_are_unknown() -> None:
    assert loss_parity(learning("a", course(2.0, steps=12)), learning("b", course(2.0, steps=12))).verdict is LossVerdict.UNKNOWN


def test_steps_that_do_not_overlap_are_unknown() -> None:
    early = course(2.0, steps=50)
    late = LossCourse(steps=tuple(range(100, 200)), losses=(2.0,) * 100, n=100, noise=0.01)
    assert loss_parity(learning("a", early), learning("b", late)).verdict is LossVerdict.UNKNOWN


def test_another_batch_makes_losses_incomparable() -> None:
    a = learning("a", course(2.0))
    doubled = learning("b", course(2.5))
    runs = tuple(dataclasses.replace(run, figures={**run.figures, "samples_per_s": 200.0}) for run in doubled.runs)
    found = loss_parity(a, dataclasses.replace(doubled, runs=runs))
    assert found.verdict is LossVerdict.UNKNOWN and "a step takes 10 samples in a and 20 in b" in found.reason
    only_steps = [learning(name, course(2.0), metric="steps_per_s", settings={"bs": bs}) for name, bs in (("a", "8"), ("b", "16"))]
    assert "bs (8 → 16)" in loss_parity(*only_steps).reason
