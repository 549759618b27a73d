"""The training log, on stdout and in train.log: loss, timing windows and ETA in stage 1's formats.

2026-11-15 03:24:55,193 - seatrial - INFO - Step 50: Loss 3.2710

Rank 0 prints; other ranks only where the plan requests timing lines of every rank.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.core.text import format_hms
from seatrial.probe import StepRecord
from seatrial.probe.identity import RANK_SCOPES, integer_variable
from seatrial.probe.writer import LineFile
from seatrial.records import events
from seatrial.records.eta import GLOBAL_MAX, OFF, RANK0, EtaEstimator


def is_due(step: int, every: int | None) -> bool:
    """Whether a periodic action (checkpoint, validation) follows this step: never after step 0, nor where `every` is None."""
    return every is not None and step > 0 and step % every == 0


def is_logged(step: int, every: int, steps: int) -> bool:
    """Whether a step is logged: the first, every `every`-th and the last."""
    return step % every == 0 or step == steps - 1


ETA_MODES = (RANK0, GLOBAL_MAX, OFF)
COLUMNS = (*events.PHASES, "iter_ms")
FWD, BWD = events.PHASES.index("fwd_ms"), events.PHASES.index("bwd_ms")

AllReduceMax = Callable[[Sequence[float]], list[float]]
"""Element-wise maximum over all ranks; a collective call."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Which lines are logged."""

    window: int = 100
    """Steps in the rolling window of a Timing line."""
    eta_mode: str = RANK0
    eta_min_samples: int = 10
    """Timed steps before the first ETA."""
    rank_scope: str = "rank0"
    """`all`: every rank logs its own TimingRank lines."""

    def __post_init__(self) -> None:
        for name, value, known in (("ETA mode", self.eta_mode, ETA_MODES), ("rank scope", self.rank_scope, RANK_SCOPES)):
            if value not in known:
                raise ValueError(f"the {name} is '{value}'; expected one of {', '.join(known)}")
        for name, number in (("timing window", self.window), ("minimum number of ETA samples", self.eta_min_samples)):
            if number < 1:
                raise ValueError(f"the {name} is {number}; expected 1 or more")


def log_options_from(env: Mapping[str, str] = os.environ) -> LogOptions:
    """Options from the harness's variables; defaults for a start by hand."""
    default = LogOptions()
    return LogOptions(
        window=integer_variable(env, events.ENV_TIMING_WINDOW, default.window),
        eta_mode=env.get(events.ENV_ETA_MODE) or default.eta_mode,
        eta_min_samples=integer_variable(env, events.ENV_ETA_MIN_SAMPLES, default.eta_min_samples),
        rank_scope=env.get(events.ENV_RANK_SCOPE) or default.rank_scope,
    )


class TimingLines:
    """The timing lines of one rank. Every rank calls it at the same steps."""

    def __init__(
        self,
        rank: int,
        total_steps: int,
        recent: Callable[[], Sequence[StepRecord]],
        all_reduce_max: AllReduceMax = list,
        options: LogOptions | None = None,
    ) -> None:
        self._rank, self._total_steps = rank, total_steps
        self._recent, self._all_reduce_max = recent, all_reduce_max
        self._options = options or log_options_from()
        self._eta = EtaEstimator(total_steps, self._options.eta_min_samples)
        self._last_added = -1

    def lines_of_step(self, step: int, loss: float) -> list[str]:
        """Lines of this rank about the step that has just ended."""
        options, newest = self._options, self._recent()
        lines = timing_lines(newest, options.window) if self._rank == 0 else []
        if options.eta_mode != OFF:
            lines += self._eta_lines(step, newest)
        if newest and options.rank_scope == "all":
            lines.append(rank_line(step, self._rank, loss, newest[-1]))
        return lines

    def _eta_lines(self, step: int, newest: Sequence[StepRecord]) -> list[str]:
        if self._rank != 0 and self._options.eta_mode == RANK0:
            return []
        for record in newest:
            if record.step > self._last_added:
                self._eta.add(record.step, record.m, record.paused_s)
                self._last_added = record.step
        estimate = self._eta.estimate()
        eta_s, basis_ms = (estimate.eta_s, estimate.basis_iter_ms) if estimate else (0.0, 0.0)
        if self._options.eta_mode == GLOBAL_MAX:
            # A collective call: a rank without an estimate takes part too, or the others would wait for it.
            eta_s, basis_ms = self._all_reduce_max([eta_s, basis_ms])
        if estimate is None or self._rank != 0:
            return []
        return [
            f"TimingETA step={step} remain_steps={self._total_steps - 1 - step} eta_sec={eta_s:.1f} eta_hms={format_hms(eta_s)} "
            f"mode={self._options.eta_mode} basis_iter_ms={basis_ms:.2f} samples={estimate.samples}"
        ]


