"""The metrics of criteria read fields that the records have."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.records.criteria_catalog import EVERY_RUN, METRICS, SCOPES
from seatrial.records.measure import GroupSummary, RunMeasure

RUN_FIELDS = {field.name for field in dataclasses.fields(RunMeasure)}
GROUP_FIELDS = {field.name for field in dataclasses.fields(GroupSummary)}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_reads_fields_that_are_there(name: str) -> None:
    entry = METRICS[name]
    assert entry.default_scope in entry.scopes
    assert set(entry.scopes) <= set(SCOPES)
    assert (EVERY_RUN in entry.scopes) == (entry.run_field is not None)
    assert (set(entry.scopes) != {EVERY_RUN}) == (entry.group_field is not None)
    assert entry.run_field is None or entry.run_field.split(".")[0] in RUN_FIELDS
    assert entry.group_field is None or entry.group_field.split(".")[0] in GROUP_FIELDS
