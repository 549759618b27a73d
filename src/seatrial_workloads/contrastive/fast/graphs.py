"""CUDA graphs of the two towers: captured once, replayed each step."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seatrial.core.linux import garbage_collector_off
from seatrial_workloads.contrastive.model import SpeechEncoder, SpeechTower

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
        self._captured: dict[tuple[int, ...], _Captured] = {}

    def __call__(self, token_ids: Tensor, token_mask: Tensor) -> Tensor:
        shape = tuple(token_ids.shape)
        if shape not in self._captured:
            if len(self._captured) >= MAX_SHAPES:
                return self._encode(token_ids, attend_mask(token_mask))
            self._captured[shape] = self._capture(token_ids, token_mask)
        captured = self._captured[shape]
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
    """The speech tower as CUDA graphs of one shape. Capture after DeepSpeed has moved the parameters."""

    def __init__(self, tower: SpeechTower, encode: SpeechEncoder) -> None:
        self._tower, self._encode = tower, encode
        self._graphs: dict[bool, Callable[..., Tensor]] = {}
        self._shape: torch.Size | None = None
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, features: Tensor, precision: AbstractContextManager[object]) -> None:
        """Capture both graphs for features of this shape; `precision` is training's autocast without its cache: a cached cast would be
        missing from the second graph."""
        # Garbage collected during a capture, such as an older graph, would invalidate it.
        gc.collect()
        frames = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        with precision, warnings.catch_warnings(), garbage_collector_off():
            # make_graphed_callables warms up on its own stream, and torch then warns about that.
            warnings.filterwarnings("ignore", message="(The AccumulateGrad node's stream|Attempting to run cuBLAS)")
            for masked, samples in ((False, (features, ~frames)), (True, (features, ~frames, frames))):
                graphed = torch.cuda.make_graphed_callables(
                    _Capturable(self._tower, self._encode), samples, allow_unused_input=True, pool=self._pool
                )
                self._graphs[masked] = graphed
        self._shape = features.shape

    def __call__(self, features: Tensor, frame_mask: Tensor | None, time_mask: Tensor | None) -> Tensor:
        if features.shape != self._shape or not torch.is_grad_enabled():
            return self._encode(features, frame_mask, time_mask)
        if time_mask is None:
            time_mask = torch.zeros(features.shape[:2], dtype=torch.bool, device=features.device)
        graphed = self._graphs[frame_mask is not None]
        return graphed(features, time_mask) if frame_mask is None else graphed(features, time_mask, frame_mask)


class _Capturable(nn.Module):
    """The tower with a signature that a capture takes: tensors only, the optional one last."""

    def __init__(self, tower: SpeechTower, encode: SpeechEncoder) -> None:
        super().__init__()
        self.tower = tower
        # A bound method or compiled function, kept out of the submodules.
        self.__dict__["encode"] = encode

    def forward(self, features: Tensor, time_mask: Tensor, frame_mask: Tensor | None = None) -> Tensor:
        encoded: Tensor = self.encode(features, frame_mask, time_mask)
        return encoded
