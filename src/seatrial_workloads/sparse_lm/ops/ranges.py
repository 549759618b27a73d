"""Block ids to token ranges. In: ids (batch, S, groups, K), ascending, padded with -1. Out: [start, end) per run of adjacent blocks, in
order, clamped to the query (end ≤ t + 1); empty ranges are [0, 0].

Ids that name no block, or a block after the query, are dropped one by one, and duplicates count once. `ranges_v1` loops and is the
reference; `ranges_v2` is vectorised and never waits for the GPU. v1 has as many columns as the longest row needs, v2 always K.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from seatrial_workloads.sparse_lm.ops.spans import span


def ranges_v1(ids: Tensor, sel_block: int, num_blocks: int, first_query: int = 0) -> Tensor:
    """Reference, one row at a time; query t of row s is `first_query + s`."""
    batch, seq_len, groups, _ = ids.shape
    rows = [
        _runs(ids[b, s, g].tolist(), sel_block, num_blocks, first_query + s)
        for b in range(batch)
        for s in range(seq_len)
        for g in range(groups)
    ]
    width = max((len(row) for row in rows), default=0)
    padded = [row + [(0, 0)] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.int64, device=ids.device).view(batch, seq_len, groups, width, 2)


def _runs(ids: list[int], sel_block: int, num_blocks: int, query: int) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in sorted({block for block in ids if 0 <= block < num_blocks}):
        start, end = block * sel_block, min((block + 1) * sel_block, query + 1)
        if start >= end:
            continue
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def ranges_v2(ids: Tensor, sel_block: int, num_blocks: int, first_query: int = 0) -> Tensor:
    """(batch, S, groups, K, 2), without a loop or a synchronisation."""
    if not ids.shape[-1]:
        return ids.new_zeros(*ids.shape, 2)
    with span("nsa.sel.ranges_v2"):
        # `seen`: tokens that a query sees, t + 1. `nothing` stands for no block, far enough behind the last to be adjacent to none.
        seen = torch.arange(first_query + 1, first_query + 1 + ids.shape[1], device=ids.device)[:, None, None]
        nothing = num_blocks + 1
        with span("v2_run_detection"):
            # Dropped ids sort behind the others and cannot lie inside a run.
            kept = (ids >= 0) & (ids < num_blocks) & (ids * sel_block < seen)
            ids = torch.where(kept, ids, nothing).sort(dim=-1).values
            gaps = functional.pad(functional.pad(ids, (1, 0), value=-2), (0, 1), value=nothing + 2).diff(dim=-1)
            # A run begins after a gap and ends before one; both are in order, so that sorting pairs them.
            edges = gaps.unfold(-1, 2, 1).transpose(-1, -2) > 1
        with span("v2_scatter_reduce"):
            blocks = torch.where(edges, ids[..., None, :], nothing).sort(dim=-1).values
            tokens = torch.stack((blocks[..., 0, :], blocks[..., 1, :] + 1), dim=-1) * sel_block
            return torch.where(blocks.transpose(-1, -2) < nothing, torch.minimum(tokens, seen[..., None]), 0)
