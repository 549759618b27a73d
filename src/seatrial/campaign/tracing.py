"""From a statement of a verdict back to the files it was made of.

In: a campaign's folder. Out: the verdict as it lies in verdict.json (as the raw files give it, where there is none), one finding of it by
its id, and every number of that with the raw files behind it. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from seatrial.campaign.grouped import plans_of
from seatrial.campaign.original import campaign_of
from seatrial.campaign.results import gather_results
from seatrial.collect.attempts import read_campaign
from seatrial.errors import SeatrialError, UsageError, nearest
from seatrial.files import read_json
from seatrial.history.rows import history_path
from seatrial.judge.compared import baseline_file
from seatrial.judge.computed import Raw, how_computed, is_as_told, is_of_two, raw_kinds
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.codec import described
from seatrial.records.criteria_catalog import CAMPAIGN
from seatrial.records.verdict import CampaignVerdict, Evidence, Finding
from seatrial.run_table.told_apart import told_apart


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


def stated(paths: CampaignPaths) -> Stated:
    """What was said of the campaign; made from its runs where verdict.json is missing or damaged."""
    read = described(CampaignVerdict, read_json(paths.verdict))
    if read is not None:
        return Stated(verdict=read, on_disk=True)
    return Stated(verdict=gather_results(paths).verdict, on_disk=False)


def find(findings: Sequence[Finding], wanted: str) -> Finding:
    """By id, by its number, or by the beginning of an id where that is enough; a UsageError that names the nearest."""
    exact = [finding for finding in findings if finding.id == wanted or (finding.criterion and finding.id.split("-")[0] == wanted)]
    begins = exact or [finding for finding in findings if wanted and finding.id.startswith(wanted)]
    if len(begins) == 1:
        return begins[0]
    if begins:
        raise UsageError(f"'{wanted}' begins {len(begins)} ids; write more of one:{_one_a_line(begins)}")
    close = nearest(wanted, [finding.id for finding in findings])
    meant = f"did you mean '{close}'? All there are:" if close else "these are there:"
    raise UsageError(f"there is no finding '{wanted}'; {meant}{_one_a_line(findings)}")


def _one_a_line(findings: Sequence[Finding]) -> str:
    return "".join(f"\n  {finding.id}" for finding in findings)


def trace(paths: CampaignPaths, finding: Finding) -> list[TracedNumber]:
    """Every number that the finding rests on, its advice's too."""
    current = [attempt for attempt in read_campaign(paths, plans_of(paths).plans) if attempt.current]
    of_advice = [evidence for advice in finding.advice for evidence in advice.evidence]
    told = is_as_told(finding)
    own = [_traced(paths, finding, evidence, current, from_its_file=told) for evidence in finding.evidence]
    return [*own, *(_traced(paths, finding, evidence, current, from_its_file=True) for evidence in of_advice)]


def _traced(
    paths: CampaignPaths, finding: Finding, evidence: Evidence, current: Sequence[Attempt], *, from_its_file: bool = False
) -> TracedNumber:
    """`from_its_file`: what was seen in one file needs no other, where that one is there."""
    kinds = raw_kinds(finding, evidence)
    named = _named_files(paths.folder, evidence.file)
    sides = [] if named and from_its_file else [_files(_behind(one, current), kinds) for one in _subjects(finding, evidence)]
    # By turns, so that the first few show every side.
    turns = chain.from_iterable(zip_longest(*sides, _files_elsewhere(finding, evidence, kinds)))
    files = [file for file in (*named, *turns) if file is not None and file.is_file()]
    shown = tuple(dict.fromkeys(_seen_from(paths.folder, file) for file in files))
    return TracedNumber(evidence=evidence, computed=how_computed(finding, evidence), raw=shown)


def _subjects(finding: Finding, evidence: Evidence) -> list[str]:
    """The runs and groups whose files the number was made of: a comparison's are those of both sides, a scaling's of all points."""
    if not is_of_two(finding, evidence) or finding.criterion is None:
        return [evidence.subject]
    if finding.criterion.baseline is None:
        return list(dict.fromkeys(one.subject for one in finding.evidence))
    baseline = finding.criterion.baseline
    return [evidence.subject, *([] if baseline.campaign or baseline.history else [baseline.group])]


def _files_elsewhere(finding: Finding, evidence: Evidence, kinds: Sequence[Raw]) -> list[Path]:
    """Those of a baseline outside this folder: the raw files of another campaign's group, or the file of history that has its row."""
    baseline = finding.criterion.baseline if finding.criterion else None
    if baseline is None or not (baseline.campaign or baseline.history):
        return []
    side = next((one for one in finding.evidence if one.file == baseline_file(baseline)), None)
    if not is_of_two(finding, evidence) and evidence is not side:
        return []
    if baseline.history:
        return [history_path()]
    group = side.subject.rpartition(":")[2] if side else baseline.group
    try:
        other = CampaignPaths(campaign_of(Path(baseline.campaign)))
        attempts = [attempt for attempt in read_campaign(other, plans_of(other).plans) if attempt.current]
    except SeatrialError:
        return []
    return _files(_behind(group, attempts), kinds)


def _seen_from(folder: Path, file: Path) -> str:
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


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


def _files(attempts: Sequence[Attempt], kinds: Sequence[Raw]) -> list[Path]:
    return [file for attempt in attempts for kind in kinds for file in _raw_files(AttemptPaths(Path(attempt.folder)), kind)]


def _unique_name(attempt: Attempt) -> str:
    return told_apart(attempt.spec.group, attempt.spec.key)


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
