"""Dotted fields of the catalogue, read out of records."""

from __future__ import annotations

import pytest

from seatrial.judge.fields import look_up
from seatrial.records.criteria_catalog import METRICS
from seatrial.records.health import StragglerVerdict
from seatrial.records.measure import GroupSummary, RunMeasure
from seatrial.records.stability import GroupStability, StabilityVerdict
from seatrial.records.verdict import Criterion, Verdict
from tests.unit.judge.campaigns import changed, clean_runs, finding, straggler
from tests.unit.report import factory

GROUP = factory.summary(
    "mb16_nw2", stability=GroupStability(verdict=StabilityVerdict.UNSTABLE, reason="p90/p50 is 2.6 in mb16_nw2_r1.", runs=2, cv_pct=1.5)
)
RUN = factory.measure(1000.0)


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (GROUP, "figures.samples_per_s", 1270.0),
        (GROUP, "seed.unstable_run_ratio", 0.0),
        (GROUP, "stability.cv_pct", 1.5),
        (GROUP, "stability.verdict", False),
        (GROUP, "stability.ratio_max", None),
        (GROUP, "figures.nothing", None),
        (RUN, "samples_per_s", 1000.0),
        (RUN, "straggler.score", None),
        (RUN, "seed.rank_iter_spread_p90_ms", None),
        (RUN, "source", None),
        (RUN, None, None),
    ],
)
def test_fields(record: GroupSummary | RunMeasure, field: str | None, value: object) -> None:
    assert look_up(record, field).value == value


def test_an_estimate_brings_its_interval() -> None:
    estimate = look_up(GROUP, "figures.samples_per_s").estimate
    assert estimate is not None and estimate.low is not None


def test_every_field_of_the_catalogue_is_one_that_records_have() -> None:
    for name, entry in METRICS.items():
        for record, field in ((RunMeasure, entry.run_field), (GroupSummary, entry.group_field)):
            assert field is None or field.split(".")[0] in record.__dataclass_fields__, name


def test_throughput_of_one_gpu() -> None:
    of_winner = finding(Criterion(metric="samples_per_s_per_gpu", scope="winner", at_least=600))
    assert of_winner.verdict is Verdict.PASS
    assert "635 samples/s in mb16_nw2 (95 % interval 628.6 to 641.4, 2 runs)" in of_winner.text
    of_runs = finding(Criterion(metric="samples_per_s_per_gpu", scope="every_run", at_least=630))
    assert of_runs.verdict is Verdict.FAIL and "625.5 samples/s in mb16_nw0_r1" in of_runs.text


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        (StabilityVerdict.STABLE, Verdict.PASS),
        (StabilityVerdict.UNSTABLE, Verdict.FAIL),
        (StabilityVerdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
    ],
)
def test_stability_as_a_criterion(how: StabilityVerdict, verdict: Verdict) -> None:
    group = factory.summary("mb16_nw2", stability=GroupStability(verdict=how, reason="Because of this.", runs=2))
    found = finding(Criterion(metric="stable", scope="every_group"), groups=[group])
    assert found.verdict is verdict and "Because of this" in found.text


@pytest.mark.parametrize(
    ("how", "verdict"),
    [(StragglerVerdict.NONE, Verdict.PASS), (StragglerVerdict.NAMED, Verdict.FAIL), (StragglerVerdict.ABSTAINED, Verdict.INCONCLUSIVE)],
)
def test_the_score_of_a_straggler(how: StragglerVerdict, verdict: Verdict) -> None:
    run = changed(clean_runs()[0], straggler=straggler(how))
    assert finding(Criterion(metric="straggler_score", scope="every_run", at_most=0.1), runs=[run]).verdict is verdict
