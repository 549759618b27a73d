"""The smoke records in summary.md."""

from __future__ import annotations

import dataclasses

from seatrial.records.results import CampaignResults
from seatrial.report.digest.smoke import EXPLAINED, MOST_RECORDS, SMOKE
from seatrial.report.markdown.smoke import smoke_section
from tests.unit.report import factory


def smoke(count: int) -> CampaignResults:
    """So many runs of a smoke plan."""
    runs = []
    for at in range(count):
        run = factory.measured("mb16_nw2", 1)
        spec = dataclasses.replace(run.attempt.spec, run=f"smoke_r{at}", mode=SMOKE)
        runs.append(dataclasses.replace(run, attempt=dataclasses.replace(run.attempt, spec=spec)))
    return factory.results(runs=tuple(runs))


def test_nothing_where_no_run_has_such_a_record() -> None:
    assert list(smoke_section(factory.results())) == [] and list(smoke_section(factory.empty_results())) == []


def test_a_column_a_run_and_a_row_a_name() -> None:
    heading, table, explained = smoke_section(smoke(2))
    assert (heading, explained) == ("## Smoke record", EXPLAINED)
    assert table.splitlines()[0] == "|  | smoke_r0 | smoke_r1 |" and "| outcome | ok | ok |" in table.splitlines()


def test_of_many_runs_the_first_are_shown() -> None:
    _, table, left_out, _ = smoke_section(smoke(MOST_RECORDS + 2))
    assert table.splitlines()[0].count("smoke_r") == MOST_RECORDS and left_out == "2 more runs are left out here: `summary.json` has them."
