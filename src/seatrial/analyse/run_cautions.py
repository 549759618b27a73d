"""What a reader must know to weigh one run's figures.

In: the counted steps, the step tables and the spec. Out: cautions: too few steps, no steady state, one step that makes up much of the
window, steps or ranks that were not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from seatrial.analyse.clock import clock_jump
from seatrial.analyse.steady import ms_text
from seatrial.analyse.window import Counted
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.caution import Caution
from seatrial.records.run_spec import RunSpec
from seatrial.records.steps import StepTables
from seatrial.units import format_duration

DOMINANT_SHARE = 0.2
"""One step with this much of the window's time moves throughput by as much: more than most differences between groups."""
DOMINANT_OVER_MEDIAN = 2.0
"""And only a step that took this many times the median: of four equal steps each has a quarter of the time."""
WARNS = "caution: "
"""How a workload begins the reason of an effective setting that a reader of the report must know of."""
NAMED_RANKS = 4
"""Ranks named in a sentence; of more, their number is told."""


def run_cautions(counted: Counted, tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    """Everything that weakens the figures of one run, the gravest first."""
    yield from _window_cautions(counted, spec)
    yield from _one_step_dominates(counted, spec)
    yield from _other_number_of_steps(tables, spec)
    yield from _clock_was_set(tables, spec)
    yield from _loss_is_no_number(tables, spec)
    yield from _workload_warns(tables, spec)
    yield from _axes_without_effect(tables, spec)
    if tables.source == "events":
        yield from _steps_lost(counted, spec)
        yield from _missing_ranks(counted, tables, spec)


def _window_cautions(counted: Counted, spec: RunSpec) -> Iterator[Caution]:
    window = counted.window
    if window is None:
        asked = "" if spec.timing.window == "auto" else f" in the window {spec.timing.window} that the plan gives"
        yield Caution(
            kind="too_few_steps",
            subject=spec.run,
            numbers={"rows": counted.usable},
            text=f"Only {counted.rows} timed steps are left{asked}, of {counted.usable}: no throughput can be given; run more steps.",
        )
    elif not window.steady:
        yield Caution(
            kind="no_steady_state",
            subject=spec.run,
            numbers={"n": window.n, "warmup_steps": window.warmup_steps},
            text=f"No steady state was found: {window.reason}.",
        )


def _other_number_of_steps(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    """A script that stops early does less work than the others, and a run's length then says nothing."""
    if spec.steps is None or tables.steps.is_empty():
        return
    rank, step = tables.steps["rank"].to_numpy(), tables.steps["step"].to_numpy()
    # The table goes by rank and then step: a rank's last row is its last step.
    lasts = step[np.append(np.flatnonzero(np.diff(rank)), len(rank) - 1)]
    taken = sorted({int(last) + 1 for last in lasts})
    # Lines may come every so many steps, and scripts may count from 1.
    slack = int(tables.steps["span"].max() or 1)  # type: ignore[arg-type]
    if any(abs(spec.steps - count) > slack for count in taken):
        told = " and ".join(str(count) for count in (taken if len(taken) < 3 else (taken[0], taken[-1])))
        yield Caution(
            kind="other_number_of_steps",
            subject=spec.run,
            numbers={"asked": spec.steps, "least": taken[0], "most": taken[-1]},
            text=f"The plan asks for {spec.steps} steps, and its ranks took {told}: a run of another length did not do the same work. "
            "See its log for why, or mend `steps` in the plan.",
        )


def _clock_was_set(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    jump = clock_jump(tables.steps)
    if jump is None:
        return
    way = "forward" if jump.jump_s > 0 else "back"
    yield Caution(
        kind="clock_jump",
        subject=spec.run,
        numbers={"step": jump.step, "jump_s": round(jump.jump_s, 3)},
        text=f"The wall clock was set {way} by {format_duration(abs(jump.jump_s))} before step {jump.step} ended, or the machine slept: "
        "step times are not touched by it, but figures of the machine cannot be laid beside the steps and are left out.",
    )


def _loss_is_no_number(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    loss = tables.steps["loss"]
    # Most runs have none: told at a glance, without a query. A step without a loss is NaN here.
    if int(np.count_nonzero(np.isfinite(loss.to_numpy()))) == len(loss) - loss.null_count():
        return
    told = tables.steps.select("rank", "step", "loss").drop_nulls()
    odd = told.filter(~told["loss"].is_finite())
    if odd.is_empty():
        return
    first = odd.sort("step", "rank").row(0, named=True)
    yield Caution(
        kind="loss_not_finite",
        subject=spec.run,
        numbers={"step": int(first["step"]), "rank": int(first["rank"]), "losses": odd.height, "of": told.height},
        text=f"The loss is no number from step {first['step']} on (rank {first['rank']}: {first['loss']}; {odd.height} of {told.height} "
        "losses): its times are those of a training that has failed.",
    )


def _workload_warns(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    for name, (_, effective, reason) in tables.effective.items():
        if reason.startswith(WARNS):
            yield Caution(
                kind="workload_warns",
                subject=spec.run,
                numbers={"setting": name, "effective": effective},
                text=f"{name} is {effective}: {reason.removeprefix(WARNS)}.",
            )


def _axes_without_effect(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    """Two groups that differ only in such an axis are one, ranked twice."""
    for name, asked in spec.axes.items():
        requested, effective, reason = tables.effective.get(name, (asked, asked, ""))
        if requested != effective and requested != "auto":
            yield Caution(
                kind="axis_without_effect",
                subject=spec.run,
                numbers={"axis": name, "requested": requested, "effective": effective},
                text=f"The axis {name} asks for {requested} and this run had {'none' if effective is None else effective} ({reason}): "
                "groups that differ in it alone are the same.",
            )


def _one_step_dominates(counted: Counted, spec: RunSpec) -> Iterator[Caution]:
    if counted.window is None or counted.window_s <= 0:
        return
    took_ms = counted.wall_ms * counted.spans
    at = int(np.argmax(took_ms))
    share = float(took_ms[at]) / 1000 / counted.window_s
    if share < DOMINANT_SHARE or counted.wall_ms[at] <= DOMINANT_OVER_MEDIAN * np.median(counted.wall_ms):
        return
    step, span = int(counted.last_steps[at]), int(counted.spans[at])
    which = f"Step {step}" if span == 1 else f"Steps {step - span + 1} to {step}"
    took = f"{which} took {ms_text(float(took_ms[at]))}, {share:.0%} of the window's time"
    yield Caution(
        kind="one_step_dominates",
        subject=spec.run,
        numbers={"step": step, "ms": round(float(took_ms[at]), 3), "share": round(share, 4)},
        text=f"{took}: name a checkpoint or an evaluation with probe.pause, so that it does not count, or run more steps.",
    )


def _steps_lost(counted: Counted, spec: RunSpec) -> Iterator[Caution]:
    if not counted.lost:
        return
    most = max(counted.lost.values())
    yield Caution(
        kind="steps_lost",
        subject=spec.run,
        numbers={"steps": most, "ranks": ",".join(map(str, counted.lost))},
        text=f"{_who(counted.lost)} {most} {'step' if most == 1 else 'steps'} in between; only steps that every rank has are counted. "
        "Look into the events files for torn lines, and for a full disk or a second process that wrote there.",
    )


def _who(lost: Mapping[int, int]) -> str:
    if len(lost) == 1:
        return f"Rank {next(iter(lost))} has no usable line of"
    who = f"Ranks {', '.join(map(str, lost))}" if len(lost) <= NAMED_RANKS else f"{len(lost)} ranks"
    return f"{who} have no usable line of up to"


def _missing_files(tables: StepTables) -> str:
    seen = set(tables.steps["rank"].unique().to_list())
    missing = [rank for rank in range(tables.world_size) if rank not in seen]
    named = ATTEMPT_FILES.events(missing[0]).name if missing else "one of them"
    return named if len(missing) < 2 else f"{named} and {len(missing) - 1} more"


def _missing_ranks(counted: Counted, tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    if counted.window is None or spec.rank_scope != "all" or counted.ranks >= tables.world_size:
        return
    yield Caution(
        kind="ranks_not_seen",
        subject=spec.run,
        numbers={"ranks": counted.ranks, "world_size": tables.world_size},
        text=f"Only {counted.ranks} of {tables.world_size} ranks wrote steps ({_missing_files(tables)} tells none); the others are taken "
        "to have done the same work.",
    )
