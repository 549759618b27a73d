"""Detection rate and false alarms of the straggler analysis.

    python benchmarks/straggler_rates.py

    slow in data_wait , syncs in bwd                        n  144  named 1.000
    …
    {"benchmark": "straggler_rates", "figures": {"named_fraction": 1.0, "abstained_fraction": 1.0, "false_named_fraction": 0.0, …}, …}

Simulated runs: 2 to 64 ranks that synchronise in bwd or in step, 50 to 500 steps, noise of 1 to 5 % in every phase, and one rank that is
slower by 10 to 50 % of a step's work. `named_fraction` is the share in which `find_straggler` names that rank and its slow phase; a rank
that is 10 or 25 % slower in all phases, as on a GPU with lower clocks, must be named too. Some runs of 500 steps report phases at every
tenth step only, as on GPUs. `abstained_fraction` is of runs without the events of some ranks, `false_named_fraction` of runs without a
slow rank.

Work inside the synchronising phase is not visible, since the others wait there; a rank that is slow in this phase only must never be
misnamed. These runs are counted apart: `inside_hinted_fraction` abstain with a hint at the right rank, `inside_wrong_fraction` name or hint
at another. `pair_abstained_fraction` is of two ranks with phases at every tenth step, one slow in bwd while both synchronise in step, or
the reverse: either phase may be the synchronising one, so abstaining is right. `pair_wrong_fraction` counts wrong ranks.
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
"""Share of each phase in the work of a step."""
QUICK_EVERY = 60
WORK_MS = 100.0
EXCHANGE_MS = 3.0
RANKS, STEPS, NOISE = (2, 3, 8, 64), (50, 120, 500), (0.01, 0.03, 0.05)
OFFSET_SD = 0.004
"""Healthy ranks differ too, by some tenths of a percent."""
ALL_PHASES = "all phases"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run; without `slow_in`, no rank is slow."""

    ranks: int
    steps: int
    noise: float
    sync_phase: str
    slow_in: str = ""
    extra: float = 0.0
    shares: str = "even"
    phase_every: int = 1
    missing_ranks: tuple[int, ...] = ()
    """Ranks without events."""
    number: int = 0

    @property
    def slow_rank(self) -> int:
        return (7 * self.number + 3) % self.ranks

    @property
    def label(self) -> str:
        every = f", phases every {self.phase_every}" if self.phase_every > 1 else ""
        return f"slow in {self.slow_in or 'nothing':10}, syncs in {self.sync_phase}{every}"


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    every = QUICK_EVERY if quick else 1
    visible = [*slow_in_one_phase(), *slow_in_all_phases()][::every]
    named = {case: run(case) for case in visible}
    for label, group in itertools.groupby(sorted(named, key=lambda case: case.label), key=lambda case: case.label):
        cases = list(group)
        print(f"{label:55} n {len(cases):4}  named {fraction([is_right(case, named[case]) for case in cases]):.3f}", flush=True)
    inside = {case: run(case) for case in [*slow_in_sync_phase()][::every]}
    pair = {case: run(case) for case in [*ambiguous_pairs()][::every]}
    healthy = [run(case) for case in [*no_slow_rank()][::every]]
    missing = [run(case) for case in with_missing_ranks(visible)]
    report(
        "straggler_rates",
        {
            "named_fraction": fraction([is_right(case, found) for case, found in named.items()]),
            "abstained_fraction": fraction([found.verdict is StragglerVerdict.ABSTAINED for found in missing]),
            "false_named_fraction": fraction([found.verdict is StragglerVerdict.NAMED for found in healthy]),
            "healthy_abstained_fraction": fraction([found.verdict is StragglerVerdict.ABSTAINED for found in healthy]),
            "inside_hinted_fraction": fraction([is_hinted(case, found) for case, found in inside.items()]),
            "inside_wrong_fraction": fraction([is_wrong(case, found) for case, found in inside.items()]),
            "pair_abstained_fraction": fraction([found.verdict is StragglerVerdict.ABSTAINED for found in pair.values()]),
            "pair_wrong_fraction": fraction([is_wrong(case, found) for case, found in pair.items()]),
        },
        AT_MOST,
        AT_LEAST,
        quick=quick,
        n={"named": len(named), "abstained": len(missing), "false_named": len(healthy), "inside": len(inside), "pair": len(pair)},
        bwd="work inside the synchronising phase is not visible; those runs are the inside_ figures",
    )


def slow_in_one_phase() -> Iterator[Case]:
    """A rank slow in one phase other than the synchronising one."""
    settings = itertools.product(("bwd", "step"), NAMES, RANKS, STEPS, NOISE, (0.1, 0.25, 0.5))
    for number, (sync_phase, slow_in, ranks, steps, noise, extra) in enumerate(settings):
        case = Case(ranks=ranks, steps=steps, noise=noise, sync_phase=sync_phase, slow_in=slow_in, extra=extra, number=number)
        if slow_in != sync_phase:
            yield case
            if steps == STEPS[-1] and not is_ambiguous(case):
                yield replace(case, phase_every=10, shares="compute")


