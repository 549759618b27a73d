"""From a statement of a verdict back to the files it was made of, and the same statement made again from them.

In: a campaign's folder. Out: the verdict as it lies in verdict.json (as the raw files give it, where there is none), one finding of it by
its id, every number of that with the raw files behind it, and what differs when all is computed anew. Nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.campaign.grouped import plans_of
from seatrial.campaign.results import gather_results
from seatrial.collect.attempts import read_campaign
from seatrial.errors import UsageError, did_you_mean
from seatrial.files import read_json
from seatrial.judge.computed import Raw, how_computed, raw_kinds
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.codec import described
from seatrial.records.criteria_catalog import CAMPAIGN
from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import CampaignVerdict, Evidence, Finding
from seatrial.report.rows import group_rows, per_run_rows, ranked_rows
from seatrial.tables import format_cell, read_table

# Beyond rounding, a number made again from the same files by the same code is the same.
SAME_WITHIN = 1e-9
PART_OF_A_FOLDER = ("run_dir", "train_log", "launcher_log")


@dataclass(frozen=True, kw_only=True)
class Stated:
    """A verdict, and whether it was read from verdict.json or had to be made."""

    verdict: CampaignVerdict
    on_disk: bool

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*self.verdict.findings, *self.verdict.statements)


@dataclass(frozen=True, kw_only=True)
class TracedNumber:
    """One number, how it is computed, and the files it was made of, as seen from the campaign's folder."""

    evidence: Evidence
    computed: str
    raw: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Remade:
    """The finding as the raw files give it now, and where that differs from what was said; None where they give no such finding."""

    finding: Finding | None
    differences: tuple[str, ...]
    runs: int
    """Runs whose files were read again."""


def stated(paths: CampaignPaths) -> Stated:
    """What was said of the campaign; made from its runs where verdict.json is missing or damaged."""
    read = described(CampaignVerdict, read_json(paths.verdict))
    if read is not None:
        return Stated(verdict=read, on_disk=True)
    return Stated(verdict=gather_results(paths).verdict, on_disk=False)


def find(findings: Sequence[Finding], wanted: str) -> Finding:
    """By id, by its number, or by the beginning of an id where that is enough; a UsageError that names the nearest."""
    exact = [finding for finding in findings if finding.id == wanted or finding.id.split("-")[0] == wanted]
    begins = exact or [finding for finding in findings if wanted and finding.id.startswith(wanted)]
    if len(begins) == 1:
        return begins[0]
    if begins:
        raise UsageError(f"'{wanted}' begins {len(begins)} ids: {', '.join(finding.id for finding in begins)}; write more of one")
    raise UsageError(f"there is no finding '{wanted}': {did_you_mean(wanted, [finding.id for finding in findings])}")


def trace(paths: CampaignPaths, finding: Finding) -> list[TracedNumber]:
    """Every number that the finding rests on, its advice's too."""
    current = [attempt for attempt in read_campaign(paths, plans_of(paths).plans) if attempt.current]
    of_advice = [evidence for advice in finding.advice for evidence in advice.evidence]
    own = [_traced(paths, finding, evidence, current) for evidence in finding.evidence]
    return [*own, *(_traced(paths, finding, evidence, current, from_its_file=True) for evidence in of_advice)]


def _traced(
    paths: CampaignPaths, finding: Finding, evidence: Evidence, current: Sequence[Attempt], *, from_its_file: bool = False
) -> TracedNumber:
    """`from_its_file`: what was seen in one file needs no other, where that one is there."""
    kinds = raw_kinds(finding, evidence)
    behind = [AttemptPaths(Path(attempt.folder)) for attempt in _behind(evidence.subject, current)]
    named = _named_files(paths.folder, evidence.file)
    others = [] if named and from_its_file else [file for attempt in behind for kind in kinds for file in _raw_files(attempt, kind)]
    shown = dict.fromkeys(str(file.relative_to(paths.folder)) for file in (*named, *others) if file.is_file())
    return TracedNumber(evidence=evidence, computed=how_computed(finding, evidence), raw=tuple(shown))


def _named_files(folder: Path, file: str) -> list[Path]:
    """The files of an attempt that an evidence names, which may be `events_rank*.jsonl`; none for a table, or a place outside."""
    path = Path(file)
    if len(path.parts) < 2 or path.is_absolute() or ".." in path.parts:
        return []
    return sorted((folder / path.parent).glob(path.name))


def _behind(subject: str, current: Sequence[Attempt]) -> list[Attempt]:
    """The attempts that a run, a group or the whole campaign stands for; [] for a side from elsewhere."""
    if subject == CAMPAIGN:
        return list(current)
    one = [attempt for attempt in current if attempt.spec.run == subject]
    return one or [attempt for attempt in current if subject in (attempt.spec.group, _unique_name(attempt))]


def _unique_name(attempt: Attempt) -> str:
    from seatrial.analyse.groups import KEY_DIGITS

    return f"{attempt.spec.group}~{attempt.spec.group_key[:KEY_DIGITS]}"


def _raw_files(attempt: AttemptPaths, kind: Raw) -> list[Path]:
    """Those of a kind that are there."""
    wanted = {
        Raw.STEPS: attempt.all_events() or [attempt.launcher_log, attempt.train_log],
        Raw.TELEMETRY: [attempt.gpu_telemetry, attempt.host_telemetry],
        Raw.OUTCOME: [attempt.outcome],
        Raw.LOG: [attempt.launcher_log],
        Raw.SETTINGS: [attempt.environment, attempt.spec],
    }
    return [file for file in wanted[kind] if file.is_file()]


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
    if not said.evidence and not found.evidence and said.text != found.text:
        yield f"text: said '{said.text}', the files give '{found.text}'"
    before = {(evidence.subject, evidence.name): evidence for evidence in said.evidence}
    now = {(evidence.subject, evidence.name): evidence for evidence in found.evidence}
    for key in dict.fromkeys([*before, *now]):
        what = " ".join(part for part in key if part)
        if key not in before or key not in now:
            yield f"{what}: {'not said before' if key not in before else 'no longer there'}"
            continue
        for field in ("value", "window", "n"):
            old, new = getattr(before[key], field), getattr(now[key], field)
            if not _is_same(old, new):
                yield f"{what}, {field}: said {_shown(old)}, the files give {_shown(new)}"


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
