"""Every group with its place, and in a word how it stands.

In: CampaignResults. Out: `Standing`s, the main lane in order and then what is off it; the groups and the counted runs in that order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.measure import Estimate, GroupSummary, RankedGroup
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.wording import named

DEBUG_ON = "debug on"
WINNER, LEADS, ALONE = "winner", "leads", "only group"
TIED, NO_INTERVAL, CANNOT_WIN, OFF_LANE = "tied", "no interval", "cannot win", "off lane"
NOT_RUN, NOT_ENDED = "not run yet", "no run ended"
"""In a word, how a group stands: the notes of every report, and of summary.json."""
SHOWN_NOTES = {LEADS: "leads, not proven"}
"""Notes that say more to a reader than to a table."""
OFF_LANE_TITLE = "Off the main lane, ranked apart"
FIGURES_ARE = (
    "Figures are wall clock over the window, geometric means over the runs that ended ok; intervals are 95 %, taken on logs; n is the "
    "number of steps counted, for figures of whole runs the number of runs."
)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One group and its place."""

    group: GroupSummary
    place: RankedGroup
    estimate: Estimate | None
    """The figure ranked by."""
    note: str
    """One of the words above, or nothing."""

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
        return self.note in (WINNER, LEADS, ALONE)

    @property
    def n(self) -> int | None:
        """What its figure rests on: the steps counted, of whole runs the runs; None where there is no figure."""
        return (self.group.window_n or self.group.runs) if self.place.value is not None else None

    @property
    def is_best(self) -> bool:
        """The one the others are compared with, by its mean; a tie may still go to another."""
        return self.place.can_win and self.place.ratio is None and self.place.value is not None

    def mean(self, metric: str) -> float | None:
        found = self.group.figures.get(metric)
        return found.mean if found else None


def standings(results: CampaignResults) -> list[Standing]:
    """The main lane in order, then what is off it; of each lane those last that have yet to start."""
    by_name = {group.group: group for group in (*results.not_started, *results.groups)}
    first = ALONE if is_alone(results) else LEADS if not_proven(results) else WINNER
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


def how_figures_are_read(*, higher_is_better: bool) -> str:
    """Which way is better, and what the figures of a ranking are."""
    return f"{'Higher' if higher_is_better else 'Lower'} is better. {FIGURES_ARE}"


def told_reasons(placed: Iterable[tuple[str, str, str]]) -> list[tuple[list[str], str]]:
    """Of (group, note, reason): why groups stand where they do, those with the same reason together."""
    together: dict[tuple[str, str], list[str]] = {}
    for group, note, reason in placed:
        if note and reason:
            together.setdefault((note, reason), []).append(group)
    return [(groups, reason if reason.startswith(note) else f"{note}, {reason}") for (note, reason), groups in together.items()]


def not_proven(results: CampaignResults) -> bool:
    """Whether the first place may yet go to another group: the data do not tell them apart, or runs are missing."""
    return bool(not results.ranking.decided or results.pending or spoilt_runs(results))


def spoilt_runs(results: CampaignResults) -> list[str]:
    """Runs that the platform failed, and not their settings; a sentinel's count for no group."""
    return [run for group in results.groups if group.mode != SENTINEL for run in group.infrastructure_failures]


def groups_in_order(results: CampaignResults) -> list[GroupSummary]:
    """Best first, then what is off the lane, then what has no place."""
    placed = [standing.group for standing in standings(results)]
    named_already = {group.group_key for group in placed}
    return [*placed, *(group for group in results.groups if group.group_key not in named_already)]


def runs_by_group(results: CampaignResults) -> dict[str, list[MeasuredRun]]:
    """Group key → the runs that its figures are made of."""
    found: dict[str, list[MeasuredRun]] = {}
    for run in results.counted:
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
        return OFF_LANE
    if first:
        return first
    if not place.can_win:
        return CANNOT_WIN
    if place.tied and not _is_proven(place):
        return NO_INTERVAL
    return TIED if place.tied else ""


def _is_proven(place: RankedGroup) -> bool:
    """Whether the tie rests on an interval; the best, which the others are compared with, has no ratio of its own."""
    return place.ratio is None or place.ratio.low is not None


def is_alone(results: CampaignResults) -> bool:
    """No other group was asked for, and nothing is missing."""
    return sum(group.mode != SENTINEL for group in results.groups) == 1 and not (
        results.not_started or results.pending or spoilt_runs(results)
    )


def runs_text(group: GroupSummary) -> str:
    """'2 ok', '1 ok, 1 failed', with runs set aside named."""
    parts = [f"{group.runs} ok"]
    parts += [f"{group.failed_runs} failed"] if group.failed_runs else []
    parts += [f"{len(group.infrastructure_failures)} failed by the platform"] if group.infrastructure_failures else []
    parts += [f"{group.set_aside_runs} set aside"] if group.set_aside_runs else []
    return ", ".join(parts)
