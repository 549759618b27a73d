"""Block ids to token ranges. In: ids (batch, S, groups, K), ascending, padded with -1. Out: [start, end) per run of adjacent blocks, in
order, clamped to the query (end ≤ t + 1); empty ranges are [0, 0].

Ids that name no block, or a block after the query, are dropped one by one, and duplicates count once. `ranges_v1` loops and is the
reference; `ranges_v2` is vectorised and never waits for the GPU. v1 has as many columns as the longest row needs, v2 always K.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
    """(batch, S, groups, K, 2), without a loop or a wait."""
    with span("nsa.sel.ranges_v2"):
        query = first_query + torch.arange(ids.shape[1], device=ids.device)[:, None, None]
        with span("v2_run_detection"):
            # What is dropped gets the id of no block and sorts behind the rest, so that it cannot stand inside a run.
            dropped = (ids < 0) | (ids >= num_blocks) | (ids * sel_block > query)
            ids = torch.where(dropped, num_blocks, ids).sort(dim=-1).values
            kept = ids < num_blocks
            before = torch.nn.functional.pad(ids, (1, 0), value=-2)[..., : ids.shape[-1]]
            begins = kept & (ids - before > 1)
            run = begins.cumsum(dim=-1) - 1
        with span("v2_scatter_reduce"):
            # One column more takes what is dropped.
            column = torch.where(kept, run, ids.shape[-1])
            empty = ids.new_zeros(*ids.shape[:-1], ids.shape[-1] + 1)
            last = empty.scatter_reduce(-1, column, ids + 1, "amax")[..., :-1]
            first = empty.scatter_reduce(-1, torch.where(begins, run, ids.shape[-1]), ids, "amax")[..., :-1]
            end = torch.minimum(last * sel_block, (query + 1).expand_as(last))
            return torch.stack((first * sel_block, end), dim=-1)
