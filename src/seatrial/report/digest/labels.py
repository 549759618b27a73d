"""What runs and groups are called in charts and in summary.json: no two of them alike.

In: CampaignResults. Out: `Labels`. Several plans may share a folder and give one name to two configurations. A group then has digits of its
key behind its name (analyse.groups); a run whose name another configuration's run carries too gets the same ones: `mb16_r1~427b`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults
from seatrial.records.run_spec import RunSpec
from seatrial.run_table.told_apart import told_apart


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Of the runs that plans ask for now."""

    groups: dict[str, str]
    """By key."""
    runs: dict[tuple[Cell, Cell], str]
    """By the run's own name and its group's label."""

    def group(self, spec: RunSpec) -> str:
        return _group(spec, self.groups)

    def run(self, spec: RunSpec) -> str:
        return self.runs.get((spec.run, self.group(spec)), spec.run)

    def whose(self, spec: RunSpec) -> tuple[Cell, ...]:
        """The cells of records.charts.WHOSE."""
        return self.run(spec), self.group(spec), spec.repeat

    def labelled(self, rows: Iterable[dict[str, Cell]]) -> list[dict[str, Cell]]:
        """Rows of report.rows, whose groups are told apart already, with their runs told apart too."""
        return [{**row, "run": self.runs.get((row["run"], row["group"]), row["run"])} for row in rows]


def labels_of(results: CampaignResults) -> Labels:
    """The labels of a campaign."""
    specs = {(run.attempt.spec.run, run.attempt.spec.key): run.attempt.spec for run in results.runs if run.attempt.current}
    groups = {group.group_key: group.group for group in results.groups}
    uses = Counter(run for run, _ in specs)
    runs: dict[tuple[Cell, Cell], str] = {
        (spec.run, _group(spec, groups)): _run(spec, groups) if uses[spec.run] > 1 else spec.run for spec in specs.values()
    }
    return Labels(groups=groups, runs=runs)


def _group(spec: RunSpec, groups: dict[str, str]) -> str:
    return groups.get(spec.key, spec.group)


def _run(spec: RunSpec, groups: dict[str, str]) -> str:
    label = _group(spec, groups)
    # Groups with names of their own may still make one name of it with their repeats.
    digits = label.removeprefix(spec.group) if label.startswith(spec.group) else ""
    return f"{spec.run}{digits}" if digits else told_apart(spec.run, spec.key)
