"""A campaign read, measured, grouped and ranked, before anything is judged: what comparisons and verdicts are made of.

In: a campaign's folder. Out: a `GroupedCampaign`; nothing is written. Criteria are not looked at, so that a baseline in another
campaign can be read while this one is judged, and two that name one another do not wait for one another for ever.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from seatrial.campaign.measuring import Measuring, Workers
from seatrial.campaign.original import campaign_of
from seatrial.collect.attempts import StoredPlans, read_stored, read_stored_plans
from seatrial.errors import CampaignError
from seatrial.paths import ANY_ATTEMPT, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.caution import Caution
from seatrial.records.measure import GroupSummary, Ranking
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec

NO_POLARS = "polars is not installed here, so no tables can be made; copy the folder to a machine that has it and run `seatrial report`"


class Grouped(Protocol):
    """What sides are made of; CampaignResults has it too."""

    @property
    def output(self) -> str: ...
    @property
    def baseline_group(self) -> str: ...
    @property
    def runs(self) -> tuple[MeasuredRun, ...]: ...
    @property
    def pending(self) -> tuple[str, ...]: ...
    @property
    def groups(self) -> tuple[GroupSummary, ...]: ...
    @property
    def ranking(self) -> Ranking: ...


@dataclass(frozen=True, kw_only=True)
class GroupedCampaign:
    """The whole of one output folder, without its verdict."""

    output: str
    baseline_group: str
    runs: tuple[MeasuredRun, ...]
    pending: tuple[str, ...]
    groups: tuple[GroupSummary, ...]
    ranking: Ranking
    plans: tuple[CampaignPlan, ...] = ()
    """The latest last."""
    cautions: tuple[Caution, ...] = ()
    """Of what was read and could not be."""


def read_grouped(folder: Path) -> GroupedCampaign:
    """The campaign in `folder`, of ours or of the original stage-1 scripts."""
    return replace(group_campaign(CampaignPaths(campaign_of(folder))), output=str(folder))


def group_campaign(
    paths: CampaignPaths,
    *,
    tail_points: int | None = None,
    baseline: str | None = None,
    charts: bool = False,
    measuring: Measuring | None = None,
) -> GroupedCampaign:
    """The campaign as it lies there now. `tail_points` (timing points that the seeds' tail columns average) and `baseline` (the group
    that speed-ups are against) are those of the plans where they are not given. With `charts`, runs have what can be drawn of them.
    `measuring` is for whoever asks again and again."""
    if not can_measure():
        raise CampaignError(NO_POLARS)
    # Workers begin while this process loads what it needs itself, and reads what there is to measure.
    with Workers(0 if measuring else _num_attempts(paths)) as workers:
        from seatrial.analyse.charts.detail import detail_for
        from seatrial.analyse.groups import summarise
        from seatrial.analyse.rank import rank

        read = plans_of(paths)
        plans = read.plans
        asked = {(spec.run, spec.hash): spec for plan in plans for spec in plan.runs}
        stored = read_stored(paths, plans)
        attempts = [with_tail(as_asked_now(attempt, asked), tail_points) for attempt in stored.attempts]
        detail = detail_for(sum(attempt.current for attempt in attempts)) if charts else None
        runs = (measuring or workers.measure_all)(attempts, detail)
    baseline = plans[-1].baseline if baseline is None else baseline
    groups = summarise(runs, baseline)
    rank_by, unknown = _rank_by(plans[-1])
    return GroupedCampaign(
        output=str(paths.folder),
        baseline_group=baseline,
        runs=runs,
        pending=pending(plans, runs),
        groups=groups,
        ranking=rank(groups, rank_by),
        plans=tuple(plans),
        cautions=(*read.cautions, *stored.cautions, *unknown),
    )


def _num_attempts(paths: CampaignPaths) -> int:
    """How many folders of attempts there are, at a glance."""
    return sum(1 for _ in paths.folder.glob(f"*/{ANY_ATTEMPT}"))


def can_measure() -> bool:
    """Whether this machine has what the tables need: runs can be made without it and read elsewhere."""
    return importlib.util.find_spec("polars") is not None


def plans_of(paths: CampaignPaths) -> StoredPlans:
    """The folder's plans, the latest last; a CampaignError that says why where there is none."""
    read = read_stored_plans(paths)
    if read.plans:
        return read
    if any(os.path.lexists(path) for path in (paths.plan, *paths.plans.glob("*.json"))):
        raise CampaignError(
            f"no plan in {paths.folder} can be read: plan.json and plans/ are damaged; run the plan again into this folder, which keeps "
            "every finished run, or put plan.json back from a copy"
        )
    raise CampaignError(f"{paths.folder} holds no campaign: there is no plan in it; name the folder that `seatrial run` wrote to")


def as_asked_now(attempt: Attempt, asked: Mapping[tuple[str, str], RunSpec]) -> Attempt:
    """The attempt read as the plan asks for it now: window, patterns and lane may change without a run being made again."""
    spec = asked.get((attempt.spec.run, attempt.spec.hash))
    return attempt if spec is None else replace(attempt, spec=spec)


def with_tail(attempt: Attempt, tail_points: int | None) -> Attempt:
    """The attempt with so many timing points in its tail; as it is where None."""
    if tail_points is None:
        return attempt
    timing = replace(attempt.spec.timing, tail_points=tail_points)
    return replace(attempt, spec=replace(attempt.spec, timing=timing))


def pending(plans: Sequence[CampaignPlan], runs: tuple[MeasuredRun, ...]) -> tuple[str, ...]:
    """Runs that a plan asks for and that have no attempt that came to its own end, in the plans' order."""
    ended = {run.attempt.spec.hash for run in runs if run.outcome is not None and not run.outcome.is_cut_short}
    return tuple(spec.run for plan in plans for spec in plan.chosen if spec.hash not in ended)


def _rank_by(plan: CampaignPlan) -> tuple[str, list[Caution]]:
    """What to rank by; throughput where the plan, of a later version or damaged, names a figure that is not known here."""
    from seatrial.analyse.rank_metric import ANY_THROUGHPUT, METRICS

    if plan.rank_by in (ANY_THROUGHPUT, *METRICS):
        return plan.rank_by, []
    text = f"The plan ranks by '{plan.rank_by[:40]}', which this version does not know; {ANY_THROUGHPUT} is used instead."
    return ANY_THROUGHPUT, [Caution(kind="unknown_figure", text=text)]
