"""Inputs of a layer's branches: its projected heads, and what all layers share (paths, rotary tables, documents)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seatrial_workloads.sparse_lm.ops.attention_paths import EffectivePaths
from seatrial_workloads.sparse_lm.ops.shape import ModelShape


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


@dataclass(frozen=True)
class Layout:
    """Paths and positions of the queries from `first_query` to `seq_len`."""

    shape: ModelShape
    paths: EffectivePaths
    seq_len: int
    cos: Tensor
    """(queries, d_k / 2), fp32."""
    sin: Tensor
    starts: Tensor | None = None
    """(batch, S): position of the first token of each token's document; None where every row is one document."""
    first_query: int = 0


def create_layout(
    shape: ModelShape, paths: EffectivePaths, seq_len: int, device: torch.device, documents: Tensor | None = None, first_query: int = 0
) -> Layout:
    cos, sin = rotary_tables(shape, first_query, seq_len, device)
    return Layout(shape, paths, seq_len, cos, sin, None if documents is None else document_starts(documents), first_query)


def rotary_tables(shape: ModelShape, first: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions `first` to `end`."""
    pair = torch.arange(0, shape.d_k, 2, device=device, dtype=torch.float32)
    angle = torch.arange(first, end, device=device, dtype=torch.float32)[:, None] * shape.rope_base ** (-pair / shape.d_k)
    return angle.cos(), angle.sin()


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (…, S, d_k) in fp32; dimension i rotates with dimension i + d_k / 2."""
    one, other = heads.float().chunk(2, dim=-1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), dim=-1).to(heads.dtype)


def document_starts(documents: Tensor) -> Tensor:
    """(batch, S): start of the run of equal ids that each token belongs to."""
    position = torch.arange(documents.shape[1], device=documents.device)
    begins = torch.nn.functional.pad(documents[:, 1:] != documents[:, :-1], (1, 0), value=True)
    return torch.where(begins, position, 0).cummax(dim=1).values
