"""torch.compile with a fallback to the plain function. In: a function and a warm-up. Out: the function to use, and why.

    model.encode_speech, choice = compile_or_fall_back(model.tower, warm_up, ranks=ranks, cannot_compile=engine.cannot_compile)

The warm-up runs the compiled function forward and backward once (an engine's `warm_up` does), so that a compile error shows here and not
in the first step. If one rank cannot compile, all fall back: ranks that round differently would drift apart. Gradients and random states
are restored.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from seatrial_workloads.common.checkpoints import random_states, restore_random_states
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective import Choice
from seatrial_workloads.common.errors import summarize_error

Function = Callable[..., Any]


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
    with _restoring_state(plain), warnings.catch_warnings():
        # Inductor leaves FFTs to torch, which is fine.
        warnings.filterwarnings(
            "ignore", message="Torchinductor does not support code generation for complex operators", category=UserWarning
        )
        try:
            warm_up(compiled)
        except Exception as error:
            failure = summarize_error(error)
    if not ranks.all_reduce_max([float(failure is not None)])[0]:
        return compiled, Choice(True, True, f"compiled, mode {mode}")
    torch._dynamo.reset()
    return plain, Choice(True, False, failure or "another rank could not compile")


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