def timing_lines(newest: Sequence[StepRecord], window: int) -> list[str]:
    """Percentiles over the rolling window that ends with the newest step; no line where none of its steps has phases, as in a step that is
    one CUDA graph."""
    rows = [values for record in newest[-window:] if (values := phases_and_sum(record))]
    if not rows:
        return []
    parts = []
    for column, name in enumerate(COLUMNS):
        known = sorted(value for row in rows if (value := row[column]) is not None)
        parts.append(f"{name}:p50={quantile(known, 0.5):.2f} p90={quantile(known, 0.9):.2f}")
    return [f"Timing(window={window}): {' | '.join(parts)}"]


def rank_line(step: int, rank: int, loss: float, record: StepRecord) -> str:
    """Timing of the step itself, not of a window."""
    values = phases_and_sum(record) or (None,) * len(COLUMNS)
    pairs = (f"{name.removesuffix('_ms')}={math.nan if value is None else value:.2f}" for name, value in zip(COLUMNS, values, strict=True))
    return f"TimingRank step={step} rank={rank} loss={loss:.4f} {' '.join(pairs)}"


def phases_and_sum(record: StepRecord) -> tuple[float | None, ...] | None:
    """The five phases and their sum; None where forward or backward is unknown."""
    phases = record.phases_ms
    if phases[FWD] is None or phases[BWD] is None:
        return None
    return (*phases, sum(value for value in phases if value is not None))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile by linear interpolation; NaN for no values."""
    if not ordered:
        return math.nan
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


TRAIN_LOG = "train.log"


class TrainLog:
    """The log of one rank. Use as a context manager."""

    def __init__(self, run_dir: Path, rank: int, timing: TimingLines | None = None, *, wall: Callable[[], float] = time.time) -> None:
        self._run_dir, self._rank, self._timing, self._wall = run_dir, rank, timing, wall
        # Several ranks append, each line in one write; a full disk costs lines, not the run.
        self._train_log = LineFile(run_dir / TRAIN_LOG)

    def info(self, text: str) -> None:
        """Log one line on rank 0; a no-op on other ranks."""
        if self._rank == 0:
            self._write(text)

    def step(self, step: int, loss: float) -> None:
        """Log a step's loss and timing. Every rank calls it at the same steps."""
        self.info(f"Step {step}: Loss {loss:.4f}")
        self.timing(step, loss)

    def timing(self, step: int, loss: float) -> None:
        """Log a step's timing alone, for a workload with a loss line of its own. Every rank calls it at the same steps."""
        for line in self._timing.lines_of_step(step, loss) if self._timing else ():
            self._write(line)

    def _write(self, text: str) -> None:
        t = self._wall()
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(t))},{int(t * 1000) % 1000:03d} - seatrial - INFO - {text}"
        self._train_log.write([line])
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def __enter__(self) -> TrainLog:
        self.info(f"Writing to {self._run_dir}")
        return self

    def __exit__(self, *exception: object) -> None:
        self._train_log.close()
