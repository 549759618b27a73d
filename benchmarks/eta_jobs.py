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
                         four times in a run at least, and both are reported as named pauses
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
    read_back            every 5, 10, 20, 25 or 50 steps the loop reads a value back and waits for what the GPU has queued: that step is
                         longer by 0.4 to 4 steps, give or take a tenth, and the one to eight after it are shorter by as much in all
    run_ahead            steps are only launched, in 0.01 to 0.9 of their time, but for every second to thirty-second one, which waits for
                         what is left of all of them

The sizes are those of trainings on machines of one's own. They are no easier than real runs were: the stage-1 benchmark's algorithm, which
was off by 0.010 of the run in the median and 0.029 at p90 on a real job of 1,200 steps on two nodes, is off by about 0.006 and 0.056 here.
What is random is drawn from a generator seeded with the shape and a number: a job is the same on every machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

SHORTEST, LONGEST = 200, 5000
MIN_TIMES = 4
PAUSE_EVERY = (25, 50, 100, 200, 250, 500)
READ_EVERY = (5, 10, 20, 25, 50)
WAIT_EVERY = (2, 3, 4, 5, 8, 10, 16, 20, 25, 32)
# What a step can be shorter by after a wait, as a share of it.
MAX_SHORTER = 0.75
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
    with_saves = chance.random() < 0.5
    times = MIN_TIMES * (2 if with_saves else 1)
    every = chance.choice([every for every in PAUSE_EVERY if every * times < count] or PAUSE_EVERY[:1])
    eval_s = every * STEP_S * chance.uniform(0.01, 0.1)
    save_each = chance.choice([each for each in (2, 4, 5) if each * every * MIN_TIMES < count] or [2]) if with_saves else 0
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
    size, memory = job.chance.uniform(0.01, 0.02), job.chance.uniform(50, 200)
    keep, state = math.exp(-1 / memory), job.chance.gauss(0, size)
    for step in range(len(job.steps)):
        state = keep * state + math.sqrt(1 - keep**2) * job.chance.gauss(0, size)
        job.steps[step] *= 1 + state


def _read_back(job: _Making) -> None:
    every = job.chance.choice(READ_EVERY)
    wait = job.chance.uniform(0.4, min(4.0, MAX_SHORTER * (every - 1)))
    least = math.ceil(wait / MAX_SHORTER)
    after = job.chance.randint(least, min(least + 2, every - 1))
    for step in range(every, len(job.steps) - after, every):
        waited_s = wait * STEP_S * job.chance.uniform(0.9, 1.1)
        job.steps[step] += waited_s
        for short in range(step + 1, step + 1 + after):
            job.steps[short] = max(job.steps[short] - waited_s / after, 0.0)


def _run_ahead(job: _Making) -> None:
    every, launch = job.chance.choice(WAIT_EVERY), job.chance.uniform(0.01, 0.9)
    queued_s = 0.0
    for step in range(1, len(job.steps)):
        if step % every == 0:
            job.steps[step] += queued_s
            queued_s = 0.0
        else:
            queued_s += (1 - launch) * job.steps[step]
            job.steps[step] *= launch


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
    "read_back": (_read_back,),
    "run_ahead": (_run_ahead,),
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
