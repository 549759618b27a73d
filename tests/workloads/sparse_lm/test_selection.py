"""Which blocks a query selects."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial_workloads.sparse_lm.ops import naive, selection  # noqa: E402
from seatrial_workloads.sparse_lm.ops.layout import document_starts  # noqa: E402
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v1  # noqa: E402
from tests.workloads.sparse_lm.shapes import LENGTHS, SHAPES, documents, small  # noqa: E402


def by_hand(scores: list[float], query: int, first_token: int, shape) -> list[int]:
    """The rule in plain Python: forced blocks first, then by score, the lower index before the higher."""
    own, first = query // shape.sel_block, first_token // shape.sel_block
    forced = {block for block in (first, own - 1, own) if first <= block <= own}
    others = sorted((block for block in range(first, own + 1) if block not in forced), key=lambda block: (-scores[block], block))
    return sorted([*forced, *others[: shape.n_sel - len(forced)]])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seq_len", LENGTHS)
@pytest.mark.parametrize("name", SHAPES)
def test_the_rule(name: str, seq_len: int, packed: bool) -> None:
    """Coarse scores, so that there are many ties."""
    shape = SHAPES[name]
    scores = torch.randint(0, 4, (2, seq_len, shape.n_kv_groups, shape.num_sel(seq_len)), generator=torch.Generator().manual_seed(1)) / 4
    starts = document_starts(documents(2, seq_len)) if packed else None
    found = selection.select(scores, shape, starts)
    assert torch.equal(found, naive.select(scores, shape, seq_len, starts))
    first = [[0] * seq_len] * 2 if starts is None else starts.tolist()
    for row in range(2):
        for query in range(0, seq_len, 3):
            expected = by_hand(scores[row, query, 0].tolist(), query, first[row][query], shape)
            assert found[row, query, 0].tolist() == expected + [-1] * (shape.n_sel - len(expected))


def test_ties_go_to_the_lower_index_at_any_size_of_the_scores() -> None:
    shape = small(n_sel=5)
    for value in (0.0, 1e-12, 0.3, 6.0):
        scores = torch.full((1, 160, 2, 20), value)
        assert selection.select(scores, shape)[0, 159, 0].tolist() == [0, 1, 2, 18, 19]


@pytest.mark.parametrize("name", SHAPES)
def test_shares_of_a_compressed_block_add_up_to_one(name: str) -> None:
    shape = SHAPES[name]
    assert torch.allclose(naive.overlap(shape, 257, torch.device("cpu")).sum(dim=1), torch.ones(shape.num_cmp(257)))


def test_bits_name_the_selected_blocks() -> None:
    """All 64 of a word at once, and across words."""
    shape = small(sel_block=4, n_sel=140)
    ids = torch.stack([torch.arange(140), torch.arange(140).where(torch.arange(140) % 7 > 2, -1)])[None, :, None]
    ranges = ranges_v1(ids, 4, 140, first_query=600)
    found = selection.block_bytes(selection.block_bits(ranges, shape, 140))[0, 0].bool()
    assert found.shape == (2, 192)
    assert found[0, :140].all()
    assert torch.equal(found[1, :140], torch.arange(140) % 7 > 2)
    assert not found[:, 140:].any()
