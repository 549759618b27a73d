"""What both the page and the terminal say of a campaign, before either draws it.

In: CampaignResults. Out: standings (a group with its place), cautions merged, machines, the winners' sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seatrial import units
from seatrial.machine.fingerprint import make_of
from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.caution import Caution
from seatrial.records.command import Provenance
from seatrial.records.measure import Estimate, GroupSummary, RankedGroup
from seatrial.records.original_names import MADE_FROM
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.failures import WHAT_FITS
from seatrial.report.numbers import count, figure, margin
from seatrial.report.rows import counted_runs

# Sentences name this many runs or groups; tables and JSON have them all.
MOST_NAMED = 4
DEBUG_ON = "debug on"
LEADS, ALONE = "leads", "only group"
NOT_RUN, NOT_ENDED = "not run yet", "no run ended"
SHOWN_NOTES = {LEADS: "leads, not proven"}
"""Notes that say more to a reader than to a table."""
PAGE_NOT_DRAWN = "page_not_drawn"
"""The kind of caution of a report without its page."""
NOT_WRITTEN = "report_not_written"
"""The kind of caution of a report that a bad disk did not take; whoever prints the report says it in full."""
SHOWN_PACKAGES = ("torch", "deepspeed", "transformers")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One group and its place."""

    group: GroupSummary
    place: RankedGroup
    estimate: Estimate | None
    """The figure ranked by."""
    note: str
    """`winner`, `leads`, `tied`, `no interval`, `cannot win`, `off lane`, `not run yet`, or nothing."""

    @property
    def remarks(self) -> str:
        """The note, and what stands beside every figure that was measured so."""
        return ", ".join(part for part in (self.note, DEBUG_ON if self.group.debug else "") if part)

    @property
    def shown(self) -> str:
        """The remarks in a reader's words."""
        return self.remarks.replace(self.note, SHOWN_NOTES.get(self.note, self.note), 1)

    @property
    def is_first(self) -> bool:
        """The one that won, or would win as things stand."""
        return self.note in ("winner", LEADS, ALONE)

    @property
    def n(self) -> int | None:
        """What its figure rests on: the steps counted, of whole runs the runs; None where there is no figure."""
        return (self.group.window_n or self.group.runs) if self.place.value is not None else None

    @property
    def leads(self) -> bool:
        """The one the others are compared with: the best mean; a tie may still go to another."""
        return self.place.can_win and self.place.ratio is None and self.place.value is not None

    def mean(self, metric: str) -> float | None:
        found = self.group.figures.get(metric)
        return found.mean if found else None


@dataclass(frozen=True, kw_only=True)
class Warned:
    """One caution and all the runs or groups it speaks of."""

    kind: str
    text: str
    subjects: tuple[str, ...]


def standings(results: CampaignResults) -> list[Standing]:
    """The main lane in order, then what is off it; of each lane those last that have yet to start."""
    by_name = {group.group: group for group in (*results.not_started, *results.groups)}
    first = ALONE if _is_alone(results) else LEADS if not_proven(results) else "winner"
    return [
        Standing(
            group=group,
            place=place,
            estimate=group.figures.get(results.ranking.metric),
            note=_note(group, place, first if place.group == results.ranking.winner else "", off_lane=off_lane),
        )
        for off_lane, places in ((False, results.ranking.groups), (True, results.ranking.off_lane))
        for place in (*places, *_still_to_come(results, len(places), off_lane=off_lane))
        if (group := by_name.get(place.group))
    ]


def _still_to_come(results: CampaignResults, places: int, *, off_lane: bool) -> list[RankedGroup]:
    """Places, after those that there are, for groups that have not begun."""
    names = [group.group for group in results.not_started if group.lane != off_lane]
    return [RankedGroup(rank=rank, group=name, value=None, can_win=False, reason=NOT_RUN) for rank, name in enumerate(names, places + 1)]


def not_proven(results: CampaignResults) -> bool:
    """Whether the first place may yet go to another group: the data do not tell them apart, or runs are missing."""
    return bool(not results.ranking.decided or results.pending or _spoilt(results))


def _spoilt(results: CampaignResults) -> list[str]:
    return [run for group in results.groups if group.mode != SENTINEL for run in group.infrastructure_failures]


def groups_in_order(results: CampaignResults) -> list[GroupSummary]:
    """Best first, then what is off the lane, then what has no place."""
    placed = [standing.group for standing in standings(results)]
    named_already = {group.group_key for group in placed}
    return [*placed, *(group for group in results.groups if group.group_key not in named_already)]


