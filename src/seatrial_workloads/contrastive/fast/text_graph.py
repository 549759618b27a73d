"""The frozen text encoder as CUDA graphs. In: token ids and mask. Out: [CLS] of each row, as the plain encoder gives it.

Twelve layers over a dozen tokens are hundreds of kernels of a few microseconds: starting them takes longer than they run. A graph starts
them all at once. One is captured for each shape that comes (few: widths are multiples of eight); beyond a number of them the plain
encoder serves, since every graph keeps its own memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_SHAPES = 32
# A capture must not contain what libraries do once at their first call.
WARM_UPS = 3

Encode = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    token_ids: Tensor
    attend: Tensor
    cls: Tensor


class GraphedTextEncoder:
    """Replays what it captured; `encode` is the plain encoder with a ready (rows, 1, tokens, tokens) bool mask."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._captured: dict[tuple[int, ...], _Captured] = {}

    def __call__(self, token_ids: Tensor, token_mask: Tensor) -> Tensor:
        shape = tuple(token_ids.shape)
        if shape not in self._captured:
            if len(self._captured) >= MOST_SHAPES:
                return self._encode(token_ids, attend_mask(token_mask))
            self._captured[shape] = self._capture(token_ids, token_mask)
        kept = self._captured[shape]
        kept.token_ids.copy_(token_ids)
        kept.attend.copy_(attend_mask(token_mask))
        kept.graph.replay()
        # The next replay writes over it.
        return kept.cls.clone()

    @torch.no_grad()
    def _capture(self, token_ids: Tensor, token_mask: Tensor) -> _Captured:
        kept_ids, kept_attend = token_ids.clone(), attend_mask(token_mask).clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self._encode(kept_ids, kept_attend)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            cls = self._encode(kept_ids, kept_attend)
        return _Captured(graph=graph, token_ids=kept_ids, attend=kept_attend, cls=cls)


def attend_mask(token_mask: Tensor) -> Tensor:
    """Who may look at whom: every token at every token that is no padding. Ready-made, so that nothing is asked of the GPU."""
    rows, tokens = token_mask.shape
    return token_mask.bool().view(rows, 1, 1, tokens).expand(rows, 1, tokens, tokens)
