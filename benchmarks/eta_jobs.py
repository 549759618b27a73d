"""Simulated training jobs for eta_error.py: when each step ended, and how much of that time named pauses took.

Every job is 200 to 5,000 steps of about 0.2 s. All of them have a first step 5 to 50 times longer than the rest (imports, allocator,
compile) and a noise of 1 to 3 % from step to step; half of them have half as much noise again that lasts for some twenty steps (a busy
neighbour). On top of that, by shape:

    steady               nothing else
    noisy                another 3 to 10 % of noise from step to step
    warm_up              the first 5 to 50 steps (a tenth of the run at most) are 1.5 to 8 times slower, all alike or less and less
    drift_up             the pace slows down steadily, by 10 to 20 % from the first step to the last
    drift_down           the pace speeds up steadily, by as much
    named_pauses         an evaluation every 25, 50, 100, 200, 250 or 500 steps, which takes 1 to 10 % of the time between two, and in half
                         of the jobs a checkpoint with every second, fourth or fifth of them, that takes 1 to 5 % of its own; each comes
                         four times in a run at least, and both are told as named pauses
    unnamed_pauses       the same, but nothing says so: one step is long now and then
    heavy_tails          one to four steps in two hundred, at random, are 1.5 to 4 times longer (a loader that falls behind)
    level_change         somewhere between 30 and 70 % of the run the pace changes by 10 to 20 %, up or down, and stays there; before that
                         no estimator can know
    wander               the pace moves slowly about its mean by 1 to 2 %, with a memory of 50 to 200 steps
    warm_named           warm-up and named pauses: what most trainings look like
    warm_unnamed         warm-up and unnamed pauses
    warm_drift_named     warm-up, drift either way, named pauses
    warm_drift_unnamed   warm-up, drift either way, unnamed pauses
    warm_tails_named     warm-up, heavy tails, named pauses

The sizes are those of trainings on machines of one's own. They are no easier than real runs were: the stage-1 benchmark's algorithm, which
was off by 0.010 of the run in the median and 0.029 at p90 on a real job of 1,200 steps on two nodes, is off by about 0.008 and 0.058 here.
What is random is drawn from a generator seeded with the shape and a number: a job is the same on every machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

SHORTEST, LONGEST = 200, 5000
LEAST_TIMES = 4
PAUSE_EVERY = (25, 50, 100, 200, 250, 500)
STEP_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job as it was lived through."""

    shape: str
    ends_s: list[float]
    """When each step ended."""
    iter_s: list[float]
    """Time of each step, named pauses not in it."""
    paused_s: list[float]
    """All time in named pauses before the end of each step."""


@dataclass(kw_only=True)
class _Making:
    """A job under construction: time of every step, and of the named pause before its end."""

    chance: random.Random
    steps: list[float]
    pauses: list[float]


def _base(chance: random.Random) -> _Making:
    count = chance.randint(SHORTEST, LONGEST)
    noise = chance.uniform(0.01, 0.03)
    lasting = noise * 0.5 if chance.random() < 0.5 else 0.0
    steps, state = [], 0.0
    for _ in range(count):
        state = 0.95 * state + math.sqrt(1 - 0.95**2) * chance.gauss(0, lasting)
        steps.append(STEP_S * max(1 + chance.gauss(0, noise) + state, 0.3))
    steps[0] *= chance.uniform(5, 50)
    return _Making(chance=chance, steps=steps, pauses=[0.0] * count)


def _noise(job: _Making) -> None:
    size = job.chance.uniform(0.03, 0.1)
    for step in range(len(job.steps)):
        job.steps[step] *= max(1 + job.chance.gauss(0, size), 0.3)


def _warm_up(job: _Making) -> None:
    length, factor, is_flat = job.chance.randint(5, min(50, len(job.steps) // 10)), job.chance.uniform(1.5, 8), job.chance.random() < 0.5
    for step in range(length):
        job.steps[step] *= factor if is_flat else 1 + (factor - 1) * math.exp(-3 * step / length)


def _drift(job: _Making, sign: int) -> None:
    whole = sign * job.chance.uniform(0.10, 0.20)
    for step in range(len(job.steps)):
        job.steps[step] *= 1 + whole * step / (len(job.steps) - 1)


def _pauses(job: _Making, into: list[float]) -> None:
    count, chance = len(job.steps), job.chance
    every = chance.choice([every for every in PAUSE_EVERY if every * LEAST_TIMES <= count])
    eval_s = every * STEP_S * chance.uniform(0.01, 0.1)
    save_each = chance.choice([each for each in (2, 4, 5) if each * every * LEAST_TIMES <= count] or [0]) * chance.choice((0, 1))
    save_s = save_each * every * STEP_S * chance.uniform(0.01, 0.05)
    for number, step in enumerate(range(every, count, every), start=1):
        into[step] += eval_s * chance.uniform(0.9, 1.1)
        if save_each and number % save_each == 0:
            into[step] += save_s * chance.uniform(0.8, 1.2)


def _tails(job: _Making) -> None:
    share = job.chance.uniform(0.005, 0.02)
    for step in range(len(job.steps)):
        if job.chance.random() < share:
            job.steps[step] *= job.chance.uniform(1.5, 4)


def _level_change(job: _Making) -> None:
    factor = 1 + job.chance.choice((-1, 1)) * job.chance.uniform(0.10, 0.20)
    for step in range(int(len(job.steps) * job.chance.uniform(0.3, 0.7)), len(job.steps)):
        job.steps[step] *= factor


def _wander(job: _Making) -> None:
    size, memory, state = job.chance.uniform(0.01, 0.02), job.chance.uniform(50, 200), 0.0
    keep = math.exp(-1 / memory)
    for step in range(len(job.steps)):
        state = keep * state + math.sqrt(1 - keep**2) * job.chance.gauss(0, size)
        job.steps[step] *= 1 + state


def _either_way(job: _Making) -> None:
    _drift(job, job.chance.choice((-1, 1)))


SHAPES: dict[str, tuple[Callable[[_Making], None], ...]] = {
    "steady": (),
    "noisy": (_noise,),
    "warm_up": (_warm_up,),
    "drift_up": (lambda job: _drift(job, 1),),
    "drift_down": (lambda job: _drift(job, -1),),
    "named_pauses": (lambda job: _pauses(job, job.pauses),),
    "unnamed_pauses": (lambda job: _pauses(job, job.steps),),
    "heavy_tails": (_tails,),
    "level_change": (_level_change,),
    "wander": (_wander,),
    "warm_named": (_warm_up, lambda job: _pauses(job, job.pauses)),
    "warm_unnamed": (_warm_up, lambda job: _pauses(job, job.steps)),
    "warm_drift_named": (_warm_up, _either_way, lambda job: _pauses(job, job.pauses)),
    "warm_drift_unnamed": (_warm_up, _either_way, lambda job: _pauses(job, job.steps)),
    "warm_tails_named": (_warm_up, _tails, lambda job: _pauses(job, job.pauses)),
}


def simulate(shape: str, number: int) -> Job:
    """The job of this shape with this number."""
    job = _base(random.Random(f"{shape}:{number}"))
    for change in SHAPES[shape]:
        change(job)
    ends_s, paused_s, now_s, paused = [], [], 0.0, 0.0
    for step_s, pause_s in zip(job.steps, job.pauses, strict=True):
        now_s, paused = now_s + step_s + pause_s, paused + pause_s
        ends_s.append(now_s)
        paused_s.append(paused)
    return Job(shape=shape, ends_s=ends_s, iter_s=job.steps, paused_s=paused_s)
