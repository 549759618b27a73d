"""Simulated training jobs for eta_error.py: when each step ended, and how much of that time named pauses took.

Every job has 200 to 5,000 steps of about 0.2 s, a first step 5 to 50 times longer than the rest (imports, allocator, compilation) and 1 to
3 % of noise from step to step; half of the jobs add half as much noise again, correlated over some twenty steps (a busy neighbour). On top
of that, by shape:

    steady               nothing else
    noisy                another 3 to 10 % of noise from step to step
    warm_up              the first 5 to 50 steps (at most a tenth of the run) are 1.5 to 8 times slower, constant or decaying
    drift_up             step times rise steadily, by 10 to 20 % from the first step to the last
    drift_down           step times fall steadily, by as much
    named_pauses         an evaluation every 25, 50, 100, 200, 250 or 500 steps, taking 1 to 10 % of its period, and in half of the jobs
                         a checkpoint with every second, fourth or fifth of them, taking 1 to 5 % of its own period; each occurs at
                         least four times in a run, and both are reported as named pauses
    unnamed_pauses       the same, but unreported: single long steps
    heavy_tails          one to four steps in two hundred, at random, are 1.5 to 4 times longer (a loader that falls behind)
    level_change         between 30 and 70 % of the run the step time changes by 10 to 20 %, up or down, for good, which no
                         estimator can foresee
    wander               step times vary slowly about their mean by 1 to 2 %, with a correlation time of 50 to 200 steps
    warm_named           warm-up and named pauses: the most common case
    warm_unnamed         warm-up and unnamed pauses
    warm_drift_named     warm-up, drift either way, named pauses
    warm_drift_unnamed   warm-up, drift either way, unnamed pauses
    warm_tails_named     warm-up, heavy tails, named pauses
    read_back            every 5, 10, 20, 25 or 50 steps the loop copies a value from the GPU and so waits for its queue: that step is
                         longer by 0.4 to 4 steps, ± 10 %, and the following one to eight are shorter by as much in total
    run_ahead            steps are launched asynchronously, in 0.01 to 0.9 of their time; every second to thirty-second one synchronises and
                         waits for the rest of all of them

The magnitudes are those of training on dedicated machines. They are no easier than real runs: the stage-1 benchmark's algorithm had errors
of 0.010 of the run (median) and 0.029 (p90) on a real job of 1,200 steps on two nodes, and has about 0.006 and 0.056 here. Every job has a
random generator seeded with its shape and number: it is the same on every machine.
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
# Largest reduction of a step after a wait, as a fraction of it.
MAX_REDUCTION = 0.75
STEP_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Job:
    """Timings of one job."""

    shape: str
    ends_s: list[float]
    """When each step ended."""
    iter_s: list[float]
    """Time of each step, without named pauses."""
    paused_s: list[float]
    """Total time in named pauses before the end of each step."""


@dataclass(kw_only=True)
class _JobBuilder:
    """A job under construction: the time of every step, and of its named pause."""

    rng: random.Random
    steps: list[float]
    pauses: list[float]


def _base(rng: random.Random) -> _JobBuilder:
    count = rng.randint(SHORTEST, LONGEST)
    noise = rng.uniform(0.01, 0.03)
    correlated = noise * 0.5 if rng.random() < 0.5 else 0.0
    steps, state = [], 0.0
    for _ in range(count):
        state = 0.95 * state + math.sqrt(1 - 0.95**2) * rng.gauss(0, correlated)
        steps.append(STEP_S * max(1 + rng.gauss(0, noise) + state, 0.3))
    steps[0] *= rng.uniform(5, 50)
    return _JobBuilder(rng=rng, steps=steps, pauses=[0.0] * count)


def _noise(job: _JobBuilder) -> None:
    size = job.rng.uniform(0.03, 0.1)
    for step in range(len(job.steps)):
        job.steps[step] *= max(1 + job.rng.gauss(0, size), 0.3)


def _warm_up(job: _JobBuilder) -> None:
    length, factor, is_flat = job.rng.randint(5, min(50, len(job.steps) // 10)), job.rng.uniform(1.5, 8), job.rng.random() < 0.5
    for step in range(length):
        job.steps[step] *= factor if is_flat else 1 + (factor - 1) * math.exp(-3 * step / length)


def _drift(job: _JobBuilder, sign: int) -> None:
    total = sign * job.rng.uniform(0.10, 0.20)
    for step in range(len(job.steps)):
        job.steps[step] *= 1 + total * step / (len(job.steps) - 1)


def _pauses(job: _JobBuilder, into: list[float]) -> None:
    count, rng = len(job.steps), job.rng
    with_checkpoints = rng.random() < 0.5
    times = MIN_TIMES * (2 if with_checkpoints else 1)
    every = rng.choice([every for every in PAUSE_EVERY if every * times < count] or PAUSE_EVERY[:1])
    eval_s = every * STEP_S * rng.uniform(0.01, 0.1)
    evals_per_checkpoint = rng.choice([each for each in (2, 4, 5) if each * every * MIN_TIMES < count] or [2]) if with_checkpoints else 0
    checkpoint_s = evals_per_checkpoint * every * STEP_S * rng.uniform(0.01, 0.05)
    for number, step in enumerate(range(every, count, every), start=1):
        into[step] += eval_s * rng.uniform(0.9, 1.1)
        if evals_per_checkpoint and number % evals_per_checkpoint == 0:
            into[step] += checkpoint_s * rng.uniform(0.8, 1.2)


def _tails(job: _JobBuilder) -> None:
    share = job.rng.uniform(0.005, 0.02)
    for step in range(len(job.steps)):
        if job.rng.random() < share:
            job.steps[step] *= job.rng.uniform(1.5, 4)


def _level_change(job: _JobBuilder) -> None:
    factor = 1 + job.rng.choice((-1, 1)) * job.rng.uniform(0.10, 0.20)
    for step in range(int(len(job.steps) * job.rng.uniform(0.3, 0.7)), len(job.steps)):
        job.steps[step] *= factor


def _wander(job: _JobBuilder) -> None:
    size, memory = job.rng.uniform(0.01, 0.02), job.rng.uniform(50, 200)
    keep, state = math.exp(-1 / memory), job.rng.gauss(0, size)
    for step in range(len(job.steps)):
        state = keep * state + math.sqrt(1 - keep**2) * job.rng.gauss(0, size)
        job.steps[step] *= 1 + state


def _read_back(job: _JobBuilder) -> None:
    every = job.rng.choice(READ_EVERY)
    wait = job.rng.uniform(0.4, min(4.0, MAX_REDUCTION * (every - 1)))
    least = math.ceil(wait / MAX_REDUCTION)
    after = job.rng.randint(least, min(least + 2, every - 1))
    for step in range(every, len(job.steps) - after, every):
        waited_s = wait * STEP_S * job.rng.uniform(0.9, 1.1)
        job.steps[step] += waited_s
        for short in range(step + 1, step + 1 + after):
            job.steps[short] = max(job.steps[short] - waited_s / after, 0.0)


def _run_ahead(job: _JobBuilder) -> None:
    every, launch = job.rng.choice(WAIT_EVERY), job.rng.uniform(0.01, 0.9)
    queued_s = 0.0
    for step in range(1, len(job.steps)):
        if step % every == 0:
            job.steps[step] += queued_s
            queued_s = 0.0
        else:
            queued_s += (1 - launch) * job.steps[step]
            job.steps[step] *= launch


def _either_way(job: _JobBuilder) -> None:
    _drift(job, job.rng.choice((-1, 1)))


SHAPES: dict[str, tuple[Callable[[_JobBuilder], None], ...]] = {
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
    """The job with this shape and number."""
    job = _base(random.Random(f"{shape}:{number}"))
    for change in SHAPES[shape]:
        change(job)
    ends_s, paused_s, now_s, paused = [], [], 0.0, 0.0
    for step_s, pause_s in zip(job.steps, job.pauses, strict=True):
        now_s, paused = now_s + step_s + pause_s, paused + pause_s
        ends_s.append(now_s)
        paused_s.append(paused)
    return Job(shape=shape, ends_s=ends_s, iter_s=job.steps, paused_s=paused_s)
