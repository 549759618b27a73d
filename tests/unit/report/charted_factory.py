"""The factory's campaign with something to draw of each run that ended ok: 180 steps of about 25 ms, a spike at step 100 of one group,
phases, and two ranks of which one is waited for in one group."""

from __future__ import annotations

import dataclasses
import math

from seatrial.records.columns import PHASES, RANKS, STEP_TIMES, STEPS, Columns, RunCharts
from seatrial.records.measure import Estimate
from seatrial.records.outcome import Outcome
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults, MeasuredRun
from tests.unit.report import factory

FIRST, LAST = 20, 199


def results() -> CampaignResults:
    """The campaign of the factory, with charts."""
    return with_charts(factory.results())


def with_charts(found: CampaignResults) -> CampaignResults:
    return dataclasses.replace(found, runs=tuple(_charted(run) for run in found.runs))


def many_groups(count: int) -> CampaignResults:
    """So many groups of one run each, all alike but for their names and speeds."""
    names = [f"group{number:04}" for number in range(count)]
    template = factory.measured("mb16_nw2", 1)
    groups, places, runs = [], [], []
    for at, name in enumerate(names):
        summary = factory.summary("mb16_nw2", group_key=f"key-{name}", axes={"micro_batch": at}, counted=1)
        groups.append(dataclasses.replace(summary, group=name))
        places.append(
            RankedGroup(
                rank=at + 1, summary=groups[-1], estimate=Estimate(mean=1270.0 - at), tied=at > 0, reason="not told apart by the data"
            )
        )
        spec = dataclasses.replace(template.attempt.spec, run=f"{name}_r1", group=name, group_key=f"key-{name}", axes={"micro_batch": at})
        attempt = dataclasses.replace(template.attempt, spec=spec, folder=f"out/{name}_r1/attempt-1")
        runs.append(dataclasses.replace(template, attempt=attempt, charts=charts(25.0 + at)))
    ranking = factory.ranking(groups=tuple(places), off_lane=(), recommended=names[0], latency_winner=names[0])
    return factory.results(runs=tuple(runs), groups=tuple(groups), ranking=ranking)


def _charted(run: MeasuredRun) -> MeasuredRun:
    if run.outcome is not Outcome.OK or not run.attempt.current:
        return run
    group = run.attempt.spec.group
    level = 32_000 / factory.SAMPLES_PER_S[group][0]
    return dataclasses.replace(run, charts=charts(level, spike=group == "mb16_nw0", slow_rank=group == "mb8_nw2"))


def charts(level_ms: float, *, spike: bool = False, slow_rank: bool = False) -> RunCharts:
    """What can be drawn of one run; the first twenty steps are warm-up and do not count."""
    times = [3 * level_ms if step < FIRST else level_ms * (1 + math.sin(step / 20) / 10) for step in range(LAST + 1)]
    if spike:
        times[100] = 10 * level_ms
    return RunCharts(
        tables={
            STEPS: steps(times),
            STEP_TIMES: step_times(times[FIRST:]),
            PHASES: phases(level_ms),
            RANKS: ranks(level_ms, slow_rank=slow_rank),
        }
    )


def steps(times: list[float], first_counted: int = FIRST) -> Columns:
    count = len(times)
    return {
        "rank": [0] * count,
        "step": list(range(count)),
        "begin_s": [(step - 1) / 10 for step in range(count)],
        "t_s": [step / 10 for step in range(count)],
        "iter_ms": list(times),
        "loss": [None] * count,
        "counted": [step >= first_counted for step in range(count)],
    }


def step_times(times: list[float]) -> Columns:
    """The ends and the middle."""
    ordered = sorted(times)
    return {
        "quantile": [0.0, 0.5, 1.0],
        "iter_ms": [ordered[0], ordered[len(ordered) // 2], ordered[-1]],
        "first_step": [FIRST] * 3,
        "last_step": [LAST] * 3,
        "n": [len(times)] * 3,
    }


def phases(level_ms: float) -> Columns:
    shares = {"data_wait": 2.0, "fwd": 30.0, "bwd": 60.0, "step": 7.5, "other": 0.5}
    return {
        "phase": list(shares),
        "mean_ms": [share * level_ms / 100 for share in shares.values()],
        "share_pct": list(shares.values()),
        "first_step": [FIRST] * 5,
        "last_step": [LAST] * 5,
        "n": [178] * 5,
    }


def ranks(level_ms: float, *, slow_rank: bool = False) -> Columns:
    work = [level_ms * (0.7 if slow_rank else 0.99), level_ms]
    return {
        "rank": [0, 1],
        "host": ["node-1", "node-1"],
        "gpu": ["0", "1"],
        "iter_p50_ms": [level_ms, level_ms],
        "work_p50_ms": list(work),
        "wait_p50_ms": [level_ms - ms for ms in work],
        "first_step": [FIRST, FIRST],
        "last_step": [LAST, LAST],
        "n": [178, 178],
    }
