"""torch.compile, or the plain function where it does not work. In: a function and a warm-up. Out: the one to use, and why.

    model.encode_speech, choice = compile_or_fall_back(model.tower, warm_up, ranks=ranks, cannot_compile=engine.cannot_compile)

The warm-up is given the compiled function and runs it forward and backward once (an engine's `warm_up` does, without a trace): what
cannot be compiled is found out here and not in the first step. A rank that cannot compile makes all fall back, since ranks that
round differently would drift apart. Gradients and the states of all random numbers are as before.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from seatrial_workloads.common.checkpoints.random_states import random_states, restore_random_states
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.distributed import Ranks

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
    """The compiled function, or the plain one with the first words of the error (or `cannot_compile`, where an engine says so). Of a
    module its forward is compiled: the names of its weights do not change, and hooks on it stay outside."""
    if cannot_compile:
        return plain, Choice(True, False, cannot_compile)
    function = plain.forward if isinstance(plain, nn.Module) else plain
    compiled = torch.compile(function, backend=backend, mode=None if mode == "default" else mode, dynamic=dynamic)
    failure = None
    with _without_a_trace(plain), warnings.catch_warnings():
        # The compiler remarks on what it leaves to torch, as it may: transforms of Fourier's, for one.
        warnings.filterwarnings(
            "ignore", message="Torchinductor does not support code generation for complex operators", category=UserWarning
        )
        try:
            warm_up(compiled)
        except Exception as error:
            failure = first_words(error)
    if not ranks.largest([float(failure is not None)])[0]:
        return compiled, Choice(True, True, f"compiled, mode {mode}")
    torch._dynamo.reset()
    return plain, Choice(True, False, failure or "another rank could not compile")


@contextlib.contextmanager
def _without_a_trace(plain: Function | nn.Module) -> Iterator[None]:
    parameters = list(plain.parameters()) if isinstance(plain, nn.Module) else []
    gradients, states = [parameter.grad for parameter in parameters], random_states()
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        restore_random_states(states)


def first_words(error: BaseException) -> str:
    """The kind of an error and its first line that says something: torch's compiler begins with lines that only announce."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if not line.endswith(":")), "".join(lines[:1]))
    return f"{type(error).__name__}: {told}".removesuffix(": ")
