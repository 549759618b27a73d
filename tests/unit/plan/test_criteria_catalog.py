"""The metrics of criteria read fields that the records have."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.records.columns import GROUP_SEED, PER_RUN_SEED, TELEMETRY_FIGURES
from seatrial.records.criteria_catalog import CAMPAIGN, EVERY_RUN, METRICS, SCOPES, metric_entry
from seatrial.records.measure import GroupSummary, RunMeasure
from seatrial.records.stability import GroupStability
from seatrial.units import UNIT_KINDS

RUN_FIELDS = {field.name for field in dataclasses.fields(RunMeasure)}
GROUP_FIELDS = {field.name for field in dataclasses.fields(GroupSummary)}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_reads_fields_that_are_there(name: str) -> None:
    entry = METRICS[name]
    assert entry.default_scope in entry.scopes
    assert set(entry.scopes) <= set(SCOPES)
    assert (EVERY_RUN in entry.scopes) == (entry.run_field is not None)
    # What is compared, or counted over a campaign, is no field of a group.
    assert entry.group_field is not None or entry.compares or CAMPAIGN in entry.scopes or entry.scopes == (EVERY_RUN,)
    assert entry.run_field is None or entry.run_field.split(".")[0] in RUN_FIELDS
    assert entry.group_field is None or entry.group_field.split(".")[0] in GROUP_FIELDS


KEYS = {
    "seed": {*PER_RUN_SEED, *GROUP_SEED},
    "telemetry": set(TELEMETRY_FIGURES),
    "figures": {
        "samples_per_s",
        "tokens_per_s",
        "steps_per_s",
        "wall_p50_ms",
        "wall_p90_over_p50",
        "startup_s",
        "duration_s",
    },
    "stability": {field.name for field in dataclasses.fields(GroupStability)},
    "straggler": {"score"},
    "reported": set(METRICS),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_dotted_field_names_a_key_that_is_written(name: str) -> None:
    for dotted in (METRICS[name].run_field, METRICS[name].group_field):
        field, dot, key = (dotted or "").partition(".")
        assert not dot or key in KEYS[field], dotted


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_has_a_unit_unless_it_is_true_or_false(name: str) -> None:
    entry = METRICS[name]
    assert bool(entry.unit) == entry.needs_bound
    # A name that ends in its unit is in it.
    ending = {"ms": "ms", "s": "s", "pct": "%", "mib": "MiB", "min": "MiB/min"}.get(name.rpartition("_")[2])
    assert ending is None or entry.unit in (ending, "samples/s", "tokens/s", "steps/s")
    assert name.rpartition("_")[2] != "ratio" or entry.unit == "ratio"


def test_a_figure_of_the_workload_s_own_is_a_metric_too() -> None:
    entry = metric_entry("reported.rouge1")
    assert entry is not None and (entry.run_field, entry.scopes, entry.unit) == ("reported.rouge1", (EVERY_RUN,), "")
    assert metric_entry("reported.") is None and metric_entry("rouge1") is None
    assert metric_entry("failed_runs") is METRICS["failed_runs"]


def test_no_unit_is_of_two_kinds() -> None:
    units = [unit for kind in UNIT_KINDS for unit in kind]
    assert len(units) == len(set(units))
