"""Drift of the platform, seen in its sentinel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seatrial.analyse.sentinel import sentinel_drift
from seatrial.records.command import Provenance
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.stability import SentinelDrift, StabilityVerdict
from tests.unit.analyse.factory import STARTED_T, measured, spec

HOUR_S = 3600.0


def runs(speeds: list[float], mode: str = "sentinel", metric: str = "samples_per_s") -> list[MeasuredRun]:
    return [
        measured(
            spec("watch", repeat, mode=mode),
            measure={"duration_s": 60.0, metric: speed},
            started_t=STARTED_T + repeat * HOUR_S,
        )
        for repeat, speed in enumerate(speeds, start=1)
    ]


def drift(speeds: list[float], metric: str = "samples_per_s") -> SentinelDrift:
    found = sentinel_drift(runs(speeds, metric=metric))
    assert found is not None and found.reason.endswith(".")
    return found


def test_a_plan_without_a_sentinel_has_no_drift() -> None:
    assert sentinel_drift([]) is None
    assert sentinel_drift(runs([100.0] * 5, mode="sweep")) is None


def test_a_platform_that_becomes_slower() -> None:
    found = drift([100.0, 98.1, 96.0, 94.2, 92.0])
    assert found.verdict is StabilityVerdict.UNSTABLE
    assert found.drift_pct == pytest.approx(-8.0, abs=0.3)
    assert found.drift_low is not None and found.drift_high is not None
    assert found.drift_low < found.drift_pct < found.drift_high < 0
    assert found.spread_pct == pytest.approx(100 / 92 * 100 - 100)
    assert found.reason.startswith("The platform became slower: -8.")
    assert "(watch, samples_per_s, n = 5 runs over 4h 00m)" in found.reason
    assert (found.first_t, found.last_t) == (STARTED_T + HOUR_S, STARTED_T + 5 * HOUR_S)


def test_the_order_is_that_of_time() -> None:
    assert sentinel_drift(runs([100.0, 98.0, 96.0, 94.0])[::-1]) == sentinel_drift(runs([100.0, 98.0, 96.0, 94.0]))


@pytest.mark.parametrize("before", [2, 4])
def test_a_change_of_level(before: int) -> None:
    noise = [0.0, 0.2, -0.1, 0.1, 0.05, -0.15, 0.1, 0.0]
    found = drift([(100.0 if place < before else 93.0) + more for place, more in enumerate(noise)])
    assert found.verdict is StabilityVerdict.UNSTABLE
    assert "changed its level by -7." in found.reason and f"after {before} of 8 sentinels" in found.reason


def test_a_late_change_of_level_is_kept_where_the_line_would_hide_it() -> None:
    """Of 20 sentinels the last two are slower: the line through all of them falls by half as much."""
    noise = np.random.default_rng(5).normal(0, 0.1, 20)
    found = drift([(100.0 if place < 18 else 96.5) + more for place, more in enumerate(noise)])
    assert found.verdict is StabilityVerdict.UNSTABLE
    assert found.drift_pct is not None and abs(found.drift_pct) < 3
    assert found.level_change_pct == pytest.approx(-3.5, abs=0.2)
    assert f"changed its level by {found.level_change_pct:+.1f} %" in found.reason
    assert drift([100.0, 98.1, 96.0, 94.2, 92.0]).level_change_pct is None
    assert drift([100.0, 100.6, 99.7, 100.2, 99.9]).level_change_pct is None


def test_small_noise_is_stable() -> None:
    found = drift([100.0, 100.6, 99.7, 100.2, 99.9])
    assert found.verdict is StabilityVerdict.STABLE and "highest over lowest 0.9 %" in found.reason


def test_a_small_drift_is_stable_however_sure() -> None:
    assert drift([100.0, 99.5, 99.0, 98.5, 98.0]).verdict is StabilityVerdict.STABLE


def test_noise_that_would_hide_a_drift_is_inconclusive() -> None:
    found = drift([100.0, 90.0, 104.0, 93.0])
    assert found.verdict is StabilityVerdict.INCONCLUSIVE and "would not be seen" in found.reason


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_say_nothing(count: int) -> None:
    found = drift([100.0, 50.0][:count])
    assert found.verdict is StabilityVerdict.INCONCLUSIVE and found.runs == count and "at least 3 are needed" in found.reason


def test_runs_that_failed_or_tell_nothing_do_not_count() -> None:
    failed = measured(spec("watch", 9, mode="sentinel"), measure={"samples_per_s": 1.0}, outcome=Outcome.FAILED)
    found = sentinel_drift([*runs([100.0, 100.0, 100.1]), failed])
    assert found is not None and found.runs == 3 and found.verdict is StabilityVerdict.STABLE


def test_a_longer_run_is_a_slower_platform() -> None:
    found = drift([60.0, 63.0, 66.0, 69.0], metric="duration_s")
    assert found.metric == "duration_s" and found.drift_pct is not None and found.drift_pct < -5 and "slower" in found.reason


def test_runs_begun_at_one_moment_are_no_course() -> None:
    same = [measured(spec("watch", repeat, mode="sentinel"), measure={"samples_per_s": 100.0 + repeat}) for repeat in (1, 2, 3)]
    found = sentinel_drift(same)
    assert found is not None and found.verdict is not StabilityVerdict.UNSTABLE
    assert found.drift_low is not None and math.isfinite(found.drift_low)


def test_a_steady_platform_is_rarely_called_unstable() -> None:
    rng = np.random.default_rng(7)
    called = sum(drift(list(100 * np.exp(rng.normal(0, 0.01, 8)))).verdict is StabilityVerdict.UNSTABLE for _ in range(500))
    assert called <= 15


def test_a_machine_that_became_another_is_told() -> None:
    updated = measured(
        spec("watch", 4, mode="sentinel"),
        measure={"samples_per_s": 100.0},
        started_t=STARTED_T + 4 * HOUR_S,
        provenance=Provenance(fingerprint="f1"),
    )
    found = sentinel_drift([*runs([100.0, 100.1, 99.9]), updated])
    assert found is not None and "Machine or code changed in between" in found.reason


def test_a_platform_that_becomes_faster_is_told_so() -> None:
    found = drift([92.0, 94.2, 96.0, 98.1, 100.0])
    assert found.verdict is StabilityVerdict.UNSTABLE and found.reason.startswith("The platform became faster: +8.")
    assert drift([100.0, 98.1, 96.0, 94.2, 92.0]).reason.startswith("The platform became slower: -")
