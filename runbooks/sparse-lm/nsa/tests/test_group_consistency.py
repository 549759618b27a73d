"""All heads of a group read the same blocks.

PYTHONPATH=. pytest -q nsa/tests/test_group_consistency.py
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from seatrial_workloads.sparse_lm.ops import naive  # noqa: E402
from seatrial_workloads.sparse_lm.ops.selection import select  # noqa: E402
from seatrial_workloads.sparse_lm.ops.shape import ModelShape  # noqa: E402

SHAPE = ModelShape(dim=32, n_layers=1, n_heads=6, n_kv_groups=2, d_k=8, d_v=8, cmp_block=8, cmp_stride=4, sel_block=16, n_sel=4, window=16)
SEQ_LEN = 150


def probabilities() -> torch.Tensor:
    torch.manual_seed(0)
    query = torch.randn(2, SHAPE.n_heads, SEQ_LEN, SHAPE.d_k)
    key = torch.randn(2, SHAPE.n_kv_groups, SHAPE.num_cmp(SEQ_LEN), SHAPE.d_k)
    return naive.compressed(query, key, key, SHAPE, SEQ_LEN)[1]


def test_heads_of_a_group_share_a_mask() -> None:
    ids = naive.select(naive.block_scores(probabilities(), SHAPE, SEQ_LEN), SHAPE, SEQ_LEN)
    mask = naive.selected_mask(ids, SHAPE, SEQ_LEN).view(2, SHAPE.n_kv_groups, SHAPE.heads_per_group, SEQ_LEN, SEQ_LEN)

    assert (mask == mask[:, :, :1]).all()
    # The groups differ: otherwise the test would prove nothing.
    assert (mask[:, 0] != mask[:, 1]).any()


def test_the_order_of_heads_within_a_group_does_not_matter() -> None:
    given = probabilities()
    by_group = given.unflatten(1, (SHAPE.n_kv_groups, SHAPE.heads_per_group)).flip(2).flatten(1, 2)
    scores, flipped = (naive.block_scores(part, SHAPE, SEQ_LEN) for part in (given, by_group))

    torch.testing.assert_close(scores, flipped)


def test_the_first_and_the_two_local_blocks_are_always_selected() -> None:
    ids = select(naive.block_scores(probabilities(), SHAPE, SEQ_LEN), SHAPE)
    own = torch.arange(SEQ_LEN) // SHAPE.sel_block
    for forced in (torch.zeros_like(own), own, (own - 1).clamp(min=0)):
        assert (ids == forced[None, :, None, None]).any(dim=-1).all()
