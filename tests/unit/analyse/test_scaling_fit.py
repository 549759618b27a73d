"""The fit of a step over the number of GPUs: parts found again, intervals that hold the truth, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from seatrial.analyse.scaling_fit import Fit, Timed

COMPUTE, BANDWIDTH, LATENCY = 100.0, 30.0, 4.0


def truth(gpus: int, work: float = 1.0) -> float:
    return COMPUTE * work + BANDWIDTH * (gpus - 1) / gpus + LATENCY * float(np.log2(gpus))


def timed(*sizes: int, repeats: int = 3, noise: float = 0.0, seed: int = 0) -> list[Timed]:
    chance = np.random.default_rng(seed)
    return [
        Timed(gpus=gpus, step_ms=truth(gpus) * float(np.exp(chance.normal(0, noise))), side=side)
        for side, gpus in enumerate(sizes)
        for _ in range(repeats)
    ]


def test_the_parts_are_found_again() -> None:
    assert Fit(timed(1, 2, 4, 8)).parts.tolist() == pytest.approx([COMPUTE, BANDWIDTH, LATENCY])


def test_no_part_is_below_zero_where_more_gpus_are_quicker_than_they_can_be() -> None:
    fit = Fit([Timed(gpus=gpus, step_ms=100.0 - gpus, side=gpus) for gpus in (1, 2, 4, 8) for _ in range(2)])
    assert (fit.parts >= 0).all()


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held = 0
    for seed in range(100):
        found = Fit(timed(1, 2, 4, 8, noise=0.01, seed=seed)).at(32, 1.0)
        assert found is not None
        held += found.low_ms <= truth(32) <= found.high_ms
    assert held >= 90


def test_of_two_sizes_the_interval_holds_bandwidth_alone_and_latency_alone() -> None:
    fit = Fit(timed(2, 4, noise=0.001))
    assert fit.parts[2] == 0.0
    found = fit.at(32, 1.0)
    assert found is not None and found.low_ms < truth(32) < found.high_ms
    assert found.high_ms / found.low_ms > 1.1


def test_without_repeats_there_is_no_interval_unless_more_sizes_than_parts_tell() -> None:
    assert Fit(timed(1, 2, repeats=1)).at(8, 1.0) is None
    assert Fit(timed(1, 2, 4, repeats=1, noise=0.01)).noise is None or Fit(timed(1, 2, 4, repeats=1, noise=0.01)).at(8, 1.0) is not None
    assert Fit(timed(1, 2, 4, 8, 16, repeats=1, noise=0.01)).at(32, 1.0) is not None


def test_what_is_left_of_a_bad_fit_counts_as_noise() -> None:
    odd = [
        Timed(gpus=gpus, step_ms=step_ms, side=gpus) for gpus, step_ms in ((1, 100.0), (2, 160.0), (4, 110.0), (8, 200.0)) for _ in range(3)
    ]
    noise = Fit(odd).noise
    assert noise is not None and noise[0] > 0.1


def test_the_largest_part_and_what_grows_are_told() -> None:
    fit = Fit(timed(1, 2, 4, 8, noise=0.001))
    found = fit.at(64, 1.0)
    assert found is not None and found.largest == "compute"
    assert fit.growth_ms(8, 64)[1] > fit.growth_ms(8, 64)[0] > 0
    small = fit.at(1024, 0.01)
    assert small is not None and small.largest == "latency"


def test_it_is_the_same_each_time() -> None:
    runs = timed(1, 2, 4, noise=0.02)
    assert Fit(runs).at(16, 1.0) == Fit(runs).at(16, 1.0)


def test_repeats_scatter_about_the_mean_of_their_own_side() -> None:
    """Three sides far apart, each alike to the last digit: there is no noise of repeats."""
    runs = [Timed(gpus=gpus, work=1.0, step_ms=100.0 * gpus, side=at) for at, gpus in enumerate((1, 2, 4)) for _ in range(2)]
    found = Fit(runs)._of_repeats()
    assert found is not None and found[0] == pytest.approx(0.0, abs=1e-12) and found[1] == 3
