"""Small shapes and inputs of the sparse attention, and the comparison that its tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from seatrial_workloads.sparse_lm.attention import SparseAttention
from seatrial_workloads.sparse_lm.ops import naive
from seatrial_workloads.sparse_lm.ops.attention_paths import AttentionPaths, choose_paths
from seatrial_workloads.sparse_lm.ops.compressed import block_scores, compressed, pool
from seatrial_workloads.sparse_lm.ops.layout import Heads, create_layout, document_starts
from seatrial_workloads.sparse_lm.ops.selection import select
from seatrial_workloads.sparse_lm.ops.shape import ModelShape

LENGTHS = (1, 63, 64, 65, 111, 257)


def small(**changed: object) -> ModelShape:
    widths = {"vocab_size": 17, "dim": 24, "n_layers": 2, "n_heads": 4, "n_kv_groups": 2, "d_k": 8, "d_v": 6}
    blocks = {"cmp_block": 8, "cmp_stride": 4, "sel_block": 8, "n_sel": 4, "window": 12}
    return ModelShape(**{**widths, **blocks, **changed})  # type: ignore[arg-type]


# Groups of 2, 3 and 1 heads; compressed blocks that overlap, that do not, and that are longer than a selection block; more than 64 blocks.
SHAPES = {
    "overlapping": small(),
    "three heads": small(n_heads=6, n_kv_groups=2, cmp_block=4, cmp_stride=4, sel_block=16, n_sel=3, window=5),
    "long compressed": small(n_heads=3, n_kv_groups=3, cmp_block=12, cmp_stride=2, sel_block=2, n_sel=9, window=64),
    "production blocks": small(n_heads=2, n_kv_groups=1, cmp_block=32, cmp_stride=16, sel_block=64, n_sel=3, window=100),
}


def tensors(shape: ModelShape, seq_len: int, seed: int = 0, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((shape.n_heads, shape.d_k), (shape.n_kv_groups, shape.d_k), (shape.n_kv_groups, shape.d_v))
    return tuple(torch.randn(batch, heads, seq_len, width, generator=generator) for heads, width in sizes)  # type: ignore[return-value]


def documents(batch: int, seq_len: int, seed: int = 0) -> Tensor:
    """About three documents in each row, at arbitrary places."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 3, (batch, seq_len), generator=generator).sort(dim=1).values


def with_gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The output, and the gradient of each input under fixed weights on the output."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    output = function(*leaves)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(7)).to(output)
    gradients = torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True)
    return [output.detach(), *(torch.zeros_like(leaf) if found is None else found for found, leaf in zip(gradients, leaves, strict=True))]


def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-5) -> None:
    """Within `tolerance` of each expected tensor's maximum."""
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert torch.isfinite(one).all(), f"tensor {index} has values that are not finite"
        difference, largest = (one.float() - other.float()).abs().max(), other.float().abs().max()
        assert difference <= tolerance * largest, f"tensor {index} differs by {difference:.2e}, its maximum is {largest:.2e}"


def assert_whole_agrees(
    shape: ModelShape, seq_len: int, *, packed: bool, selected: str, device: str, dtype: torch.dtype, tolerance: float
) -> None:
    """Three branches, gated, in `dtype` against the fp32 reference with the blocks that they selected: the output, and the gradients of
    queries, keys, values and gates."""
    starts = document_starts(documents(2, seq_len).to(device)) if packed else None
    (query, *first), (_, *second), (_, *third) = (tensors(shape, seq_len, seed) for seed in range(3))
    keys, values = zip(first, second, third, strict=True)
    logits = torch.randn(2, shape.n_kv_groups, seq_len, 3, generator=torch.Generator().manual_seed(1))
    inputs = [tensor.to(device, dtype) for tensor in (query, *keys, *values)] + [torch.softmax(logits, dim=-1).to(device)]
    heads = Heads(*inputs)
    by_group = compressed(heads.query, pool(heads.cmp_key, shape), pool(heads.cmp_value, shape), shape, starts)[1]
    ids = select(block_scores(by_group, shape), shape, starts)
    expected = with_gradients(
        lambda *parts: naive.sparse_attention(Heads(*parts), shape, starts=starts, ids=ids), [tensor.float() for tensor in inputs]
    )
    paths = choose_paths(AttentionPaths(selected=selected), device=device, seq_len=seq_len)
    assert paths.selected.effective == selected
    layout = create_layout(shape, paths, seq_len, heads.query.device, documents(2, seq_len).to(device) if packed else None)
    assert_close(with_gradients(lambda *parts: SparseAttention(shape).batched(Heads(*parts), layout)[0], inputs), expected, tolerance)


@contextmanager
def poisoned() -> Iterator[None]:
    """Memory that torch hands out uninitialised is NaN; operators without a deterministic form raise."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
