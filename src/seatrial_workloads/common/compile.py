"""torch.compile with a fallback to the plain function. In: a function and a warm-up. Out: the function to use, and why; recompilations
during training.

    model.encode_speech, choice = compile_or_fall_back(model.tower, warm_up, ranks=ranks, cannot_compile=engine.cannot_compile)
    recompiles = RecompileWatch(choice)
    … recompiles.report(step, probe)

The warm-up runs the compiled function forward and backward (an engine's `warm_up` does) with every kind of input that training has, so
that a compile error shows here and no timed step compiles anything. If one rank cannot compile, all fall back: ranks that round differently
would drift apart. Gradients and random states are restored.

Beyond its recompile limit torch runs a function without compiling it and only logs that. `LimitListener` reads this log: such a function
counts as not compiled.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from seatrial_workloads.common.checkpoints import random_states, restore_random_states
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.errors import summarize_error

if TYPE_CHECKING:
    from seatrial.probe import Probe

Function = Callable[..., Any]
# The report shows a reason with this prefix as a caution.
CAUTION = "caution: "
# This logger's message is "torch._dynamo hit config.%s (%s)", with the limit, its value, the function and the last guard.
LIMIT_LOGGER, LIMIT_MESSAGE = "torch._dynamo.convert_frame", "torch._dynamo hit config."


def compile_or_fall_back(
    plain: Function | nn.Module,
    warm_up: Callable[[Function], object],
    *,
    ranks: Ranks,
    mode: str = "default",
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    cannot_compile: str | None = None,
) -> tuple[Function, Choice]:
    """The compiled function, or the plain one with the error (or `cannot_compile`, an engine's reason). Only the forward of a module is
    compiled: parameter names do not change, and hooks stay outside."""
    if cannot_compile:
        return plain, Choice(True, False, cannot_compile)
    function = plain.forward if isinstance(plain, nn.Module) else plain
    compiled = torch.compile(function, backend=backend, mode=None if mode == "default" else mode, dynamic=dynamic)
    failure = None
    with _restoring_state(plain), warnings.catch_warnings(), LimitListener() as limit:
        # Inductor leaves FFTs to torch, which is fine.
        warnings.filterwarnings(
            "ignore", message="Torchinductor does not support code generation for complex operators", category=UserWarning
        )
        try:
            warm_up(compiled)
        except Exception as error:
            failure = summarize_error(error)
    failure = ranks.agreed_problem(failure or limit.reason or None, "another rank could not compile")
    if failure is None:
        return compiled, Choice(True, True, f"compiled, mode {mode}")
    torch._dynamo.reset()
    return plain, Choice(True, False, failure)


class LimitListener(logging.Handler):
    """Detects that torch gave up compiling a function; a context manager, or `listen` and `close`."""

    reason = ""
    """The limit that was hit, and by what; empty for none."""

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, str) and record.msg.startswith(LIMIT_MESSAGE) and not self.reason:
            lines = [line.strip() for line in record.getMessage().splitlines()]
            guard = next((line for line in lines if line.startswith("last reason:")), "")
            self.reason = "; ".join(filter(None, (f"torch stopped compiling it: {lines[0].removeprefix('torch._dynamo ')}", guard)))

    def listen(self) -> LimitListener:
        logging.getLogger(LIMIT_LOGGER).addHandler(self)
        return self

    def close(self) -> None:
        logging.getLogger(LIMIT_LOGGER).removeHandler(self)
        super().close()

    def __enter__(self) -> LimitListener:
        return self.listen()

    def __exit__(self, *exception: object) -> None:
        self.close()


class RecompileWatch:
    """Counts recompilations during the steps; create it after the one-time work before the first step."""

    def __init__(self, choice: Choice, setting: str = "torch_compile") -> None:
        self._choice, self._setting = choice, setting
        self._limit = LimitListener().listen()
        self._before, self._reported = _num_compiled(), 0

    @property
    def num_recompiles(self) -> int:
        return _num_compiled() - self._before

    def report(self, step: int, probe: Probe) -> Choice | None:
        """Report the count up to `step` as a figure, and a change of it as the setting's effective value, which is returned too."""
        num_recompiles = self.num_recompiles
        probe.figure("recompiles", num_recompiles, n=step + 1)
        if num_recompiles == self._reported:
            return None
        self._reported = num_recompiles
        if self._limit.reason:
            self._choice = Choice(True, False, f"{CAUTION}{self._limit.reason}, by step {step}")
        elif self._choice.effective:
            found = f"compiled again {num_recompiles} times up to step {step}, in timed steps"
            self._choice = Choice(True, True, f"{CAUTION}{found}: see which guard failed with TORCH_LOGS=recompiles")
        probe.effective(self._setting, requested=True, effective=self._choice.effective, reason=self._choice.reason)
        return self._choice

    def close(self) -> None:
        self._limit.close()


def _num_compiled() -> int:
    """Functions, or parts of them, that torch.compile has compiled in this process."""
    # Imported here: it takes a second, which only a training with torch.compile needs.
    from torch._dynamo.utils import counters

    return int(counters["frames"]["total"])


@contextlib.contextmanager
def _restoring_state(plain: Function | nn.Module) -> Iterator[None]:
    parameters = list(plain.parameters()) if isinstance(plain, nn.Module) else []
    gradients, states = [parameter.grad for parameter in parameters], random_states()
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        restore_random_states(states)