def is_ambiguous(case: Case) -> bool:
    """Two ranks that synchronise in step, one of them slow in bwd, or the reverse."""
    return case.ranks == 2 and {case.slow_in, case.sync_phase} == {"bwd", "step"}


def slow_in_all_phases() -> Iterator[Case]:
    settings = itertools.product(("bwd", "step"), RANKS, STEPS, NOISE, (0.1, 0.25), SHARES)
    for number, (sync_phase, ranks, steps, noise, extra, shares) in enumerate(settings):
        yield Case(
            ranks=ranks, steps=steps, noise=noise, sync_phase=sync_phase, slow_in=ALL_PHASES, extra=extra, shares=shares, number=number
        )


def slow_in_sync_phase() -> Iterator[Case]:
    settings = itertools.product(("bwd", "step"), RANKS, STEPS, NOISE, (0.1, 0.25, 0.5))
    for number, (phase, ranks, steps, noise, extra) in enumerate(settings):
        yield Case(ranks=ranks, steps=steps, noise=noise, sync_phase=phase, slow_in=phase, extra=extra, number=number)


def ambiguous_pairs() -> Iterator[Case]:
    for number, (noise, extra, repeat) in enumerate(itertools.product(NOISE, (0.1, 0.5), range(20))):
        slow_in, sync_phase = (("bwd", "step"), ("step", "bwd"))[repeat % 2]
        yield Case(ranks=2, steps=300, noise=noise, sync_phase=sync_phase, slow_in=slow_in, extra=extra, phase_every=10, number=number)


def no_slow_rank() -> Iterator[Case]:
    for number, (sync_phase, ranks, steps, noise, shares) in enumerate(itertools.product(("bwd", "step"), RANKS, STEPS, NOISE, SHARES)):
        for repeat in range(5):
            yield Case(ranks=ranks, steps=steps, noise=noise, sync_phase=sync_phase, shares=shares, number=10 * number + repeat)


def with_missing_ranks(visible: Sequence[Case]) -> Iterator[Case]:
    """Runs with a slow rank, without its events, without another rank's, and with rank 0's only."""
    for case in visible[::5]:
        yield replace(case, missing_ranks=(case.slow_rank,))
        yield replace(case, missing_ranks=((case.slow_rank + 1) % case.ranks,))
        yield replace(case, missing_ranks=tuple(range(1, case.ranks)))


def run(case: Case) -> Straggler:
    found = find_straggler(simulate(case), None)
    assert found is not None, "more than one rank"
    return found


def simulate(case: Case) -> StepTables:
    """Step times and phases that the ranks of this run report."""
    rng = np.random.default_rng([case.ranks, case.steps, int(case.noise * 100), case.number])
    phases = measured_phases(own_work(case, rng), case.sync_phase)
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
    kept = steps.filter(~pl.col("rank").is_in(case.missing_ranks)) if case.missing_ranks else steps
    pauses = pl.DataFrame(schema={"rank": pl.Int64, "step": pl.Int64, "name": pl.String, "pause_ms": pl.Float64})
    return StepTables(source="events", steps=kept, pauses=pauses, world_size=case.ranks)


def own_work(case: Case, rng: np.random.Generator) -> dict[str, Floats]:
    """Work by phase of each rank in each step, in ms, without waiting."""
    shape = (case.ranks, case.steps)
    speed = 1 + rng.normal(0, OFFSET_SD, (case.ranks, 1))
    work = {}
    for name, share in zip(NAMES, SHARES[case.shares], strict=True):
        mean = np.full(shape, share * WORK_MS) * speed
        if case.slow_in == ALL_PHASES:
            mean[case.slow_rank] *= 1 + case.extra
        elif case.slow_in == name:
            mean[case.slow_rank] += case.extra * WORK_MS
        work[name] = mean * np.exp(rng.normal(0, case.noise, shape))
    return work


def measured_phases(work: dict[str, Floats], sync_phase: str) -> dict[str, Floats]:
    """Measured phases: the synchronising one ends for all ranks when the last one has arrived."""
    at = NAMES.index(sync_phase)
    since = np.sum([work[name] for name in NAMES[at + 1 :]] or [np.zeros_like(work[sync_phase])], axis=0)
    arrival = np.sum([work[name] for name in NAMES[: at + 1]], axis=0)
    arrival[:, 1:] += since[:, :-1]
    return {**work, sync_phase: work[sync_phase] + arrival.max(axis=0) - arrival + EXCHANGE_MS}


def is_right(case: Case, found: Straggler) -> bool:
    """The rank and its phase are named; any phase if it is slow in all of them."""
    is_phase = found.phase == case.slow_in or case.slow_in == ALL_PHASES
    return found.verdict is StragglerVerdict.NAMED and found.rank == case.slow_rank and is_phase


def is_hinted(case: Case, found: Straggler) -> bool:
    return found.verdict is StragglerVerdict.ABSTAINED and found.rank == case.slow_rank


def is_wrong(case: Case, found: Straggler) -> bool:
    return found.rank not in (None, case.slow_rank) or (found.verdict is StragglerVerdict.NAMED and not is_right(case, found))


def fraction(answers: Sequence[bool]) -> float:
    return round(sum(answers) / len(answers), 4) if answers else float("nan")


if __name__ == "__main__":
    main()
