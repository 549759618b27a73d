"""What is said of a whole campaign in a sentence: who won, what is still to be run, what was left out, what it was made of.

In: CampaignResults. Out: the sentence, '' where there is nothing to say.
"""

from __future__ import annotations

from seatrial.records.original_names import MADE_FROM
from seatrial.records.results import CampaignResults
from seatrial.report.digest.standings import Standing, is_alone, not_proven, spoilt_runs, standings
from seatrial.report.numbers import figure, margin
from seatrial.wording import count, named


def origin(results: CampaignResults) -> str:
    """What the campaign was made of, where it is a translation; it heads the report."""
    return next((caution.text for caution in results.cautions if caution.kind == MADE_FROM), "")


def winners_sentence(results: CampaignResults) -> str:
    """Who won by the ranked figure and who by latency, and whether the data tell them from the rest."""
    ranking = results.ranking
    first = next((standing for standing in standings(results) if standing.place.group == ranking.winner), None)
    if first is None:
        return f"No winner. {ranking.reason or 'No group could be ranked.'}"
    return f"{_winner_clause(results, first)} {_latency_clause(results)}".strip()


def _winner_clause(results: CampaignResults, first: Standing) -> str:
    ranking = results.ranking
    value = f"{figure(first.place.value)} {ranking.unit}".strip()
    precise = " ".join(part for part in (value, margin(first.estimate)) if part)
    won = f"{_title(results)}: {first.group.group} ({precise})"
    won += f", measured with {', '.join(first.group.debug)} on" if first.group.debug else ""
    reason = _how_it_stands(results).rstrip(".")
    if spoilt := spoilt_runs(results):
        return f"{won}. {reason}; but the platform failed {named(spoilt)}: no winner is final before that is run again."
    if results.pending:
        return f"{won}. {reason}. {count(len(results.pending), 'run')} still to be run."
    rivals = [place for place in ranking.groups if place.can_win and place.group != ranking.winner]
    if ranking.decided and rivals:
        return f"{won}, ahead of every other group by more than the noise."
    if is_alone(results):
        return f"{won}."
    return f"{won}. {reason}."


def _title(results: CampaignResults) -> str:
    """What the first place is called: a winner is one only where the data tell it from the others and no run is missing."""
    metric = results.ranking.metric
    is_throughput = metric.endswith("_per_s")
    if is_alone(results):
        return "Throughput of the only group" if is_throughput else f"{metric} of the only group"
    if not_proven(results):
        return f"Leads by {'throughput' if is_throughput else metric}, not proven"
    return "Throughput winner" if is_throughput else f"Winner by {metric}"


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
    what = "sum of phases" if _has_phases(results, group.group) else "step"
    value = f" ({figure(p50_ms)} ms median {what} over the last timing points)" if isinstance(p50_ms, float) else ""
    same = "the same, " if name == results.ranking.winner else ""
    return f"Latency winner: {same}{name}{value}."


def _has_phases(results: CampaignResults, group: str) -> bool:
    """Whether its runs told forward and backward apart: timing points are then of the sum of phases, else of whole steps."""
    seeds = [run.measure.seed for run in results.counted if run.measure and run.attempt.spec.group == group]
    return any(seed.get("last_fwd_p50_ms") is not None and seed.get("last_bwd_p50_ms") is not None for seed in seeds)


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
