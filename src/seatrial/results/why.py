"""The evidence of a finding, and the same finding recomputed from the raw files.

In: a campaign's folder. Out: its verdict from verdict.json (recomputed where there is none), a finding by its id, each of its numbers with
its raw files; and where the recomputed finding differs, in numbers: sentences may be those of another version. Nothing is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from seatrial.collect.attempts import read_campaign
from seatrial.core.errors import SeatrialError, UsageError, nearest
from seatrial.core.files import read_json
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.core.tables import format_cell, read_table
from seatrial.history.rows import history_path
from seatrial.judge.cross_run_criteria import baseline_file
from seatrial.judge.explain import RawKind, compares_groups, how_computed, is_reported_by_workload, raw_kinds
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Scalar
from seatrial.records.codec import from_json_or_none
from seatrial.records.results import CampaignResults
from seatrial.records.run_table import qualified_name
from seatrial.records.verdict import CAMPAIGN, CampaignVerdict, Evidence, Finding
from seatrial.report.finding_text import TracedNumber
from seatrial.report.tables import group_rows, per_run_rows, ranked_rows
from seatrial.results.folders import find_campaign
from seatrial.results.gather import require_plans
from seatrial.results.recompute import gather_results


@dataclass(frozen=True, kw_only=True)
class RecordedVerdict:
    """A verdict, and whether it was read from verdict.json or recomputed."""

    verdict: CampaignVerdict
    on_disk: bool

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*self.verdict.findings, *self.verdict.statements)


def read_verdict(paths: CampaignPaths) -> RecordedVerdict:
    """The recorded verdict; recomputed where verdict.json is missing or damaged."""
    read = from_json_or_none(CampaignVerdict, read_json(paths.verdict))
    if read is not None:
        return RecordedVerdict(verdict=read, on_disk=True)
    return RecordedVerdict(verdict=gather_results(paths).verdict, on_disk=False)


def find_finding(findings: Sequence[Finding], wanted: str) -> Finding:
    """The finding with that id, number, or unambiguous beginning of an id; a UsageError names the nearest."""
    exact = [finding for finding in findings if finding.id == wanted or (finding.criterion and finding.id.split("-")[0] == wanted)]
    begins = exact or [finding for finding in findings if wanted and finding.id.startswith(wanted)]
    if len(begins) == 1:
        return begins[0]
    if begins:
        raise UsageError(f"'{wanted}' begins {len(begins)} ids; write more of one:{_one_a_line(begins)}")
    close = nearest(wanted, [finding.id for finding in findings])
    meant = f"did you mean '{close}'? All findings:" if close else "all findings:"
    raise UsageError(f"there is no finding '{wanted}'; {meant}{_one_a_line(findings)}")


def _one_a_line(findings: Sequence[Finding]) -> str:
    return "".join(f"\n  {finding.id}" for finding in findings)


def trace(paths: CampaignPaths, finding: Finding) -> list[TracedNumber]:
    """Every number that the finding and its advice are based on."""
    current = [attempt for attempt in read_campaign(paths, require_plans(paths).plans) if attempt.current]
    advice_evidence = [evidence for advice in finding.advice for evidence in advice.evidence]
    reported = is_reported_by_workload(finding)
    own = [_traced(paths, finding, evidence, current, from_its_file=reported) for evidence in finding.evidence]
    return [*own, *(_traced(paths, finding, evidence, current, from_its_file=True) for evidence in advice_evidence)]


def _traced(
    paths: CampaignPaths, finding: Finding, evidence: Evidence, current: Sequence[Attempt], *, from_its_file: bool = False
) -> TracedNumber:
    """`from_its_file`: the number comes from the file that the evidence names, if that exists."""
    kinds = raw_kinds(finding, evidence)
    named = named_files(paths.folder, evidence.file)
    subjects = [] if named and from_its_file else [_files(_attempts_of(one, current), kinds) for one in subjects_of(finding, evidence)]
    # By turns, so that the first few show every subject.
    turns = chain.from_iterable(zip_longest(*subjects, _baseline_files(finding, evidence, kinds)))
    files = [file for file in (*named, *turns) if file is not None and file.is_file()]
    relative = (str(file.relative_to(paths.folder)) if file.is_relative_to(paths.folder) else str(file) for file in files)
    return TracedNumber(evidence=evidence, computed=how_computed(finding, evidence), raw=tuple(dict.fromkeys(relative)))


def subjects_of(finding: Finding, evidence: Evidence) -> list[str]:
    """Runs and groups whose files the number comes from: baseline and candidate of a comparison, all points of a scaling."""
    if not compares_groups(finding, evidence) or finding.criterion is None:
        return [evidence.subject]
    if finding.criterion.baseline is None:
        return list(dict.fromkeys(one.subject for one in finding.evidence))
    baseline = finding.criterion.baseline
    return [evidence.subject, *([] if baseline.campaign or baseline.history else [baseline.group])]


def _baseline_files(finding: Finding, evidence: Evidence, kinds: Sequence[RawKind]) -> list[Path]:
    """Files of a baseline outside this folder: raw files of another campaign's group, or the history file."""
    baseline = finding.criterion.baseline if finding.criterion else None
    if baseline is None or not (baseline.campaign or baseline.history):
        return []
    own = next((one for one in finding.evidence if one.file == baseline_file(baseline)), None)
    if not compares_groups(finding, evidence) and evidence is not own:
        return []
    if baseline.history:
        return [history_path()]
    group = own.subject.rpartition(":")[2] if own else baseline.group
    try:
        other = CampaignPaths(find_campaign(Path(baseline.campaign)))
        attempts = [attempt for attempt in read_campaign(other, require_plans(other).plans) if attempt.current]
    except SeatrialError:
        return []
    return _files(_attempts_of(group, attempts), kinds)


