"""Two sides made ready to be held against one another.

In: two sides and the metric asked for. Out: a `Trial`: what is compared of them, which runs tell it, whether they are pairs, and how far
they lie apart; or a RefusedError. Where the sides ran on unlike numbers of ranks, rates are those of one GPU: totals would tell of the
number and not of the speed. Runs of one campaign that were made in rounds are pairs, by repeat. Which of paired t and Welch is taken
follows from how the runs were made, never from what they show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from seatrial.analyse import compare_words as words
from seatrial.analyse.alike import refusal
from seatrial.analyse.interval import Difference, paired_difference, welch_difference
from seatrial.analyse.loss_parity import loss_parity
from seatrial.analyse.rank_metric import ANY_THROUGHPUT, METRICS, THROUGHPUT, Metric
from seatrial.errors import RefusedError, UsageError, did_you_mean
from seatrial.records.comparison import LossParity, Side, SideRun

# What single runs have: the seeds' columns are of groups, and carry no interval.
COMPARED = {name: metric for name, metric in METRICS.items() if metric.seed_column is None}
RATES = ("samples_per_s", "tokens_per_s", "steps_per_s")
# With fewer there is no interval.
LEAST_RUNS = 2


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Two sides, what is compared of them, and how far they lie apart."""

    a: Side
    b: Side
    """With the runs that tell the metric, and rates of one GPU where the metric is one."""
    metric: Metric
    logs_a: list[float]
    logs_b: list[float]
    paired: bool
    difference: Difference | None
    loss: LossParity
    left_out: tuple[str, ...] = ()
    """Runs that do not tell the metric."""

    @property
    def blocked(self) -> str:
        return words.blocked(self.a, self.b)

    @property
    def problem(self) -> str:
        """Why nothing is said whatever the figures show; empty where the interval may speak."""
        return (
            self.blocked
            or words.no_interval(self.a, self.b)
            or words.unlike_steps(self.a, self.b, self.metric)
            or words.no_noise(self.difference)
        )


def make_trial(a: Side, b: Side, asked: str, *, across: bool = False) -> Trial:
    """The two made ready; a RefusedError where they must not be compared."""
    refused = refusal(a, b, across=across)
    if refused:
        raise RefusedError(refused)
    metric, loss = common_metric(a, b, asked), loss_parity(a, b)
    left_out = tuple(run.run for side in (a, b) for run in side.runs if not _tells_it(run, metric.name))
    a, b = (_telling(side, metric.name) for side in (a, b))
    if a.world_size != b.world_size:
        a, b = _per_gpu(a), _per_gpu(b)
        metric = replace(metric, unit=f"{metric.unit} per GPU") if metric.name in RATES else metric
    pairs = pairs_of(a, b)
    runs_a, runs_b = ([one for one, _ in pairs], [other for _, other in pairs]) if pairs else (list(a.runs), list(b.runs))
    logs_a, logs_b = (_logs(runs, metric) for runs in (runs_a, runs_b))
    difference = paired_difference(logs_a, logs_b) if pairs else welch_difference(logs_a, logs_b)
    return Trial(
        a=a, b=b, metric=metric, logs_a=logs_a, logs_b=logs_b, paired=bool(pairs), difference=difference, loss=loss, left_out=left_out
    )


def common_metric(a: Side, b: Side, asked: str) -> Metric:
    """What both sides tell; of throughput the first of samples/s, tokens/s, steps/s and the length of the run."""
    if asked != ANY_THROUGHPUT and asked not in COMPARED:
        raise UsageError(f"metric '{asked}' is no figure to compare by; {did_you_mean(asked, [ANY_THROUGHPUT, *COMPARED])}")
    names = THROUGHPUT if asked == ANY_THROUGHPUT else (asked,)
    both = [name for name in names if _tells(a, name) and _tells(b, name)]
    if both:
        return METRICS[both[0]]
    told = "; ".join(f"{side.name} tells {', '.join(_told(side)) or 'none of them'}" for side in (a, b))
    raise RefusedError(
        f"{a.name} and {b.name} have no {asked} in common that their runs tell: {told}. Name a --metric that both have, or run them again"
    )


def pairs_of(a: Side, b: Side) -> list[tuple[SideRun, SideRun]]:
    """The runs of both, repeat by repeat, where they were made in rounds: one campaign, the same repeats, and every round over before
    the next began. Empty where they are no pairs."""
    by_a, by_b = ({run.repeat: run for run in side.runs} for side in (a, b))
    if not a.campaign or a.campaign != b.campaign or by_a.keys() != by_b.keys() or len(by_a) < LEAST_RUNS:
        return []
    if len(by_a) < len(a.runs) or len(by_b) < len(b.runs):
        return []
    pairs = [(by_a[repeat], by_b[repeat]) for repeat in sorted(by_a)]
    return pairs if _in_rounds(pairs) else []


def _in_rounds(pairs: Sequence[tuple[SideRun, SideRun]]) -> bool:
    """Where nobody knows when runs began, their numbers are believed."""
    starts = [(min(one.started_t, other.started_t), max(one.started_t, other.started_t)) for one, other in pairs]
    if any(first <= 0 for first, _ in starts):
        return True
    return all(last < following for (_, last), (following, _) in pairwise(starts))


def _per_gpu(side: Side) -> Side:
    """Its rates as those of one rank. All of them alike, so that the work of a step, a rate over a rate, stays what it is."""
    return replace(side, runs=tuple(_shared(run, side.world_size) for run in side.runs))


def _shared(run: SideRun, ranks: int) -> SideRun:
    figures = {name: value / ranks if name in RATES else value for name, value in run.figures.items()}
    last = run.last_steps
    return replace(run, figures=figures, last_steps=replace(last, per_s=last.per_s / ranks) if last else None)


def _telling(side: Side, name: str) -> Side:
    return replace(side, runs=tuple(run for run in side.runs if _tells_it(run, name)))


def _tells(side: Side, name: str) -> bool:
    """Whether the side has the figure: every run of it, or most and enough for an interval. A side without runs lacks nothing."""
    telling = sum(_tells_it(run, name) for run in side.runs)
    return telling == len(side.runs) or (telling >= LEAST_RUNS and 2 * telling > len(side.runs))


def _told(side: Side) -> list[str]:
    return [name for name in COMPARED if side.runs and _tells(side, name)]


def _tells_it(run: SideRun, name: str) -> bool:
    value = run.figures.get(name)
    return value is not None and math.isfinite(value) and value > 0


def _logs(runs: Sequence[SideRun], metric: Metric) -> list[float]:
    return [math.log(run.figures[metric.name]) for run in runs]
