"""CUDA graphs of the two towers: captured once, replayed each step."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seatrial.core.linux import garbage_collector_off
from seatrial_workloads.contrastive.model.speech_text import SpeechEncoder, SpeechTower

MAX_SHAPES = 32
# A capture must not contain the one-time initialisation of libraries.
WARM_UPS = 3

Encode = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    token_ids: Tensor
    attend: Tensor
    cls: Tensor


class GraphedTextEncoder:
    """The text encoder as CUDA graphs, one per shape; `encode` takes a (rows, 1, tokens, tokens) bool mask."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self.captured: dict[tuple[int, ...], _Captured] = {}

    def __call__(self, token_ids: Tensor, token_mask: Tensor) -> Tensor:
        shape = tuple(token_ids.shape)
        if shape not in self.captured:
            if len(self.captured) >= MAX_SHAPES:
                return self._encode(token_ids, attend_mask(token_mask))
            self.captured[shape] = self._capture(token_ids, token_mask)
        captured = self.captured[shape]
        captured.token_ids.copy_(token_ids)
        captured.attend.copy_(attend_mask(token_mask))
        captured.graph.replay()
        # The next replay overwrites it.
        return captured.cls.clone()

    @torch.no_grad()
    def _capture(self, token_ids: Tensor, token_mask: Tensor) -> _Captured:
        static_ids, static_attend = token_ids.clone(), attend_mask(token_mask).clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self._encode(static_ids, static_attend)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            cls = self._encode(static_ids, static_attend)
        return _Captured(graph=graph, token_ids=static_ids, attend=static_attend, cls=cls)


def attend_mask(token_mask: Tensor) -> Tensor:
    """Every token attends to every non-padding token. Computed here, so that nothing is read back from the GPU."""
    rows, tokens = token_mask.shape
    return token_mask.bool().view(rows, 1, 1, tokens).expand(rows, 1, tokens, tokens)


class GraphedTower:
    """The speech tower as CUDA graphs of one shape. Capture after DeepSpeed has moved the parameters.

    The graphs belong to copies of the parameters that share their memory: hooks of DDP and ZeRO, and the streams of these, stay out of the
    capture. A replayed backward copies the gradients out of the graph and hands them to the parameters themselves, all at once:
    hooks see them as those of any other operation, and communication cannot overlap with the tower's backward pass.
    """

    def __init__(self, tower: SpeechTower, encode: SpeechEncoder) -> None:
        self._tower, self._encode = tower, encode
        self.graphs: dict[bool, Callable[..., Tensor]] = {}
        self.shape: torch.Size | None = None

    def capture(self, features: Tensor, precision: AbstractContextManager[object]) -> None:
        """Capture both graphs for features of this shape; `precision` is training's autocast without its cache: a cached cast would be
        missing from the second graph."""
        # Garbage collected during a capture, such as an older graph, would invalidate it.
        gc.collect()
        frames = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        pool = torch.cuda.graph_pool_handle()
        with precision, garbage_collector_off(), warnings.catch_warnings():
            # In a process's first backward pass its thread has no CUDA context yet, and torch sets it.
            warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
            for masked, samples in ((False, (features, ~frames)), (True, (features, ~frames, frames))):
                self.graphs[masked] = _capture(self._tower, self._with_masks_last, samples, pool)
        self.shape = features.shape

    def __call__(self, features: Tensor, frame_mask: Tensor | None, time_mask: Tensor | None) -> Tensor:
        if features.shape != self.shape or not torch.is_grad_enabled():
            return self._encode(features, frame_mask, time_mask)
        if time_mask is None:
            time_mask = torch.zeros(features.shape[:2], dtype=torch.bool, device=features.device)
        graphed = self.graphs[frame_mask is not None]
        return graphed(features, time_mask) if frame_mask is None else graphed(features, time_mask, frame_mask)

    def _with_masks_last(self, features: Tensor, time_mask: Tensor, frame_mask: Tensor | None = None) -> Tensor:
        return self._encode(features, frame_mask, time_mask)


@dataclass(frozen=True, kw_only=True, eq=False)
class _CapturedFunction:
    """Forward and backward of a function as two graphs over fixed memory."""

    inputs: tuple[Tensor, ...]
    parameters: tuple[nn.Parameter, ...]
    """The model's own parameters, which get the gradients."""
    output: Tensor
    output_gradient: Tensor
    gradients: tuple[Tensor | None, ...]
    """One for each parameter, None for an unused one."""
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph

    def __call__(self, *inputs: Tensor) -> Tensor:
        output: Tensor = _Replay.apply(self, *inputs, *self.parameters)
        return output


class _Replay(torch.autograd.Function):
    """What replays overwrite is copied: a hook or the caller may keep a gradient or an output."""

    @staticmethod
    def forward(ctx: Any, captured: _CapturedFunction, *tensors: Tensor) -> Tensor:
        for own, given in zip(captured.inputs, tensors, strict=False):
            own.copy_(given)
        captured.forward.replay()
        ctx.captured = captured
        return captured.output.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        captured: _CapturedFunction = ctx.captured
        captured.output_gradient.copy_(output_gradients[0])
        captured.backward.replay()
        used = [gradient for gradient in captured.gradients if gradient is not None]
        copies = [torch.empty_like(gradient) for gradient in used]
        torch._foreach_copy_(copies, used)
        left = iter(copies)
        of_inputs = (None,) * (1 + len(captured.inputs))
        return *of_inputs, *(None if gradient is None else next(left) for gradient in captured.gradients)


def _capture(module: nn.Module, function: Callable[..., Tensor], samples: tuple[Tensor, ...], pool: Any) -> _CapturedFunction:
    """Capture `function` of `module`'s parameters and of tensors like `samples`, which need no gradient."""
    inputs = tuple(sample.clone() for sample in samples)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with sharing_copies(module) as copies, torch.cuda.stream(stream):
        leaves = list(copies.values())
        for _ in range(WARM_UPS):
            warm = function(*inputs)
            output_gradient = torch.zeros_like(warm)
            torch.autograd.grad(warm, leaves, output_gradient, allow_unused=True)
            del warm
        with torch.cuda.graph(forward, pool=pool, stream=stream, capture_error_mode="thread_local"):
            output = function(*inputs)
        with torch.cuda.graph(backward, pool=pool, stream=stream, capture_error_mode="thread_local"):
            gradients = torch.autograd.grad(output, leaves, output_gradient, allow_unused=True)
    torch.cuda.current_stream().wait_stream(stream)
    return _CapturedFunction(
        inputs=inputs,
        parameters=tuple(copies),
        output=output.detach(),
        output_gradient=output_gradient,
        gradients=gradients,
        forward=forward,
        backward=backward,
    )


@contextlib.contextmanager
def sharing_copies(module: nn.Module) -> Iterator[dict[nn.Parameter, nn.Parameter]]:
    """Replace every trained parameter of `module` by a leaf with the same memory and without hooks; yields parameter → leaf."""
    owners = [
        (owner, name, parameter)
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False, remove_duplicate=False)
        if parameter.requires_grad
    ]
    copies = {parameter: nn.Parameter(parameter.detach()) for _, _, parameter in owners}
    try:
        for owner, name, parameter in owners:
            owner._parameters[name] = copies[parameter]
        yield copies
    finally:
        for owner, name, parameter in owners:
            owner._parameters[name] = parameter