def runs_by_group(results: CampaignResults) -> dict[str, list[MeasuredRun]]:
    """Group key → the runs that its figures are made of."""
    found: dict[str, list[MeasuredRun]] = {}
    for run in counted_runs(results):
        found.setdefault(run.attempt.spec.key, []).append(run)
    return found


def windows_text(runs: Iterable[MeasuredRun]) -> str:
    """The windows of a group's counted runs; most often they are one and the same."""
    windows = (run.measure.window for run in runs if run.measure and run.measure.window)
    spans = dict.fromkeys(f"{window.first_step}–{window.last_step}" for window in windows)
    return f"steps {named(list(spans))}" if spans else "whole run"


def _note(group: GroupSummary, place: RankedGroup, first: str, *, off_lane: bool) -> str:
    """`first` is what the one is called that stands first, '' for the others."""
    if not (group.runs or group.failed_runs or group.set_aside_runs or group.infrastructure_failures):
        return NOT_RUN if place.reason == NOT_RUN else NOT_ENDED
    if off_lane:
        return "off lane"
    if first:
        return first
    if not place.can_win:
        return "cannot win"
    if place.tied and not _is_proven(place):
        return "no interval"
    return "tied" if place.tied else ""


def _is_proven(place: RankedGroup) -> bool:
    """Whether the tie rests on an interval; the leader, whom the others are compared with, has no ratio of its own."""
    return place.ratio is None or place.ratio.low is not None


def origin(results: CampaignResults) -> str:
    """What the campaign was made of, where it is a translation; it heads the report."""
    return next((caution.text for caution in results.cautions if caution.kind == MADE_FROM), "")


def warnings(results: CampaignResults) -> list[Warned]:
    """The cautions for a reader who has read the head and the failures."""
    return [caution for caution in cautions(results) if caution.kind not in (MADE_FROM, WHAT_FITS, NOT_WRITTEN)]


def cautions(results: CampaignResults) -> list[Warned]:
    """Everything to be warned of, from the campaign down to its current runs; what is said of many is said once."""
    together: dict[tuple[str, str], dict[str, None]] = {}
    for caution, owner in _all_cautions(results):
        subject = caution.subject or owner
        together.setdefault((caution.kind, caution.text), {}).update({subject: None} if subject else {})
    return [Warned(kind=kind, text=text, subjects=tuple(subjects)) for (kind, text), subjects in together.items()]


def _all_cautions(results: CampaignResults) -> Iterable[tuple[Caution, str]]:
    yield from ((caution, "") for caution in (*results.cautions, *results.ranking.cautions))
    for group in results.groups:
        yield from ((caution, group.group) for caution in group.cautions)
    for run in results.runs:
        if run.attempt.current:
            # Figures of a run that failed count nowhere, so their cautions would only distract from its cause.
            of_measure = run.measure.cautions if run.measure and run.outcome is Outcome.OK else ()
            yield from ((caution, run.attempt.spec.run) for caution in (*run.attempt.cautions, *of_measure))


