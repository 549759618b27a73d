"""A statement of a verdict made again from what the runs wrote, and held against what was said.

In: a campaign's folder and a finding. Out: the same finding as the raw files give it now, and where the two differ, in numbers: words may
be those of another version. Nothing is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.campaign.results import gather_results
from seatrial.paths import CampaignPaths
from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Evidence, Finding
from seatrial.report.rows import group_rows, per_run_rows, ranked_rows
from seatrial.tables import format_cell, read_table

# Beyond rounding, a number made again from the same files by the same code is the same.
SAME_WITHIN = 1e-9
PART_OF_A_FOLDER = ("run_dir", "train_log", "launcher_log")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_STEPS = re.compile(r"steps (\d+–\d+)")


@dataclass(frozen=True, kw_only=True)
class Remade:
    """The finding as the raw files give it now, and where that differs from what was said; None where they give no such finding."""

    finding: Finding | None
    differences: tuple[str, ...]
    runs: int
    """Runs whose files were read again."""


def remake_finding(paths: CampaignPaths, said: Finding) -> Remade:
    """Measure, group, rank and judge again from what the runs wrote, and hold the finding, and the rows it names, against that."""
    results = gather_results(paths)
    verdict = results.verdict
    found = next((finding for finding in (*verdict.findings, *verdict.statements) if finding.id == said.id), None)
    differences = list(_differences(said, found)) if found else [f"the runs' files give no finding '{said.id}' any more"]
    differences += _table_differences(paths, results, said)
    return Remade(finding=found, differences=tuple(dict.fromkeys(differences)), runs=sum(run.attempt.current for run in results.runs))


def _differences(said: Finding, found: Finding) -> Iterator[str]:
    if said.verdict is not found.verdict:
        yield f"verdict: said {said.verdict.value}, the files give {found.verdict.value}"
    if not said.evidence and not found.evidence and _NUMBER.findall(said.text) != _NUMBER.findall(found.text):
        yield f"text: said '{said.text}', the files give '{found.text}'"
    before = {(evidence.subject, evidence.name): evidence for evidence in said.evidence}
    now = {(evidence.subject, evidence.name): evidence for evidence in found.evidence}
    # A number that was not said before contradicts nothing.
    for key in before:
        what = " ".join(part for part in key if part)
        if key not in now:
            yield f"{what}: no longer there"
            continue
        for field, old, new in _fields(before[key], now[key]):
            if not _is_same(old, new):
                yield f"{what}, {field}: said {_shown(old)}, the files give {_shown(new)}"


def _fields(before: Evidence, now: Evidence) -> Iterator[tuple[str, Cell, Cell]]:
    """What must be the same. Of a window the steps, where both tell them: its words may be those of another version."""
    yield "value", before.value, now.value
    yield "unit", before.unit, now.unit
    yield "n", before.n, now.n
    spans = [_STEPS.findall(evidence.window) for evidence in (before, now)]
    if all(spans) and spans[0] != spans[1]:
        yield "window", before.window, now.window


def _is_same(old: Cell, new: Cell) -> bool:
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return math.isclose(old, new, rel_tol=SAME_WITHIN, abs_tol=SAME_WITHIN)
    return old == new


def _shown(value: Cell) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _table_differences(paths: CampaignPaths, results: CampaignResults, said: Finding) -> Iterator[str]:
    """Cells of the tables that the finding names which are other than the runs' files give: edited by hand, or left from before."""
    named = {evidence.file for evidence in said.evidence}
    subjects = {evidence.subject for evidence in said.evidence}
    tables = (
        (paths.per_run_metrics, "run", per_run_rows),
        (paths.group_summary, "group", group_rows),
        (paths.ranked_groups, "group", ranked_rows),
    )
    for path, key, make_rows in tables:
        if path.name in named:
            made = {str(row[key]): row for row in make_rows(results)}
            for row in read_table(path):
                if row.get(key, "") in subjects & set(made):
                    yield from _cell_differences(path.name, row, made[row[key]], key)


def _cell_differences(table: str, on_disk: dict[str, str], made: dict[str, Cell], key: str) -> Iterator[str]:
    for column, text in on_disk.items():
        # Paths change with the folder, and that a folder was moved is no fault of its numbers.
        if column in PART_OF_A_FOLDER or column not in made:
            continue
        anew = format_cell(made[column], column)
        if text != anew:
            yield f"{table}, {on_disk[key]}, {column}: the table has '{text}', the runs' files give '{anew}'"
