"""A whole training step as one CUDA graph. In: a step that computes a loss from its inputs and updates the weights. Out: the same step,
replayed without Python.

    graph = StepGraph(step, optimizer, inputs)         captures; weights and optimiser stay as they are
    loss, grad_norm = graph(inputs)                    inputs of the same shapes

The optimiser must be capturable, its learning rate a tensor, and the step free of host synchronisation.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from seatrial.core.linux import garbage_collector_off

# A capture must not contain the one-time initialisation of libraries, nor that of the optimiser's state.
WARM_UPS = 3

Inputs = Mapping[str, Tensor | None]
Step = Callable[[Inputs], tuple[Tensor, Tensor | None]]
"""Loss, and norm of the gradients where it was computed."""


class StepGraph:
    """Captured on construction."""

    def __init__(self, step: Step, optimizer: torch.optim.Optimizer, inputs: Inputs) -> None:
        self._inputs = {name: None if given is None else given.clone() for name, given in inputs.items()}
        self._graph = torch.cuda.CUDAGraph()
        # Garbage collected during a capture, such as an older graph, would invalidate it.
        gc.collect()
        with unchanged(optimizer), garbage_collector_off(), warnings.catch_warnings():
            # In a process's first backward pass its thread has no CUDA context yet, and torch sets it.
            warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
            # Steps outside the graph are correct too, and few.
            warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    step(self._inputs)
            torch.cuda.current_stream().wait_stream(side)
            # A loader's thread may pin memory meanwhile.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._loss, self._grad_norm = step(self._inputs)

    def __call__(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        for name, own in self._inputs.items():
            given = inputs[name]
            assert (own is None) == (given is None), f"{name} was captured {'without' if own is None else 'with'} a value"
            if own is not None and given is not None:
                assert own.shape == given.shape, f"{name} was captured as {tuple(own.shape)}, and is {tuple(given.shape)}"
                own.copy_(given, non_blocking=True)
        self._graph.replay()
        # The next replay overwrites them.
        return self._loss.clone(), None if self._grad_norm is None else self._grad_norm.clone()


@contextlib.contextmanager
def unchanged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Undo the steps within the block, in place: a graph captured there holds the addresses. State that was created there begins at 0, as
    Adam's does."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    weights = [parameter.detach().clone() for parameter in parameters]
    states = [_tensors(optimizer.state.get(parameter, {}), clone=True) for parameter in parameters]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, weight, state in zip(parameters, weights, states, strict=True):
                parameter.copy_(weight)
                parameter.grad = None
                for name, value in _tensors(optimizer.state.get(parameter, {})).items():
                    value.copy_(state[name]) if name in state else value.zero_()


def _tensors(state: Mapping[str, Any], *, clone: bool = False) -> dict[str, Tensor]:
    return {name: value.clone() if clone else value for name, value in state.items() if isinstance(value, Tensor)}
