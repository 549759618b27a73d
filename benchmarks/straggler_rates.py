"""How surely a slow rank is named, and how surely nobody is where nothing can be said.

    python benchmarks/straggler_rates.py

    slow in data_wait, meets in bwd     n  144  named 1.000
    …
    {"benchmark": "straggler_rates", "figures": {"named_fraction": 1.0, "abstained_fraction": 1.0, "false_named_fraction": 0.0, …}, …}

Simulated runs: 2 to 64 ranks, 50 to 500 steps, noise of 1 to 5 % in every phase, ranks that meet in bwd or in step, and one rank that
is slower by 10 to 50 % of a whole step's work. `named_fraction` is the share of them in which `find_straggler` names that rank and the
phase its time goes into; a rank slower by a tenth and more in everything, as on a GPU with lower clocks, must be named too. In other
runs phases are reported at every tenth step only, as on GPUs: 500 steps or more, since twenty with phases are needed.

Work inside the phase of the exchange cannot be seen from outside, as the others wait there: a rank that is slow in that phase
alone must never be named wrongly. These runs are counted apart: `inside_hinted_fraction` abstain and tell the right rank,
`inside_wrong_fraction` name or tell another. `pair_abstained_fraction` is of two ranks with phases at every tenth step, of which one is
slow in bwd and both meet in step: there bwd and step may be as likely the place to meet, and an abstention is the honest answer. Where
it is given, no rank is; `pair_wrong_fraction` counts the wrong ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from outcome import parser, report
from seatrial.analyse.stragglers import find_straggler
from seatrial.records.attempt import StepTables
from seatrial.records.events import PHASES, STEP_TABLE_COLUMNS
from seatrial.records.measure import Straggler, StragglerVerdict

AT_LEAST = {"named_fraction": 1.0, "abstained_fraction": 1.0}
AT_MOST = {"false_named_fraction": 0.0, "inside_wrong_fraction": 0.0, "pair_wrong_fraction": 0.0}
NAMES = tuple(name.removesuffix("_ms") for name in PHASES)
SHARES = {"even": (0.04, 0.06, 0.30, 0.45, 0.15), "compute": (0.005, 0.005, 0.33, 0.64, 0.02)}
"""How a step's work is shared out over the phases."""
QUICK_EVERY = 60
WORK_MS = 100.0
EXCHANGE_MS = 3.0
RANKS, STEPS, NOISE = (2, 3, 8, 64), (50, 120, 500), (0.01, 0.03, 0.05)
OFFSET_SD = 0.004
"""Healthy ranks differ too: by some tenths of a percent."""
EVERYTHING = "everything"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run; `slow_in` empty means that no rank is slow."""

    ranks: int
    steps: int
    noise: float
    meets_in: str
    slow_in: str = ""
    extra: float = 0.0
    shares: str = "even"
    phase_every: int = 1
    without: tuple[int, ...] = ()
    """Ranks that tell nothing."""
    number: int = 0

    @property
    def slow_rank(self) -> int:
        return (7 * self.number + 3) % self.ranks

    @property
    def what(self) -> str:
        every = f", phases each {self.phase_every}" if self.phase_every > 1 else ""
        return f"slow in {self.slow_in or 'nothing':10}, meets in {self.meets_in}{every}"


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    every = QUICK_EVERY if quick else 1
    visible = [*by_phase(), *by_everything()][::every]
    named = {case: run(case) for case in visible}
    for what, group in itertools.groupby(sorted(named, key=lambda case: case.what), key=lambda case: case.what):
        cases = list(group)
        print(f"{what:55} n {len(cases):4}  named {fraction([is_right(case, named[case]) for case in cases]):.3f}", flush=True)
    inside = {case: run(case) for case in [*by_inside()][::every]}
    pair = {case: run(case) for case in [*by_pair()][::every]}
    healthy = [run(case) for case in [*nobody_slow()][::every]]
    missing = [run(case) for case in ranks_missing(visible)]
    report(
        "straggler_rates",
        {
            "named_fraction": fraction([is_right(case, found) for case, found in named.items()]),
            "abstained_fraction": fraction([found.verdict is StragglerVerdict.ABSTAINED for found in missing]),
            "false_named_fraction": fraction([found.verdict is StragglerVerdict.NAMED for found in healthy]),
            "healthy_abstained_fraction": fraction([found.verdict is StragglerVerdict.ABSTAINED for found in healthy]),
            "inside_hinted_fraction": fraction([tells(case, found) for case, found in inside.items()]),
            "inside_wrong_fraction": fraction([is_wrong(case, found) for case, found in inside.items()]),
            "pair_abstained_fraction": fraction([found.verdict is StragglerVerdict.ABSTAINED for found in pair.values()]),
            "pair_wrong_fraction": fraction([is_wrong(case, found) for case, found in pair.items()]),
        },
        AT_MOST,
        AT_LEAST,
        quick=quick,
        n={"named": len(named), "abstained": len(missing), "false_named": len(healthy), "inside": len(inside), "pair": len(pair)},
        bwd="work inside the phase of the exchange cannot be seen; those runs are the inside_ figures",
    )


def by_phase() -> Iterator[Case]:
    """A rank slow in one phase, which is not that of the exchange."""
    settings = itertools.product(("bwd", "step"), NAMES, RANKS, STEPS, NOISE, (0.1, 0.25, 0.5))
    for number, (meets_in, slow_in, ranks, steps, noise, extra) in enumerate(settings):
        case = Case(ranks=ranks, steps=steps, noise=noise, meets_in=meets_in, slow_in=slow_in, extra=extra, number=number)
        if slow_in != meets_in:
            yield case
            if steps == STEPS[-1] and not is_ambiguous(case):
                yield replace(case, phase_every=10, shares="compute")


def is_ambiguous(case: Case) -> bool:
    """Two ranks that meet in step, one slow in bwd; or the other way round."""
    return case.ranks == 2 and {case.slow_in, case.meets_in} == {"bwd", "step"}


def by_everything() -> Iterator[Case]:
    settings = itertools.product(("bwd", "step"), RANKS, STEPS, NOISE, (0.1, 0.25), SHARES)
    for number, (meets_in, ranks, steps, noise, extra, shares) in enumerate(settings):
        yield Case(ranks=ranks, steps=steps, noise=noise, meets_in=meets_in, slow_in=EVERYTHING, extra=extra, shares=shares, number=number)


def by_inside() -> Iterator[Case]:
    settings = itertools.product(("bwd", "step"), RANKS, STEPS, NOISE, (0.1, 0.25, 0.5))
    for number, (phase, ranks, steps, noise, extra) in enumerate(settings):
        yield Case(ranks=ranks, steps=steps, noise=noise, meets_in=phase, slow_in=phase, extra=extra, number=number)


def by_pair() -> Iterator[Case]:
    for number, (noise, extra, repeat) in enumerate(itertools.product(NOISE, (0.1, 0.5), range(20))):
        slow_in, meets_in = (("bwd", "step"), ("step", "bwd"))[repeat % 2]
        yield Case(ranks=2, steps=300, noise=noise, meets_in=meets_in, slow_in=slow_in, extra=extra, phase_every=10, number=number)


def nobody_slow() -> Iterator[Case]:
    for number, (meets_in, ranks, steps, noise, shares) in enumerate(itertools.product(("bwd", "step"), RANKS, STEPS, NOISE, SHARES)):
        for repeat in range(5):
            yield Case(ranks=ranks, steps=steps, noise=noise, meets_in=meets_in, shares=shares, number=10 * number + repeat)


def ranks_missing(visible: Sequence[Case]) -> Iterator[Case]:
    """Of the runs with a slow rank, without that rank, without another one, and with rank 0 alone."""
    for case in visible[::5]:
        yield replace(case, without=(case.slow_rank,))
        yield replace(case, without=((case.slow_rank + 1) % case.ranks,))
        yield replace(case, without=tuple(range(1, case.ranks)))


def run(case: Case) -> Straggler:
    found = find_straggler(tables(case), None)
    assert found is not None, "more than one rank"
    return found


def tables(case: Case) -> StepTables:
    """What the ranks of such a run tell."""
    chance = np.random.default_rng([case.ranks, case.steps, int(case.noise * 100), case.number])
    phases = told_phases(own_work(case, chance), case.meets_in)
    wall = sum(phases.values(), start=np.zeros(()))
    if case.phase_every > 1:
        taken = np.arange(case.steps) % case.phase_every == 0
        phases = {name: values if name == "data_wait" else np.where(taken, values, np.nan) for name, values in phases.items()}
    columns = {
        "rank": np.repeat(np.arange(case.ranks), case.steps),
        "step": np.tile(np.arange(case.steps), case.ranks),
        "span": np.ones(case.ranks * case.steps, dtype=np.int64),
        "iter_ms": wall.ravel(),
        **{f"{name}_ms": values.ravel() for name, values in phases.items()},
    }
    steps = pl.DataFrame({name: columns.get(name, np.full(case.ranks * case.steps, np.nan)) for name in STEP_TABLE_COLUMNS})
    kept = steps.filter(~pl.col("rank").is_in(case.without)) if case.without else steps
    pauses = pl.DataFrame(schema={"rank": pl.Int64, "step": pl.Int64, "name": pl.String, "pause_ms": pl.Float64})
    return StepTables(source="events", steps=kept, pauses=pauses, world_size=case.ranks)


def own_work(case: Case, chance: np.random.Generator) -> dict[str, Floats]:
    """By phase, what each rank works in each step, in ms, waiting not counted."""
    shape = (case.ranks, case.steps)
    speed = 1 + chance.normal(0, OFFSET_SD, (case.ranks, 1))
    work = {}
    for name, share in zip(NAMES, SHARES[case.shares], strict=True):
        mean = np.full(shape, share * WORK_MS) * speed
        if case.slow_in == EVERYTHING:
            mean[case.slow_rank] *= 1 + case.extra
        elif case.slow_in == name:
            mean[case.slow_rank] += case.extra * WORK_MS
        work[name] = mean * np.exp(chance.normal(0, case.noise, shape))
    return work


def told_phases(work: dict[str, Floats], meets_in: str) -> dict[str, Floats]:
    """The phases as a clock sees them: that of the exchange ends for all when the last one has come."""
    at = NAMES.index(meets_in)
    since = np.sum([work[name] for name in NAMES[at + 1 :]] or [np.zeros_like(work[meets_in])], axis=0)
    arrival = np.sum([work[name] for name in NAMES[: at + 1]], axis=0)
    arrival[:, 1:] += since[:, :-1]
    return {**work, meets_in: work[meets_in] + arrival.max(axis=0) - arrival + EXCHANGE_MS}


def is_right(case: Case, found: Straggler) -> bool:
    """The rank, and its phase; of one that is slow in everything any phase of it that shows."""
    is_phase = found.phase == case.slow_in or case.slow_in == EVERYTHING
    return found.verdict is StragglerVerdict.NAMED and found.rank == case.slow_rank and is_phase


def tells(case: Case, found: Straggler) -> bool:
    return found.verdict is StragglerVerdict.ABSTAINED and found.rank == case.slow_rank


def is_wrong(case: Case, found: Straggler) -> bool:
    return found.rank not in (None, case.slow_rank) or (found.verdict is StragglerVerdict.NAMED and not is_right(case, found))


def fraction(answers: Sequence[bool]) -> float:
    return round(sum(answers) / len(answers), 4) if answers else float("nan")


if __name__ == "__main__":
    main()
