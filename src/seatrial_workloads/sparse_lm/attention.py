"""Attention of one layer. In: hidden states (batch, S, dim) and the layout that all layers share. Out: the same shape, and what its
statistics are computed from.

Query, key and value projections are one matrix. Rotary embedding per head, on queries and on the keys of every branch (compressed keys are
pooled after it). The gate reads the mean of a group's queries before their rotation, so that it depends on content and not on position.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seatrial_workloads.sparse_lm.ops import gathered, masked, naive, tiles
from seatrial_workloads.sparse_lm.ops.compressed import block_scores, compressed, pool
from seatrial_workloads.sparse_lm.ops.layout import Heads, Layout, rotate
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v1, ranges_v2
from seatrial_workloads.sparse_lm.ops.selection import block_bits, select
from seatrial_workloads.sparse_lm.ops.sequential import LayerCache, decode, prefill
from seatrial_workloads.sparse_lm.ops.shape import ModelShape
from seatrial_workloads.sparse_lm.ops.spans import COMPRESSED, SELECTED, WINDOW, span

RANGES = {"v1": ranges_v1, "v2": ranges_v2}


class Observed(NamedTuple):
    """Without a gradient: gates (batch, groups, S, 3) and selected token ranges (batch, S, groups, n, 2), None in decoding."""

    gates: Tensor
    ranges: Tensor | None


class SparseAttention(nn.Module):
    """Three gated branches."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        key, value = shape.n_kv_groups * shape.d_k, shape.n_kv_groups * shape.d_v
        self.widths = [shape.n_heads * shape.d_k, key, key, key, value, value, value]
        self.project_in = nn.Linear(shape.dim, sum(self.widths), bias=False)
        self.project_out = nn.Linear(shape.n_heads * shape.d_v, shape.dim, bias=False)
        hidden = max(1, shape.d_k // 2)
        self.gate = nn.Sequential(nn.Linear(shape.d_k, hidden), nn.SiLU(), nn.Linear(hidden, 3))
        self.pool_key = self.pool_value = None
        if shape.phi == "conv":
            self.pool_key = nn.Parameter(torch.full((shape.d_k, shape.cmp_block), 1 / shape.cmp_block))
            self.pool_value = nn.Parameter(torch.full((shape.d_v, shape.cmp_block), 1 / shape.cmp_block))

    def forward(self, hidden: Tensor, layout: Layout, cache: LayerCache | None = None) -> tuple[Tensor, Observed]:
        """With a cache the tokens are added to it; one that holds tokens already takes one token at a time. Gates and ranges are always
        returned: an optional output would make torch.compile compile once more for each kind of step."""
        with span("projections+rope"):
            heads = self.project(hidden, layout)
        if cache is not None:
            cache.append(heads, self.pool_key, self.pool_value)
        ranges = None
        if layout.first_query and cache is not None:
            mixed = decode(heads, cache)
        elif layout.paths.prefill.effective == "sequential":
            mixed, ranges = self.sequential(heads, layout)
        else:
            mixed, ranges = self.batched(heads, layout)
        return self.project_out(mixed.transpose(1, 2).flatten(2)), Observed(heads.gates.detach(), ranges)

    def project(self, hidden: Tensor, layout: Layout) -> Heads:
        batch, seq_len, _ = hidden.shape
        parts = self.project_in(hidden).split(self.widths, dim=-1)
        widths = [self.shape.d_k] * 4 + [self.shape.d_v] * 3
        query, *others = (part.view(batch, seq_len, -1, width).transpose(1, 2) for part, width in zip(parts, widths, strict=True))
        by_group = query.unflatten(1, (self.shape.n_kv_groups, self.shape.heads_per_group)).mean(dim=2)
        logits = self.gate(by_group).float() / self.shape.gate_temperature
        query, *keys = (rotate(part, layout.cos, layout.sin) for part in (query, *others[:3]))
        return Heads(query, *keys, *others[3:], torch.softmax(logits, dim=-1))

    def sequential(self, heads: Heads, layout: Layout) -> tuple[Tensor, Tensor]:
        """The reference for `batched`: a Python loop over tokens, plain attention."""
        pooled = naive.pool(heads.cmp_key, self.shape, self.pool_key), naive.pool(heads.cmp_value, self.shape, self.pool_value)
        return prefill(heads, *pooled, self.shape, layout.starts, RANGES[layout.paths.ranges.effective])

    def batched(self, heads: Heads, layout: Layout) -> tuple[Tensor, Tensor]:
        """All queries at once: (batch, heads, S, d_v), and the selected token ranges (batch, S, groups, n_sel, 2)."""
        shape, starts = self.shape, layout.starts
        with span("pcmp_all"):
            key, value = pool(heads.cmp_key, shape, self.pool_key), pool(heads.cmp_value, shape, self.pool_value)
            with span(COMPRESSED):
                cmp, by_group = compressed(heads.query, key, value, shape, starts)
        with span("map_pcmp_to_pslc"):
            scores = block_scores(by_group, shape)
        with span("topk+ranges"):
            ids = select(scores, shape, starts)
            ranges = RANGES[layout.paths.ranges.effective](ids, shape.sel_block, scores.shape[-1])
        with span("branch_attn+gate"):
            with span(SELECTED):
                sel = self._selected(heads, ids, ranges, layout)
            with span(WINDOW):
                win = self._window(heads, layout)
            mixed = naive.gated((cmp, sel, win), heads.gates)
        return mixed, ranges

    def _selected(self, heads: Heads, ids: Tensor, ranges: Tensor, layout: Layout) -> Tensor:
        tensors = heads.query, heads.sel_key, heads.sel_value
        if layout.paths.selected.effective == "gather":
            return gathered.selected(*tensors, ids, self.shape, layout.starts)
        bits = block_bits(ranges, self.shape, self.shape.num_sel(layout.seq_len))
        if layout.paths.selected.effective == "flex":
            return tiles.selected(*tensors, bits, self.shape, layout.starts)
        return masked.selected(*tensors, bits, self.shape, layout.starts, layout.paths.sdpa.effective)

    def _window(self, heads: Heads, layout: Layout) -> Tensor:
        tensors = heads.query, heads.win_key, heads.win_value
        if layout.paths.window.effective == "flex":
            return tiles.window(*tensors, self.shape, layout.starts)
        return masked.window(*tensors, self.shape, layout.starts, layout.paths.sdpa.effective)
