"""Every path of the sparse attention against explicit masks: output and gradients, fp32, memory poisoned with NaN first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from seatrial_workloads.sparse_lm.attention import SparseAttention  # noqa: E402
from seatrial_workloads.sparse_lm.ops import compressed, gathered, masked, naive  # noqa: E402
from seatrial_workloads.sparse_lm.ops.attention_paths import AttentionPaths, choose_paths  # noqa: E402
from seatrial_workloads.sparse_lm.ops.layout import Heads, create_layout, document_starts, rotary_tables, rotate  # noqa: E402
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v2  # noqa: E402
from seatrial_workloads.sparse_lm.ops.selection import block_bits  # noqa: E402
from tests.workloads.sparse_lm.shapes import (  # noqa: E402
    LENGTHS,
    SHAPES,
    assert_close,
    assert_whole_agrees,
    documents,
    poisoned,
    small,
    tensors,
    with_gradients,
)

PACKED_LENGTHS = (65, 257)
every_case = pytest.mark.parametrize(
    ("name", "seq_len", "packed"),
    [(name, seq_len, packed) for name in SHAPES for packed in (False, True) for seq_len in (PACKED_LENGTHS if packed else LENGTHS)],
)


@pytest.fixture(autouse=True)
def poison(one_thread: None) -> Iterator[None]:
    with poisoned():
        yield


def starts_of(seq_len: int, packed: bool):
    return document_starts(documents(2, seq_len)) if packed else None


def random_ids(shape, seq_len: int, starts):
    scores = torch.rand(2, seq_len, shape.n_kv_groups, shape.num_sel(seq_len), generator=torch.Generator().manual_seed(3))
    return naive.select(scores, shape, seq_len, starts)


@every_case
def test_branches_agree_with_explicit_masks(name: str, seq_len: int, packed: bool) -> None:
    shape, starts = SHAPES[name], starts_of(seq_len, packed)
    inputs = tensors(shape, seq_len)
    ids = random_ids(shape, seq_len, starts)
    bits = block_bits(ranges_v2(ids, shape.sel_block, shape.num_sel(seq_len)), shape, shape.num_sel(seq_len))
    expected = with_gradients(lambda *qkv: naive.selected(*qkv, ids, shape, starts), inputs)
    assert_close(with_gradients(lambda *qkv: masked.selected(*qkv, bits, shape, starts), inputs), expected)
    assert_close(with_gradients(lambda *qkv: gathered.selected(*qkv, ids, shape, starts), inputs), expected)
    expected = with_gradients(lambda *qkv: naive.window(*qkv, shape, starts), inputs)
    assert_close(with_gradients(lambda *qkv: masked.window(*qkv, shape, starts), inputs), expected)


@every_case
@pytest.mark.parametrize("phi", ["avg", "conv"])
def test_compressed_branch_and_its_scores_agree_with_explicit_masks(name: str, seq_len: int, packed: bool, phi: str) -> None:
    shape, starts = SHAPES[name], starts_of(seq_len, packed)
    inputs = list(tensors(shape, seq_len))
    if phi == "conv":
        inputs += [torch.randn(width, shape.cmp_block, generator=torch.Generator().manual_seed(5)) for width in (shape.d_k, shape.d_v)]
    scores = {}

    def reference(query, key, value, key_weight=None, value_weight=None):
        pooled = naive.pool(key, shape, key_weight), naive.pool(value, shape, value_weight)
        output, probabilities = naive.compressed(query, *pooled, shape, seq_len, starts)
        scores["reference"] = naive.block_scores(probabilities.detach(), shape, seq_len)
        return output

    def fast(query, key, value, key_weight=None, value_weight=None):
        pooled = compressed.pool(key, shape, key_weight), compressed.pool(value, shape, value_weight)
        output, by_group = compressed.compressed(query, *pooled, shape, starts)
        scores["fast"] = compressed.block_scores(by_group, shape)
        return output

    assert_close(with_gradients(fast, inputs), with_gradients(reference, inputs))
    assert_close([scores["fast"]], [scores["reference"]])


@every_case
def test_the_whole_agrees_with_explicit_masks(name: str, seq_len: int, packed: bool) -> None:
    """Through the module, on every path that a CPU has; the gradients of its parameters too."""
    shape = SHAPES[name]
    torch.manual_seed(0)
    attention = SparseAttention(shape)
    parameters = dict(attention.named_parameters())
    inputs = [torch.randn(2, seq_len, shape.dim), *(torch.randn_like(value) / value.shape[-1] ** 0.5 for value in parameters.values())]
    ids = documents(2, seq_len) if packed else None

    def run(paths: AttentionPaths | None):
        def forward(hidden, *values):
            layout = create_layout(
                shape, choose_paths(paths or AttentionPaths(), device="cpu", seq_len=seq_len), seq_len, hidden.device, ids
            )
            bound = dict(zip(parameters, values, strict=True))
            if paths is not None:
                return torch.func.functional_call(attention, bound, (hidden, layout))[0]
            return torch.func.functional_call(Reference(attention), {f"of.{key}": value for key, value in bound.items()}, (hidden, layout))

        return with_gradients(forward, inputs)

    expected = run(None)
    assert_close(run(AttentionPaths(selected="mask")), expected)
    assert_close(run(AttentionPaths(selected="gather")), expected)
    if seq_len == 65 and packed:
        assert_close(run(AttentionPaths(prefill="sequential", ranges="v1")), expected)


class Reference(torch.nn.Module):
    """An attention's own projections around `naive.sparse_attention`."""

    def __init__(self, of: SparseAttention) -> None:
        super().__init__()
        self.of = of

    def forward(self, hidden, layout):
        mixed = naive.sparse_attention(self.of.project(hidden, layout), self.of.shape, starts=layout.starts)
        return self.of.project_out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("seq_len", LENGTHS)
