"""What else this host is doing: foreign processes, load, another campaign; and whether its clock is right.

In: two looks at the processes (processes.py). A short look that finds others at work is followed by a longer one, so that a job of an
instant is not called load.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seatrial.machine.host import usable_cpu_count
from seatrial.preflight.processes import Activity, Look, between, foreign_agents, take
from seatrial.preflight.question import Question
from seatrial.records.check import Check

SHORT_LOOK_S = 0.15
LONG_LOOK_S = 0.6
# What others may use without being called noise: half a core, or this part of all cores where that is more.
QUIET_CORES = 0.5
QUIET_RATIO = 0.1
_TIME_ERROR = 5
_TIMEX_BYTES = 512

FOREIGN = Question(
    name="other processes",
    looks_at="processor time of processes that are not ours, over a fraction of a second, and who they are",
    prevents="step times that are the neighbour's too, and repeats that disagree; no error is shown",
    fix="end them or wait (`top` shows them), then start",
)
LOAD = Question(
    name="load",
    looks_at="the load average against the processors, and processes that wait for a disk",
    prevents="start-up and data loading slower than on a quiet host; no error is shown",
    fix="wait until the load has gone down; `vmstat 1` shows whether it is processors (r) or disks (b)",
)
CAMPAIGN = Question(
    name="other campaigns",
    looks_at="agents of another Seatrial campaign on this host",
    prevents="two campaigns that measure each other; no error is shown",
    fix="wait for it, or `seatrial stop` its folder",
)
CLOCK = Question(
    name="clock",
    looks_at="whether the kernel holds the wall clock for synchronised",
    prevents="logs of several nodes that cannot be laid side by side",
    fix="start chrony or systemd-timesyncd",
    only_tells=True,
)
QUESTIONS = (FOREIGN, LOAD, CAMPAIGN, CLOCK)


@dataclass(frozen=True, kw_only=True)
class LoadFacts:
    """The host beside us."""

    activity: Activity
    load1: float
    cores: int
    agents: tuple[tuple[int, str], ...] = ()
    """(pid, path of its order) of other campaigns' agents."""
    clock_synchronised: bool | None = None


def checks(before: Look, sleep: Callable[[float], None] = time.sleep) -> Iterator[Check]:
    """Judge from `before`, taken when the checks began, until now."""
    cores = usable_cpu_count()
    after = _later(before, SHORT_LOOK_S, sleep)
    activity = between(before, after)
    if activity.foreign_cores >= quiet_cores(cores):
        activity = between(after, _later(after, LONG_LOOK_S, sleep))
    yield from judge(
        LoadFacts(
            activity=activity,
            load1=os.getloadavg()[0],
            cores=cores,
            agents=tuple(foreign_agents(after)),
            clock_synchronised=clock_is_synchronised(),
        )
    )


def _later(before: Look, span_s: float, sleep: Callable[[float], None]) -> Look:
    sleep(max(0.0, before.m + span_s - time.monotonic()))
    return take()


def quiet_cores(cores: int) -> float:
    """Cores that others may keep busy before they count as noise."""
    return max(QUIET_CORES, QUIET_RATIO * cores)


def judge(facts: LoadFacts) -> Iterator[Check]:
    activity = facts.activity
    named = ", ".join(str(user) for user in activity.users)
    busy = f"{activity.foreign_cores:.1f} of {facts.cores} cores in use by others"
    quiet = activity.foreign_cores < quiet_cores(facts.cores)
    who = named or "processes this container does not show"
    yield FOREIGN.answer(quiet, busy if quiet else f"{busy}: {who}")
    # The average of a minute lags: it only tells something while there is work in sight too.
    waiting = activity.blocked + activity.foreign_cores > facts.cores
    blocked = f", {activity.blocked} processes wait for a disk" if activity.blocked else ""
    yield LOAD.answer(facts.load1 <= 2 * facts.cores or not waiting, f"{facts.load1:.1f} on {facts.cores} processors{blocked}")
    yield CAMPAIGN.answer(not facts.agents, "; ".join(f"pid {pid} runs {order}" for pid, order in facts.agents) or "none")
    yield CLOCK.answer(True, {True: "synchronised", False: "not synchronised", None: "not told by the kernel"}[facts.clock_synchronised])


def clock_is_synchronised() -> bool | None:
    """By adjtimex(2), which only reads when nothing is to be changed; None where there is none."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
