"""The section of summary.md on the ranking. In: CampaignResults. Out: the winners, a table for each lane with intervals, windows and n, and
why groups stand where they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial import units
from seatrial.paths import CAMPAIGN_FILES
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.sentences import winners_sentence
from seatrial.report.digest.standings import (
    NO_INTERVAL,
    OFF_LANE_TITLE,
    Standing,
    how_figures_are_read,
    runs_by_group,
    runs_text,
    standings,
    told_reasons,
    windows_text,
)
from seatrial.report.markdown.text import bounded_table, escape
from seatrial.report.numbers import NONE, figure, interval, level, ratio
from seatrial.wording import named

MOST_RANKED = 40
MOST_REASONS = 20
CRITERIA_DIFFER = "Criteria look at single runs, so their p90/p50 may differ from a group's."


def ranking_section(results: CampaignResults) -> Iterator[str]:
    """Heading, winners, the main lane, what is off it, reasons."""
    yield "## Ranking"
    yield escape(winners_sentence(results))
    placed = standings(results)
    main_lane = [standing for standing in placed if standing.group.lane]
    if main_lane:
        yield _table(results, main_lane)
    if len(main_lane) < len(placed):
        yield f"{OFF_LANE_TITLE}:"
        yield _table(results, [standing for standing in placed if not standing.group.lane])
    if reasons := list(_reasons(placed)):
        more = f"- and {len(reasons) - MOST_REASONS} more reasons: `ranked_groups.csv` has them"
        yield "\n".join([*reasons[:MOST_REASONS], *([more] if len(reasons) > MOST_REASONS else [])])
    if placed:
        yield f"{how_figures_are_read(higher_is_better=results.ranking.higher_is_better)} {CRITERIA_DIFFER}"


def _reasons(placed: Sequence[Standing]) -> Iterator[str]:
    """Why groups stand where they do; those with the same reason in one line."""
    for groups, told in told_reasons((one.group.group, one.note, one.place.reason) for one in placed):
        yield f"- {escape(named(groups, MOST_RANKED))}: {escape(told)}"


def _table(results: CampaignResults, placed: Sequence[Standing]) -> str:
    axes = list(dict.fromkeys(name for standing in placed for name in standing.group.axes))
    unit = escape(results.ranking.unit or results.ranking.metric)
    headers = ["#", "group", *(escape(name) for name in axes), unit, "95 % interval", "to best"]
    headers += ["wall p90/p50", "start-up", "runs", "window", "n", "note"]
    figures = range(2 + len(axes), 7 + len(axes))
    runs = runs_by_group(results)
    rows = [_row(standing, axes, runs.get(standing.group.group_key, [])) for standing in placed]
    return bounded_table(headers, rows, right=[0, *figures, len(headers) - 2], where=CAMPAIGN_FILES.ranked_groups.name, most=MOST_RANKED)


def _row(standing: Standing, axes: Sequence[str], runs: Sequence[MeasuredRun]) -> list[object]:
    group, place = standing.group, standing.place
    return [
        place.rank,
        group.group,
        *(level(group.axes.get(name)) for name in axes),
        figure(place.value),
        interval(standing.estimate),
        ("1" if standing.is_best else NONE) if place.ratio is None else f"{ratio(place.ratio.mean)} ({_ratio_interval(standing)})",
        ratio(standing.mean("wall_p90_over_p50")),
        units.format_duration(standing.mean("startup_s")),
        runs_text(group),
        windows_text(runs) if standing.n else NONE,
        standing.n or NONE,
        standing.shown,
    ]


def _ratio_interval(standing: Standing) -> str:
    estimate = standing.place.ratio
    return f"{ratio(estimate.low)} to {ratio(estimate.high)}" if estimate and estimate.low is not None else NO_INTERVAL