def test_branches_that_reach_everything_are_causal_attention(seq_len: int) -> None:
    shape = small(window=seq_len, n_sel=max(3, -(-seq_len // 8)))
    inputs = tensors(shape, seq_len)
    expected = with_gradients(lambda *qkv: functional.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True), inputs)
    ids = random_ids(shape, seq_len, None)
    bits = block_bits(ranges_v2(ids, shape.sel_block, shape.num_sel(seq_len)), shape, shape.num_sel(seq_len))
    assert_close(with_gradients(lambda *qkv: masked.window(*qkv, shape), inputs), expected)
    assert_close(with_gradients(lambda *qkv: masked.selected(*qkv, bits, shape), inputs), expected)
    assert_close(with_gradients(lambda *qkv: gathered.selected(*qkv, ids, shape), inputs), expected)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("selected", ["mask", "gather"])
@pytest.mark.parametrize(("seq_len", "packed"), [(257, False), (111, True)])
def test_the_whole_agrees_given_the_same_blocks(seq_len: int, packed: bool, selected: str, dtype: torch.dtype, tolerance: float) -> None:
    """tests/gpu has the same with FlexAttention, at production size."""
    shape = SHAPES["production blocks"]
    assert_whole_agrees(shape, seq_len, packed=packed, selected=selected, device="cpu", dtype=dtype, tolerance=tolerance)


def test_the_whole_is_the_gated_sum_of_its_branches() -> None:
    shape, seq_len = small(window=64, n_sel=8), 64
    (query, sel_key, sel_value), (_, win_key, win_value), (_, cmp_key, cmp_value) = (tensors(shape, seq_len, seed) for seed in range(3))
    gates = torch.softmax(torch.randn(2, shape.n_kv_groups, seq_len, 3, generator=torch.Generator().manual_seed(1)), dim=-1)
    heads = Heads(query, sel_key, win_key, cmp_key, sel_value, win_value, cmp_value, gates)
    cmp = naive.compressed(query, naive.pool(cmp_key, shape), naive.pool(cmp_value, shape), shape, seq_len)[0]
    sel, win = (
        functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        for key, value in ((sel_key, sel_value), (win_key, win_value))
    )
    by_head = gates.repeat_interleave(2, dim=1)
    expected = by_head[..., :1] * cmp + by_head[..., 1:2] * sel + by_head[..., 2:] * win
    layout = create_layout(shape, choose_paths(AttentionPaths(), device="cpu", seq_len=seq_len), seq_len, query.device)
    assert_close([SparseAttention(shape).batched(heads, layout)[0]], [expected])


def test_rotation_is_relative_and_the_same_for_every_head() -> None:
    shape = small(d_k=8)
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(8, generator=generator).expand(1, 3, 40, 8) for _ in range(2))
    cos, sin = rotary_tables(shape, 0, 40, query.device)
    products = rotate(query, cos, sin) @ rotate(key, cos, sin).transpose(-1, -2)
    assert_close([products[0, 1], products[0, 2]], [products[0, 0], products[0, 0]])
    assert_close([products[0, 0, 5:, 5:]], [products[0, 0, :-5, :-5]])
    shifted = rotary_tables(shape, 7, 40, query.device)
    assert_close(shifted, (cos[7:], sin[7:]))


def test_heads_of_a_group_read_the_same_tokens() -> None:
    """By the gradient of each head's output: non-zero on the values that it read."""
    shape, seq_len = small(n_heads=6, n_sel=4, sel_block=4), 111
    (query, key, value), (_, cmp_key, cmp_value) = tensors(shape, seq_len, 0, batch=1), tensors(shape, seq_len, 1, batch=1)
    value.requires_grad_()
    only_selected = torch.tensor([0.0, 1.0, 0.0]).expand(1, shape.n_kv_groups, seq_len, 3)
    heads = Heads(3 * query, key, key, cmp_key, value, value.detach(), cmp_value, only_selected)
    layout = create_layout(shape, choose_paths(AttentionPaths(), device="cpu", seq_len=seq_len), seq_len, query.device)
    output = SparseAttention(shape).batched(heads, layout)[0]
    read = [torch.autograd.grad(output[0, head, -1].sum(), value, retain_graph=True)[0][0].abs().sum(dim=-1) > 0 for head in range(6)]
    for head in range(6):
        group = head // 3
        assert torch.equal(read[head][group], read[3 * group][group])
        assert not read[head][1 - group].any()
    # Block 0, two local ones (the last with 3 tokens), and one that each group chose for itself.
    assert [int(read[3 * group][group].sum()) for group in range(2)] == [15, 15]
    assert not torch.equal(read[0][0], read[3][1])
