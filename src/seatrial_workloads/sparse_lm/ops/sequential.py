"""One query after the other: sequential prefill, the reference for batched prefill, and decoding with a cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seatrial_workloads.sparse_lm.ops import gathered, naive
from seatrial_workloads.sparse_lm.ops.layout import Heads
from seatrial_workloads.sparse_lm.ops.shape import ModelShape


class LayerCache:
    """Keys and values of one layer, and its pooled blocks, for up to `max_len` tokens."""

    def __init__(self, shape: ModelShape, max_len: int) -> None:
        self.shape, self.max_len, self.length = shape, max_len, 0
        self._tokens: dict[str, Tensor] = {}

    def append(self, heads: Heads, pool_key: Tensor | None, pool_value: Tensor | None) -> None:
        """Take in the tokens of `heads`, and pool the blocks that they complete."""
        added = heads.query.shape[2]
        if self.length + added > self.max_len:
            raise ValueError(f"{self.length + added} tokens do not fit a cache of {self.max_len}: create it with a larger max_len")
        for name in ("sel_key", "win_key", "cmp_key", "sel_value", "win_value", "cmp_value"):
            self._write(name, getattr(heads, name), self.length, self.max_len)
        before, self.length = self.shape.num_cmp(self.length), self.length + added
        if self.shape.num_cmp(self.length) > before:
            for name, weight in (("cmp_key", pool_key), ("cmp_value", pool_value)):
                blocks = naive.pool(self.tokens(name)[:, :, before * self.shape.cmp_stride :], self.shape, weight)
                self._write(f"pooled_{name}", blocks, before, self.shape.num_cmp(self.max_len))

    def _write(self, name: str, tensor: Tensor, at: int, size: int) -> None:
        batch, groups, added, width = tensor.shape
        held = self._tokens.setdefault(name, tensor.new_zeros(batch, groups, size, width))
        held[:, :, at : at + added] = tensor

    def tokens(self, name: str) -> Tensor:
        """The cached tokens of the field `name` of `Heads`."""
        return self._tokens[name][:, :, : self.length]

    def pooled(self, name: str) -> Tensor:
        num_blocks = self.shape.num_cmp(self.length)
        return self._tokens[f"pooled_{name}"][:, :, :num_blocks] if num_blocks else self._tokens[name][:, :, :0]


def decode(heads: Heads, cache: LayerCache) -> Tensor:
    """(batch, heads, 1, d_v) for the newest token, already in the cache. Reads only its selected blocks and its window."""
    shape, length = cache.shape, cache.length
    cmp, probabilities = naive.compressed(heads.query, cache.pooled("cmp_key"), cache.pooled("cmp_value"), shape, length)
    ids = naive.select(naive.block_scores(probabilities, shape, length), shape, length)
    sel = gathered.selected(heads.query, cache.tokens("sel_key"), cache.tokens("sel_value"), ids, shape)
    recent = (cache.tokens(name)[:, :, -shape.window :] for name in ("win_key", "win_value"))
    return naive.gated((cmp, sel, naive.window(heads.query, *recent, shape)), heads.gates)


def prefill(
    heads: Heads,
    pooled_key: Tensor,
    pooled_value: Tensor,
    shape: ModelShape,
    starts: Tensor | None,
    to_ranges: Callable[..., Tensor],
    tokens: range | None = None,
) -> tuple[Tensor, Tensor]:
    """(batch, heads, S, d_v), one token at a time, and the selected token ranges (batch, S, groups, n_sel, 2); only for
    `tokens`, if given."""
    outputs, ranges = [], []
    for at in range(heads.query.shape[2]) if tokens is None else tokens:
        output, selected = _one_token(
            heads, pooled_key, pooled_value, shape, None if starts is None else starts[:, at : at + 1], to_ranges, at
        )
        outputs.append(output)
        ranges.append(torch.nn.functional.pad(selected, (0, 0, 0, shape.n_sel - selected.shape[-2])))
    return torch.cat(outputs, dim=2), torch.cat(ranges, dim=1)


def _one_token(
    heads: Heads,
    pooled_key: Tensor,
    pooled_value: Tensor,
    shape: ModelShape,
    starts: Tensor | None,
    to_ranges: Callable[..., Tensor],
    at: int,
) -> tuple[Tensor, Tensor]:
    length, num_cmp = at + 1, shape.num_cmp(at + 1)
    query, gates = heads.query[:, :, at:length], heads.gates[:, :, at:length]
    cmp, probabilities = naive.compressed(query, pooled_key[:, :, :num_cmp], pooled_value[:, :, :num_cmp], shape, length, starts)
    ids = naive.select(naive.block_scores(probabilities.detach(), shape, length), shape, length, starts)
    ranges = to_ranges(ids, shape.sel_block, shape.num_sel(length), first_query=at)
    token = torch.arange(length, device=query.device)
    chosen = ((token >= ranges[..., :1]) & (token < ranges[..., 1:])).any(dim=-2).transpose(1, 2)
    if starts is not None:
        chosen = chosen & (token >= starts[:, None, :, None])
    chosen = chosen.repeat_interleave(shape.heads_per_group, dim=1)
    sel = naive.attend(query, heads.sel_key[:, :, :length], heads.sel_value[:, :, :length], chosen)[0]
    win = naive.window(query, heads.win_key[:, :, :length], heads.win_value[:, :, :length], shape, starts)
    return naive.gated((cmp, sel, win), gates), ranges
