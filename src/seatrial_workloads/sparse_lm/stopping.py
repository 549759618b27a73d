"""Ways in which a training ends before its last step: `.HALT`, TERM, a loss that is not finite, an injected fault. All ranks agree on
the step.

Each step one small all-reduce carries the flags of all ranks, with the loss; its result is read one step later, so that no
rank waits for it and all see the same.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from seatrial.core.paths import AttemptPaths
from seatrial.probe.identity import process_t
from seatrial.records.sparse_lm_halt import Halt, read_halt
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.sparse_lm.settings import parse_fault

# A launcher kills what has not ended 30 s after its TERM.
TERM_GRACE_S = 25.0
POLL_S = 0.2
EXIT_TERM = 128 + signal.SIGTERM
EXIT_HALT = 4


@dataclass(frozen=True, kw_only=True)
class StepValues:
    """Values of a step that all ranks share, read one step later."""

    step: int
    loss: float
    """Mean over the global batch."""
    is_finite: bool
    halts: bool
    terminates: bool
    local: list[float]
    """This rank's own values."""
    step_s: float
    """Time on the device from the end of the step before to the end of this one, without pauses."""
    data_wait_s: float


class DeviceReadout:
    """Values of the newest steps, read from the device without waiting."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._on_gpu = ranks.device.type == "cuda"
        self._pending: deque[tuple[int, Tensor, Any, float]] = deque()
        self.restart_clock()

    def restart_clock(self) -> None:
        """The next step is timed from here: called after a pause, with nothing pending."""
        self._before = self._mark()

    def _mark(self) -> Any:
        """A CUDA event, or the time on a CPU."""
        if not self._on_gpu:
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def put(self, step: int, loss_share: Tensor, *, halts: bool, terminates: bool, local: list[Tensor], data_wait_s: float = 0.0) -> None:
        """`loss_share` is this rank's part of the global mean."""
        device = loss_share.device
        # Filled on the device: a tensor from a Python number would be copied to it synchronously.
        flags = [torch.full((), float(flag), device=device) for flag in (halts, terminates)]
        agreed = torch.stack([loss_share.float(), (~torch.isfinite(loss_share)).float(), *flags])
        if self._ranks.world_size > 1:
            dist.all_reduce(agreed)
        values = torch.cat([agreed, torch.stack([value.detach().float() for value in local])]) if local else agreed
        if self._on_gpu:
            values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values, non_blocking=True)
        self._pending.append((step, values, self._mark(), data_wait_s))

    def take(self, *, leave: int = 1) -> list[StepValues]:
        """Values of all steps but the newest `leave`."""
        return [self._read(*self._pending.popleft()) for _ in range(len(self._pending) - leave)]

    def _read(self, step: int, values: Tensor, mark: Any, data_wait_s: float) -> StepValues:
        if self._on_gpu:
            mark.synchronize()
        step_s = self._before.elapsed_time(mark) / 1000 if self._on_gpu else mark - self._before
        self._before = mark
        loss, not_finite, halts, terminates, *local = values.tolist()
        return StepValues(
            step=step,
            loss=loss,
            is_finite=not not_finite,
            halts=halts > 0,
            terminates=terminates > 0,
            local=local,
            step_s=max(step_s, 1e-9),
            data_wait_s=data_wait_s,
        )


class HaltPoll:
    """Reads `.HALT` on rank 0, a few times a second. A stale one, of another run or attempt or from before this run, is reported once and
    ignored."""

    def __init__(self, run_dir: Path, run_id: str, attempt: int, log: Callable[[str], None]) -> None:
        self._path, self._run_id, self._attempt, self._log = AttemptPaths(run_dir).watchdog_halt, run_id, attempt, log
        self._next_s = 0.0
        self._ignored: Halt | None = None
        # Times are compared only for a file that exists now: the clock of a file server may differ from this host's.
        left = read_halt(self._path)
        self._left_t = left.written_t if left is not None and predates_process(left) else None
        self.found: Halt | None = None

    def wants_end(self, step: int) -> bool:
        """Whether `step` is the last but one: the other ranks are informed one step later."""
        if self.found is None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + POLL_S
            self.look()
        return self.found is not None and (self.found.at_step is None or step + 2 >= self.found.at_step)

    def look(self) -> None:
        """Read the file once."""
        halt = read_halt(self._path)
        if halt is None or (halt == self._ignored and halt.written_t == self._ignored.written_t):
            return
        if not halt.concerns(self._run_id, self._attempt):
            why = f"it is for run {halt.run or '?'}, attempt {halt.attempt}, not for this one"
        elif not halt.run and halt.written_t == self._left_t:
            why = "it is older than this run; touch it again to end this run"
        else:
            self.found = halt
            return
        self._ignored = halt
        self._log(f"[halt] ignored {self._path.name}: {why}")


def predates_process(halt: Halt) -> bool:
    """Whether it was written before this process began; False where that is unknown."""
    began_t = process_t()
    return halt.written_t is not None and began_t is not None and halt.written_t < began_t


class TermSignal:
    """TERM as a flag. The main thread may be stuck in C, where no Python handler runs: a thread is woken by a pipe, and ends the process,
    with its stacks, if the loop has not ended it within TERM_GRACE_S."""

    def __init__(self, stacks: Path) -> None:
        self.received = False
        self._stacks = stacks
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self._writer = writer
        self._done = threading.Event()
        self._before = signal.signal(signal.SIGTERM, self._handle)
        self._before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, name="term", daemon=True).start()

    def _handle(self, number: int, frame: Any) -> None:
        self.received = True

    def _wait(self) -> None:
        while number := os.read(self._reader, 1):
            if number[0] == signal.SIGTERM:
                self.received = True
                if not self._done.wait(TERM_GRACE_S):
                    self._stacks.parent.mkdir(parents=True, exist_ok=True)
                    with open(self._stacks, "a", encoding="utf-8") as out:
                        faulthandler.dump_traceback(out)
                    os._exit(EXIT_TERM)
                return

    def close(self) -> None:
        self._done.set()
        signal.set_wakeup_fd(self._before_fd)
        signal.signal(signal.SIGTERM, self._before)
        # Ends the thread's read.
        os.close(self._writer)


def inject_fault(fault: str | None, step: int, ranks: Ranks, loss: Tensor) -> Tensor:
    """Apply the setting `fault`, on the last rank."""
    found = parse_fault(fault)
    if found is None or found.step != step or ranks.rank != ranks.world_size - 1:
        return loss
    if found.kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if found.kind == "hang":
        # Inside the backward pass, where Python's own signal handlers do not run.
        loss.register_hook(lambda gradient: threading.Event().wait())
    return loss * float("nan") if found.kind == "nan" else loss