def named_files(folder: Path, file: str) -> list[Path]:
    """Files of an attempt that an evidence names, for example as `events_rank*.jsonl`; none for a table, or a path outside."""
    path = Path(file)
    if len(path.parts) < 2 or path.is_absolute() or ".." in path.parts:
        return []
    return sorted((folder / path.parent).glob(path.name))


def _attempts_of(subject: str, current: Sequence[Attempt]) -> list[Attempt]:
    """The attempts of a run, a group or the whole campaign; [] for a baseline from elsewhere."""
    if subject == CAMPAIGN:
        return list(current)
    one = [attempt for attempt in current if attempt.spec.run == subject]
    return one or [attempt for attempt in current if subject in (attempt.spec.group, qualified_name(attempt.spec.group, attempt.spec.key))]


def _files(attempts: Sequence[Attempt], kinds: Sequence[RawKind]) -> list[Path]:
    return [file for attempt in attempts for kind in kinds for file in _raw_files(AttemptPaths(Path(attempt.folder)), kind)]


def _raw_files(attempt: AttemptPaths, kind: RawKind) -> list[Path]:
    wanted = {
        RawKind.STEPS: attempt.all_events() or [attempt.launcher_log, attempt.train_log],
        RawKind.TELEMETRY: [attempt.gpu_telemetry, attempt.host_telemetry],
        RawKind.OUTCOME: [attempt.outcome],
        RawKind.LOG: [attempt.launcher_log],
        RawKind.SETTINGS: [attempt.environment, attempt.spec],
    }
    return [file for file in wanted[kind] if file.is_file()]


# The same files and the same code give the same number, up to rounding.
TOLERANCE = 1e-9
PATH_COLUMNS = ("run_dir", "train_log", "launcher_log")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_STEPS = re.compile(r"steps (\d+–\d+)")


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """A finding recomputed from the raw files (None where it does not follow from them), and its differences from the recorded one."""

    finding: Finding | None
    differences: tuple[str, ...]
    runs: int
    """Number of runs whose files were read again."""


def recompute_finding(paths: CampaignPaths, recorded: Finding) -> Recomputed:
    """Measure, group, rank and judge again from the raw files, and compare the finding and the rows it names with the result."""
    # With the option that the checked report was written with.
    summary = read_json(paths.summary_json)
    ranking = summary.get("ranking") if isinstance(summary, dict) else None
    allowed = isinstance(ranking, dict) and ranking.get("allow_confounded") is True
    results = gather_results(paths, allow_confounded=allowed)
    verdict = results.verdict
    found = next((finding for finding in (*verdict.findings, *verdict.statements) if finding.id == recorded.id), None)
    differences = list(finding_differences(recorded, found)) if found else [f"Finding '{recorded.id}' does not follow from the runs' files"]
    differences += _table_differences(paths, results, recorded)
    return Recomputed(finding=found, differences=tuple(dict.fromkeys(differences)), runs=sum(run.attempt.current for run in results.runs))


def finding_differences(recorded: Finding, found: Finding) -> Iterator[str]:
    if recorded.verdict is not found.verdict:
        yield f"verdict: recorded {recorded.verdict.value}, recomputed: {found.verdict.value}"
    if not recorded.evidence and not found.evidence and _NUMBER.findall(recorded.text) != _NUMBER.findall(found.text):
        yield f"text: recorded '{recorded.text}', recomputed: '{found.text}'"
    before = {(evidence.subject, evidence.name): evidence for evidence in recorded.evidence}
    now = {(evidence.subject, evidence.name): evidence for evidence in found.evidence}
    # A new number contradicts no recorded one.
    for key in before:
        what = " ".join(part for part in key if part)
        if key not in now:
            yield f"{what}: no longer there"
            continue
        for field, old, new in _fields(before[key], now[key]):
            if not _is_same(old, new):
                yield f"{what}, {field}: recorded {_shown(old)}, recomputed: {_shown(new)}"


def _fields(before: Evidence, now: Evidence) -> Iterator[tuple[str, Scalar, Scalar]]:
    """Fields that must be equal; of a window only the steps, where both have them: its text may be another version's."""
    yield "value", before.value, now.value
    yield "unit", before.unit, now.unit
    yield "n", before.n, now.n
    spans = [_STEPS.findall(evidence.window) for evidence in (before, now)]
    if all(spans) and spans[0] != spans[1]:
        yield "window", before.window, now.window


def _is_same(old: Scalar, new: Scalar) -> bool:
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return old == new


def _shown(value: Scalar) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _table_differences(paths: CampaignPaths, results: CampaignResults, recorded: Finding) -> Iterator[str]:
    """Cells of the finding's tables that differ from the recomputed ones: edited by hand, or outdated."""
    named = {evidence.file for evidence in recorded.evidence}
    subjects = {evidence.subject for evidence in recorded.evidence}
    tables = (
        (paths.per_run_metrics, "run", per_run_rows),
        (paths.group_summary, "group", group_rows),
        (paths.ranked_groups, "group", ranked_rows),
    )
    for path, key, rows_of in tables:
        if path.name in named:
            computed = {str(row[key]): row for row in rows_of(results)}
            for row in read_table(path):
                if row.get(key, "") in subjects & set(computed):
                    yield from _cell_differences(path.name, row, computed[row[key]], key)


def _cell_differences(table: str, on_disk: dict[str, str], computed: dict[str, Scalar], key: str) -> Iterator[str]:
    for column, text in on_disk.items():
        # Paths change when the folder is moved.
        if column in PATH_COLUMNS or column not in computed:
            continue
        now = format_cell(computed[column], column)
        if text != now:
            yield f"{table}, {on_disk[key]}, {column}: the table has '{text}', recomputed: '{now}'"
