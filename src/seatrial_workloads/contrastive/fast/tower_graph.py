"""The speech tower as CUDA graphs, forward and backward. In: features and masks. Out: what the tower itself gives, gradients included.

A step of the tower is some two thousand kernels, and starting them one by one takes longer than they run. Graphs are captured for one
shape, with and without a frame mask; any other shape goes to the tower itself.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from seatrial.uncollected import uncollected
from seatrial_workloads.contrastive.model import SpeechEncoder, SpeechTower


class GraphedTower:
    """Replays the captured shape. Capture it once the parameters are where they stay: after DeepSpeed has moved them."""

    def __init__(self, tower: SpeechTower, encode: SpeechEncoder) -> None:
        self._tower, self._encode = tower, encode
        self._graphs: dict[bool, Callable[..., Tensor]] = {}
        self._shape: torch.Size | None = None
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, features: Tensor, precision: AbstractContextManager[object]) -> None:
        """Both graphs for features of this shape; `precision` is the autocast of training, its cache off: a cached cast would be left out
        of the second graph."""
        # What is collected in the middle of a capture, an older graph for one, would spoil it.
        gc.collect()
        frames = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        with precision, warnings.catch_warnings(), uncollected():
            # The warm-up of a capture runs on a stream of its own, as torch itself arranges it and then remarks on.
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
    """The tower with its masks in the order a capture can take: tensors only, the one that may be missing last."""

    def __init__(self, tower: SpeechTower, encode: SpeechEncoder) -> None:
        super().__init__()
        self.tower = tower
        # A bound method or a compiled function, kept out of the list of submodules.
        self.__dict__["encode"] = encode

    def forward(self, features: Tensor, time_mask: Tensor, frame_mask: Tensor | None = None) -> Tensor:
        encoded: Tensor = self.encode(features, frame_mask, time_mask)
        return encoded
