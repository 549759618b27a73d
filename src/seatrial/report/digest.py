"""What both the page and the terminal say of a campaign, before either draws it.

In: CampaignResults. Out: standings (a group with its place), cautions merged, machines, the winners' sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seatrial import units
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
SHOWN_PACKAGES = ("torch", "deepspeed", "transformers")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One group and its place."""

    group: GroupSummary
    place: RankedGroup
    estimate: Estimate | None
    """The figure ranked by."""
    note: str
    """`winner`, `tied`, `no interval`, `cannot win`, `off lane`, or nothing."""

    @property
    def remarks(self) -> str:
        """The note, and what stands beside every figure that was measured so."""
        return ", ".join(part for part in (self.note, DEBUG_ON if self.group.debug else "") if part)

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
    """The main lane in order, then what is off it."""
    by_name = {group.group: group for group in results.groups}
    places = [(place, False) for place in results.ranking.groups] + [(place, True) for place in results.ranking.off_lane]
    return [
        Standing(
            group=by_name[place.group],
            place=place,
            estimate=by_name[place.group].figures.get(results.ranking.metric),
            note=_note(place, results.ranking.winner, off_lane=off_lane),
        )
        for place, off_lane in places
        if place.group in by_name
    ]


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


def _note(place: RankedGroup, winner: str | None, *, off_lane: bool) -> str:
    if off_lane:
        return "off lane"
    if place.group == winner:
        return "winner"
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
    return [caution for caution in cautions(results) if caution.kind not in (MADE_FROM, WHAT_FITS)]


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
        provenance.host,
        f"{provenance.gpu_name} (driver {provenance.driver_version or 'unknown'})" if provenance.gpu_name else "no GPU",
        f"{provenance.cpu or 'CPU'} × {provenance.cpu_count}" if provenance.cpu_count else provenance.cpu,
        units.format_bytes(provenance.memory_bytes) if provenance.memory_bytes else "",
        f"Python {provenance.python}" if provenance.python else "",
        *packages,
        f"commit {provenance.git_commit_hash[:12]} ({provenance.git_branch or 'no branch'}){dirty}" if provenance.git_commit_hash else "",
    ]
    return ", ".join(part for part in parts if part)


def winners_sentence(results: CampaignResults) -> str:
    """Who won by the ranked figure and who by latency, and whether the data tell them from the rest."""
    ranking = results.ranking
    leader = next((standing for standing in standings(results) if standing.place.group == ranking.winner), None)
    if leader is None:
        return f"No winner: {ranking.reason or 'no group could be ranked.'}"
    return f"{_winner_clause(results, leader)} {_latency_clause(results)}".strip()


def _winner_clause(results: CampaignResults, leader: Standing) -> str:
    ranking = results.ranking
    title = "Throughput winner" if ranking.metric.endswith("_per_s") else f"Winner by {ranking.metric}"
    value = f"{figure(leader.place.value)} {ranking.unit}".strip()
    precise = " ".join(part for part in (value, margin(leader.estimate)) if part)
    won = f"{title}: {leader.group.group} ({precise})"
    won += f", measured with {', '.join(leader.group.debug)} on" if leader.group.debug else ""
    rivals = [place for place in ranking.groups if place.can_win and place.group != ranking.winner]
    spoilt = [run for group in results.groups if group.mode != SENTINEL for run in group.infrastructure_failures]
    if spoilt:
        reason = ranking.reason.rstrip(".") or "The data do not tell it from the others"
        return f"{won}. {reason}; but the platform failed {named(spoilt)}: no winner is final before that is run again."
    if ranking.decided and rivals:
        return f"{won}, ahead of every other group by more than the noise."
    return f"{won}. {ranking.reason or 'The data do not tell it from the others.'}"


def _latency_clause(results: CampaignResults) -> str:
    name = results.ranking.latency_winner
    group = next((group for group in results.groups if group.group == name), None)
    if group is None:
        return "Latency winner: none, as no run gave timing points."
    p50_ms = group.seed.get("tail_mean_iter_p50_ms_mean")
    value = f" ({figure(p50_ms)} ms, mean tail iter p50)" if isinstance(p50_ms, float) else ""
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