def machines(results: CampaignResults) -> list[tuple[str, int]]:
    """Each kind of machine and code in one line, with the number of current runs made on it; the most used first."""
    counts: dict[str, int] = {}
    for run in results.runs:
        if run.attempt.current:
            line = _machine(run.attempt.provenance)
            counts[line] = counts.get(line, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def _machine(provenance: Provenance) -> str:
    packages = [f"{name} {provenance.packages[name]}" for name in SHOWN_PACKAGES if name in provenance.packages]
    dirty = " with uncommitted changes" if provenance.git_dirty == "true" else ""
    parts = [
        _hosts(provenance),
        f"{provenance.gpu_name} (driver {provenance.driver_version or 'unknown'})" if provenance.gpu_name else "no GPU",
        f"{provenance.cpu or 'CPU'} × {provenance.cpu_count}" if provenance.cpu_count else provenance.cpu,
        units.format_bytes(provenance.memory_bytes) if provenance.memory_bytes else "",
        f"Python {provenance.python}" if provenance.python else "",
        *packages,
        f"commit {provenance.git_commit_hash[:12]} ({provenance.git_branch or 'no branch'}){dirty}" if provenance.git_commit_hash else "",
    ]
    return ", ".join(part for part in parts if part)


def _hosts(provenance: Provenance) -> str:
    """The host; of many the names of the first, and whether they are of one make."""
    if not provenance.hosts:
        return provenance.host
    makes = len({tuple(sorted(make_of(told).items())) for told in provenance.hosts.values()})
    alike = "of one make" if makes == 1 else f"of {makes} makes"
    return f"{count(len(provenance.hosts), 'host')} {alike} ({named(list(provenance.hosts))}), seen from {provenance.host}"


def winners_sentence(results: CampaignResults) -> str:
    """Who won by the ranked figure and who by latency, and whether the data tell them from the rest."""
    ranking = results.ranking
    leader = next((standing for standing in standings(results) if standing.place.group == ranking.winner), None)
    if leader is None:
        return f"No winner: {ranking.reason or 'no group could be ranked.'}"
    return f"{_winner_clause(results, leader)} {_latency_clause(results)}".strip()


def _winner_clause(results: CampaignResults, leader: Standing) -> str:
    ranking = results.ranking
    value = f"{figure(leader.place.value)} {ranking.unit}".strip()
    precise = " ".join(part for part in (value, margin(leader.estimate)) if part)
    won = f"{_title(results)}: {leader.group.group} ({precise})"
    won += f", measured with {', '.join(leader.group.debug)} on" if leader.group.debug else ""
    reason = _how_it_stands(results).rstrip(".")
    if spoilt := _spoilt(results):
        return f"{won}. {reason}; but the platform failed {named(spoilt)}: no winner is final before that is run again."
    if results.pending:
        return f"{won}. {reason}. {count(len(results.pending), 'run')} still to be run."
    rivals = [place for place in ranking.groups if place.can_win and place.group != ranking.winner]
    if ranking.decided and rivals:
        return f"{won}, ahead of every other group by more than the noise."
    if _is_alone(results):
        return f"{won}."
    return f"{won}. {reason}."


def _title(results: CampaignResults) -> str:
    """What the first place is called: a winner is one only where the data tell it from the others and no run is missing."""
    metric = results.ranking.metric
    is_throughput = metric.endswith("_per_s")
    if _is_alone(results):
        return "Throughput of the only group" if is_throughput else f"{metric} of the only group"
    if not_proven(results):
        return f"Leads by {'throughput' if is_throughput else metric}, not proven"
    return "Throughput winner" if is_throughput else f"Winner by {metric}"


def _is_alone(results: CampaignResults) -> bool:
    """No other group was asked for, and nothing is missing."""
    return sum(group.mode != SENTINEL for group in results.groups) == 1 and not (results.not_started or results.pending or _spoilt(results))


def _how_it_stands(results: CampaignResults) -> str:
    if results.not_started and len(results.ranking.groups) == 1:
        return "No run of another group has ended yet."
    return results.ranking.reason or "The data do not tell it from the others."


def _latency_clause(results: CampaignResults) -> str:
    name = results.ranking.latency_winner
    group = next((group for group in results.groups if group.group == name), None)
    if group is None:
        return "Latency winner: none, as no run gave timing points."
    p50_ms = group.seed.get("tail_mean_iter_p50_ms_mean")
    value = f" ({figure(p50_ms)} ms iter p50 by the seeds' tail mean, a sum of phases)" if isinstance(p50_ms, float) else ""
    same = "the same, " if name == results.ranking.winner else ""
    return f"Latency winner: {same}{name}{value}."


def runs_text(group: GroupSummary) -> str:
    """'2 ok', '1 ok, 1 failed', with runs set aside named."""
    parts = [f"{group.runs} ok"]
    parts += [f"{group.failed_runs} failed"] if group.failed_runs else []
    parts += [f"{len(group.infrastructure_failures)} failed by the platform"] if group.infrastructure_failures else []
    parts += [f"{group.set_aside_runs} set aside"] if group.set_aside_runs else []
    return ", ".join(parts)


def named(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """'a, b and 3 more'."""
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 0 else ", ".join(names)


def left_out_sentence(results: CampaignResults) -> str:
    """What `--only` left out, or nothing."""
    return results.verdict.notes.get("left_out", "")


def pending_sentence(results: CampaignResults) -> str:
    """What is still to be run, or nothing."""
    if not results.pending:
        return ""
    waiting = f"{count(len(results.pending), 'run')} still to be run: {named(results.pending)}."
    if origin(results):
        return f"{waiting} No row of the original manifest tells how that ended, so it counts in no figure."
    return f"{waiting} The same command again runs only what is missing."
