"""Of which runs samples and spans are kept, so that a page of very many runs can still be opened and sent.

In: CampaignResults whose runs have something to draw. Out: the runs whose timeline goes into charts/*.csv. All of them where they are few:
then each run's detail is limited already. Of many, first the winner's, then those that a finding names, then of every group the first
repeat, the second, and so on, until there is room for no more; repeats that do not all fit are taken evenly over the groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from seatrial.records.charts import SPANS, TELEMETRY
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.verdict import Verdict
from seatrial.report.digest.labels import labels_of

TIMELINE = (TELEMETRY, SPANS)
FEW_RUNS = 500
MOST_ROWS, LEAST_ROWS = 270_000, 20_000
TAKEN_BY_A_RUN = 50
"""Rows of both tables; each is some 18 bytes of a page, and a run's steps, quantiles and ranks take the room of so many. A thousand runs
with 8 points of a metric and the spans of a usual run fit; a page of five thousand is still below 10 MB."""


def timeline_runs(results: CampaignResults) -> frozenset[str]:
    """The folders of the attempts."""
    drawn = [run for run in results.runs if _rows(run)]
    if len(drawn) <= FEW_RUNS:
        return frozenset(run.attempt.folder for run in drawn)
    return frozenset(run.attempt.folder for run in _chosen(_by_level(results, drawn), room_for(len(drawn))))


def room_for(runs: int) -> int:
    """Rows of the timelines of so many runs."""
    return max(LEAST_ROWS, MOST_ROWS - TAKEN_BY_A_RUN * runs)


def runs_in_time(results: CampaignResults) -> int:
    """How many runs have samples or spans, kept or not."""
    return sum(_rows(run) > 0 for run in results.runs)


def _rows(run: MeasuredRun) -> int:
    """Of its timeline; 0 for an attempt that does not count."""
    if not run.attempt.current or run.charts is None:
        return 0
    return sum(len(next(iter(table.values()))) for name in TIMELINE if (table := run.charts.tables.get(name)))


def _chosen(levels: list[list[MeasuredRun]], room: int) -> Iterator[MeasuredRun]:
    for level in levels:
        needed = sum(map(_rows, level))
        fitting = min(len(level), len(level) * room // needed)
        for at in range(fitting):
            run = level[at * len(level) // fitting]
            room -= _rows(run)
            # Runs differ in length, so that as many as fit by their mean may still be too many.
            if room < 0:
                return
            yield run
        if fitting < len(level):
            return


def _by_level(results: CampaignResults, runs: list[MeasuredRun]) -> list[list[MeasuredRun]]:
    """The runs by how much they are looked at, each once."""
    labels, named, seen = labels_of(results), _named(results), Counter[str]()
    levels: dict[int, list[MeasuredRun]] = {}
    for run in runs:
        label, group = labels.run(run.attempt.spec), labels.group(run.attempt.spec)
        level = 0 if group == results.ranking.winner else 1 if named & {label, group, run.attempt.spec.run} else 2 + seen[group]
        seen[group] += 1
        levels.setdefault(level, []).append(run)
    return [levels[level] for level in sorted(levels)]


def _named(results: CampaignResults) -> set[str]:
    """What findings that do not hold are about."""
    found = (*results.verdict.findings, *results.verdict.statements)
    return {evidence.subject for finding in found if finding.verdict is Verdict.FAIL for evidence in finding.evidence}
