"""What each step of a rank consists of: which examples, how many tokens; and the times of the run's steady part.

The window begins after the first steps, which carry compilation, allocation and the first collectives, and leaves out checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial_workloads.sft.metrics import Window

WARM_UP_SHARE, LONGEST_WARM_UP = 5, 10


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """One forward pass of one rank."""

    ids: tuple[int, ...]
    """Numbers of its examples in the dataset."""
    lengths: tuple[int, ...]
    computed: int
    learnt: int

    @property
    def real(self) -> int:
        return sum(self.lengths)

    @property
    def attended(self) -> int:
        """Tokens that its tokens attend to: causal, within each example."""
        return sum(length * (length + 1) // 2 for length in self.lengths)


@dataclass(frozen=True, kw_only=True)
class StepCounts:
    """One optimiser step of one rank."""

    epoch: int
    batches: tuple[BatchCounts, ...]

    @property
    def ids(self) -> list[int]:
        return [number for batch in self.batches for number in batch.ids]

    def total(self, name: str) -> int:
        return sum(getattr(batch, name) for batch in self.batches)


def warm_up_steps(steps: int) -> int:
    """Steps before the window: a fifth, at least one and at most ten."""
    return max(1, min(LONGEST_WARM_UP, steps // WARM_UP_SHARE))


@dataclass
class StepCounter:
    """Steps of one rank, in order, and when they ended."""

    steps_to_run: int
    """Steps of this attempt: a resumed one has fewer than the run."""
    synchronize: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    steps: list[StepCounts] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    first_begin: float | None = None
    first_end: float | None = None
    window_begin: float | None = None
    window_end: float | None = None
    window_first: int = 0
    paused_s: float = 0.0

    def add(self, epoch: int, batches: Iterable[BatchCounts]) -> StepCounts:
        self.steps.append(StepCounts(epoch=epoch, batches=tuple(batches)))
        return self.steps[-1]

    def step_begins(self) -> None:
        if self.first_begin is None:
            self.first_begin = self.clock()

    def step_ended(self, *, is_last: bool) -> None:
        """Waits for the device only at the window's borders."""
        ended = len(self.steps)
        if ended == 1:
            self.synchronize()
            self.first_end = self.clock()
        if ended == warm_up_steps(self.steps_to_run):
            self.synchronize()
            self.window_begin, self.window_first = self.clock(), ended
        if is_last:
            self.synchronize()
            self.window_end = self.clock()

    def paused(self, seconds: float) -> None:
        """Record the pause of a checkpoint, if it lies in the window."""
        if self.window_begin is not None and self.window_end is None:
            self.paused_s += seconds

    def window(self, gather: Callable[[Any], Sequence[Any]]) -> Window:
        """The window of all ranks; `gather` collects a value from each. Its time is the longest of any rank."""
        steady = self.steps[self.window_first :] if self.window_begin is not None else []
        has_end = self.window_begin is not None and self.window_end is not None and bool(steady)
        seconds = self.window_end - self.window_begin - self.paused_s if has_end else 0.0  # type: ignore[operator]
        own = {name: sum(step.total(name) for step in steady) for name in ("real", "computed", "learnt", "attended")}
        all_ranks = gather({**own, "seconds": seconds})
        return Window(
            steps=len(steady),
            seconds=max(rank["seconds"] for rank in all_ranks),
            real_tokens=sum(rank["real"] for rank in all_ranks),
            computed_tokens=sum(rank["computed"] for rank in all_ranks),
            learnt_tokens=sum(rank["learnt"] for rank in all_ranks),
            attended_tokens=sum(rank["attended"] for rank in all_ranks),
        )

    def times(self, begin: float, window: Window, *, compiled: bool) -> dict[str, Any]:
        """Times outside the window: start-up, and how much longer the first step took than a steady one."""
        first_s = self.first_end - self.first_begin if self.first_end is not None and self.first_begin is not None else None
        step_s = window.seconds / window.steps if window.steps else None
        return {
            "steps": len(self.steps),
            "startup_s": None if self.first_begin is None else self.first_begin - begin,
            "first_step_s": first_s,
            "steady_step_s": step_s,
            "compile_s": first_s - step_s if compiled and first_s is not None and step_s is not None else None,
        }


def shared_samples(ranks: Sequence[Sequence[StepCounts]]) -> int:
    """Examples that more than one rank had in the same epoch; 0 where the ranks' samples are disjoint."""
    owners: dict[tuple[int, int], set[int]] = {}
    for rank, steps in enumerate(ranks):
        for step in steps:
            for number in step.ids:
                owners.setdefault((step.epoch, number), set()).add(rank)
    return sum(len(who) > 1 for who in owners.values())
