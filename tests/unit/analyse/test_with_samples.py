"""What the machine did while a run was measured, joined to the run's measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from seatrial.analyse.with_samples import with_samples
from seatrial.records.caution import Caution
from seatrial.records.command import Provenance
from seatrial.records.health import Straggler, StragglerVerdict
from seatrial.records.measure import RunMeasure, Window
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables
from tests.unit.analyse.factory import STARTED_T, attempt, steps_of, tables

ACCOUNT = TelemetryAccount(host=SamplerAccount(interval_s=1.0))
SECOND = 1000.0


def host_samples(count: int = 60, **columns: float) -> pl.DataFrame:
    """A sample a second from the run's start on; a busy host unless told otherwise."""
    told = {"host_index": 0, "cpu_user_pct": 95.0, "cpu_system_pct": 4.0, "tree_cpu_pct": 100.0, "load1": 8.0, "rss_kib": 1024.0, **columns}
    return pl.DataFrame({"epoch_sec": STARTED_T + np.arange(count), **{name: [value] * count for name, value in told.items()}})


def taken(samples: TelemetryTables, *, provenance: Provenance | None = None, steps: pl.DataFrame | None = None) -> RunMeasure:
    made = replace(attempt(provenance=provenance), telemetry=ACCOUNT)
    told = Caution(kind="own", text="Of the steps.")
    return with_samples(
        RunMeasure(source="events", cautions=(told,)), made, tables(steps_of([SECOND] * 40) if steps is None else steps), samples
    )


def test_samples_become_figures_and_cautions_come_after_those_of_the_steps() -> None:
    passed_over = Caution(kind="damaged", text="A line was passed over.")
    found = taken(TelemetryTables(host=host_samples(), cautions=(passed_over,)))
    assert found.telemetry is not None and found.by_host == ()
    assert [one.kind for one in found.cautions][:2] == ["own", "damaged"]


def test_the_number_of_processors_of_one_host_is_the_runs_and_of_many_each_one_s_own() -> None:
    alone = taken(TelemetryTables(host=host_samples()), provenance=Provenance(fingerprint="f0", cpu_count=4))
    assert [cause.numbers["cores"] for cause in alone.uneven] == [4]
    facts = {"node1": {"cpu_count": "8"}, "node2": {"cpu_count": "many"}, "node3": {}, "node4": {"cpu_count": "0"}}
    many = taken(TelemetryTables(host=host_samples(), hosts=("node1",)), provenance=Provenance(fingerprint="f0", cpu_count=4, hosts=facts))
    assert [cause.numbers["cores"] for cause in many.uneven] == [8]
    assert [one.host for one in many.by_host] == ["node1"]


def test_samples_of_a_clock_that_was_set_meanwhile_are_not_laid_beside_the_steps() -> None:
    steps = steps_of([SECOND] * 40)
    jumped = steps.with_columns(t=pl.when(pl.col("step") >= 20).then(pl.col("t") + 3600.0).otherwise(pl.col("t")))
    samples = TelemetryTables(host=host_samples(), hosts=("node1",))
    assert taken(samples, steps=steps).by_host and not taken(samples, steps=jumped).by_host
    assert taken(samples, steps=jumped).uneven == ()


def test_figures_and_causes_are_those_of_the_window() -> None:
    """The host was busy after the window only, and the rank that is slow in it is a cause."""
    window = Window(first_step=5, last_step=20, n=16, warmup_steps=5)
    slow = Straggler(verdict=StragglerVerdict.NAMED, reason="", rank=1, score=0.25, phase="fwd", n=16, first_step=5, last_step=20)
    late = host_samples().with_columns(cpu_user_pct=pl.when(pl.col("epoch_sec") > STARTED_T + 30).then(95.0).otherwise(5.0))
    made = replace(attempt(provenance=Provenance(fingerprint="f0", cpu_count=4)), telemetry=ACCOUNT)
    measure = RunMeasure(source="events", window=window, straggler=slow)
    found = with_samples(measure, made, tables(steps_of([SECOND] * 40)), TelemetryTables(host=late))
    assert found.telemetry["host_cpu_busy_mean_pct"] == 9.0
    assert [cause.kind for cause in found.uneven] == ["slow_rank"]
