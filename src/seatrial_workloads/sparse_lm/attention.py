"""Attention of one layer. In: hidden states (batch, S, dim) and the layout that all layers share. Out: the same shape.

Query, key and value projections are one matrix. Rotary embedding per head, on queries and on the keys of every branch (compressed keys are
pooled after it). The gate reads the mean of a group's queries before their rotation, so that it depends on content and not on position.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from seatrial_workloads.sparse_lm.ops import naive
from seatrial_workloads.sparse_lm.ops.layout import Layout, rotate
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v1, ranges_v2
from seatrial_workloads.sparse_lm.ops.spans import span
from seatrial_workloads.sparse_lm.shape import ModelShape
from seatrial_workloads.sparse_lm.statistics import STATISTICS, gate_and_selection_statistics

RANGES = {"v1": ranges_v1, "v2": ranges_v2}


class Heads(NamedTuple):
    """Projected and rotated: queries (batch, heads, S, d_k), keys and values (batch, groups, S, d), gates (batch, groups, S, 3)."""

    query: Tensor
    sel_key: Tensor
    win_key: Tensor
    cmp_key: Tensor
    sel_value: Tensor
    win_value: Tensor
    cmp_value: Tensor
    gates: Tensor


class SparseAttention(nn.Module):
    """Three branches, gated."""

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
        self.collect_statistics = False
        # In place, so that a captured CUDA graph writes where `statistics` reads.
        self.register_buffer("statistics", torch.zeros(len(STATISTICS)), persistent=False)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        with span("projections+rope"):
            heads = self.project(hidden, layout)
        mixed = self.batched(heads, layout)
        return self.project_out(mixed.transpose(1, 2).flatten(2))

    def project(self, hidden: Tensor, layout: Layout) -> Heads:
        batch, seq_len, _ = hidden.shape
        parts = self.project_in(hidden).split(self.widths, dim=-1)
        query, *others = (
            part.view(batch, seq_len, -1, width).transpose(1, 2) for part, width in zip(parts, self._head_widths(), strict=True)
        )
        by_group = query.unflatten(1, (self.shape.n_kv_groups, self.shape.heads_per_group)).mean(dim=2)
        logits = self.gate(by_group).float() / self.shape.gate_temperature
        query, *keys = (rotate(part, layout.cos, layout.sin) for part in (query, *others[:3]))
        return Heads(query, *keys, *others[3:], torch.softmax(logits, dim=-1))

    def _head_widths(self) -> list[int]:
        return [self.shape.d_k] * 4 + [self.shape.d_v] * 3

    def batched(self, heads: Heads, layout: Layout) -> Tensor:
        """All queries at once: (batch, heads, S, d_v)."""
        shape, seq_len = self.shape, layout.seq_len
        with span("pcmp_all"):
            key, value = naive.pool(heads.cmp_key, shape, self.pool_key), naive.pool(heads.cmp_value, shape, self.pool_value)
            cmp, probabilities = naive.compressed(heads.query, key, value, shape, seq_len, layout.starts)
        with span("map_pcmp_to_pslc"):
            scores = naive.block_scores(probabilities.detach(), shape, seq_len)
        with span("topk+ranges"):
            ids = naive.select(scores, shape, seq_len, layout.starts)
            ranges = RANGES[layout.paths.ranges.effective](ids, shape.sel_block, shape.num_sel(seq_len))
        with span("branch_attn+gate"):
            sel = naive.selected(heads.query, heads.sel_key, heads.sel_value, ids, shape, layout.starts)
            win = naive.window(heads.query, heads.win_key, heads.win_value, shape, layout.starts)
            mixed = naive.gated((cmp, sel, win), heads.gates)
        if self.collect_statistics:
            self.statistics.copy_(gate_and_selection_statistics(heads.gates, ranges, shape))
        return mixed
