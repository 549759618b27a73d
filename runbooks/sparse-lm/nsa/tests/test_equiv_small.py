"""Sparse attention against dense attention with explicit masks, on small shapes.

PYTHONPATH=. pytest -q nsa/tests/test_equiv_small.py
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from seatrial_workloads.sparse_lm.model import SparseLM  # noqa: E402
from seatrial_workloads.sparse_lm.ops import naive  # noqa: E402
from seatrial_workloads.sparse_lm.ops.attention_paths import AttentionPaths  # noqa: E402
from seatrial_workloads.sparse_lm.ops.shape import ModelShape  # noqa: E402

LENGTHS = (1, 15, 16, 17, 65)
TOLERANCE = 1e-5
SMALL = {"dim": 32, "n_layers": 1, "n_heads": 4, "n_kv_groups": 2, "d_k": 8, "d_v": 8}
BLOCKS = {"cmp_block": 8, "cmp_stride": 4, "sel_block": 16}


def heads(shape: ModelShape, seq_len: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seq_len)
    query = torch.randn(2, shape.n_heads, seq_len, shape.d_k)
    return query, torch.randn(2, shape.n_kv_groups, seq_len, shape.d_k), torch.randn(2, shape.n_kv_groups, seq_len, shape.d_v)


def dense(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("seq_len", LENGTHS)
def test_a_window_over_the_whole_sequence_is_dense_attention(seq_len: int) -> None:
    shape = ModelShape(**SMALL, **BLOCKS, n_sel=4, window=128)
    query, key, value = heads(shape, seq_len)

    torch.testing.assert_close(naive.window(query, key, value, shape), dense(query, key, value), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("seq_len", LENGTHS)
def test_selecting_every_block_is_dense_attention(seq_len: int) -> None:
    shape = ModelShape(**SMALL, **BLOCKS, n_sel=8, window=16)
    query, key, value = heads(shape, seq_len)
    scores = torch.rand(2, seq_len, shape.n_kv_groups, shape.num_sel(seq_len))
    ids = naive.select(scores, shape, seq_len)

    torch.testing.assert_close(naive.selected(query, key, value, ids, shape), dense(query, key, value), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("seq_len", LENGTHS)
def test_prefill_is_the_same_batched_and_token_by_token(seq_len: int) -> None:
    shape = ModelShape(**SMALL, **BLOCKS, n_sel=4, window=16)
    tokens = torch.randint(0, 256, (2, seq_len), generator=torch.Generator().manual_seed(seq_len))
    logits = []
    for prefill in ("batched", "sequential"):
        torch.manual_seed(0)
        model = SparseLM(shape, paths=AttentionPaths(prefill=prefill)).eval()
        with torch.no_grad():
            logits.append(model(tokens))

    torch.testing.assert_close(logits[0], logits[1], atol=TOLERANCE, rtol=0)


def test_a_future_token_changes_nothing() -> None:
    shape = ModelShape(**SMALL, **BLOCKS, n_sel=4, window=16)
    torch.manual_seed(0)
    model = SparseLM(shape).eval()
    tokens = torch.randint(0, 256, (1, 65), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[:, 40:] = (changed[:, 40:] + 1) % 256
    with torch.no_grad():
        before, after = model(tokens), model(changed)

    assert torch.equal(before[:, :40], after[:, :40])
