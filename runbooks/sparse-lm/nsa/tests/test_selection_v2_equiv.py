"""Selection ranges, v2 (vectorised) against v1 (loops); with NSA_TEST_SEL_PACK=1 also the selected branch over gathered blocks.

PYTHONPATH=. NSA_TEST_SEL_PACK=1 pytest -q nsa/tests/test_selection_v2_equiv.py -k equivalence_various_patterns
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from seatrial_workloads.sparse_lm.ops import gathered, naive  # noqa: E402
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v1, ranges_v2  # noqa: E402
from seatrial_workloads.sparse_lm.ops.shape import ModelShape  # noqa: E402

BLOCK, NUM_BLOCKS = 16, 40
SIZES = ((2, 8, 2, 12), (2, 64, 4, 32))
PATTERNS = ("random", "sequential", "duplicates", "gaps", "out_of_range", "single_valid", "all_invalid")
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def block_ids(pattern: str, size: tuple[int, int, int, int]) -> torch.Tensor:
    """Ascending, padded with -1 at the end, as selection returns them, with out-of-range ids among the others."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, NUM_BLOCKS, size, generator=generator)
    if pattern == "sequential":
        ids = torch.arange(size[-1]).expand(size) + torch.randint(0, 4, (*size[:-1], 1), generator=generator)
    elif pattern == "duplicates":
        ids = ids // 8
    elif pattern == "gaps":
        ids = torch.arange(size[-1]).expand(size) * 2
    elif pattern == "out_of_range":
        ids = torch.randint(-5, NUM_BLOCKS + 20, size, generator=generator)
    elif pattern == "single_valid":
        ids = torch.cat((ids[..., :1], torch.full((*size[:-1], size[-1] - 1), NUM_BLOCKS)), dim=-1)
    elif pattern == "all_invalid":
        ids = torch.full(size, -1)
    ids = ids.sort(dim=-1).values
    return ids if pattern == "out_of_range" else torch.where(ids >= NUM_BLOCKS, -1, ids)


def not_empty(ranges: torch.Tensor) -> list[list[tuple[int, int]]]:
    rows = ranges.flatten(0, 2).tolist()
    return [[(start, end) for start, end in row if end > start] for row in rows]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_equivalence_various_patterns(pattern: str, size: tuple[int, int, int, int], device: str) -> None:
    ids = block_ids(pattern, size).to(device)
    first_query = NUM_BLOCKS * BLOCK - size[1]
    one, two = (convert(ids, BLOCK, NUM_BLOCKS, first_query).cpu() for convert in (ranges_v1, ranges_v2))

    assert not_empty(one) == not_empty(two)
    query = first_query + torch.arange(size[1])[:, None, None]
    assert (two[..., 1] <= query + 1).all()


@pytest.mark.skipif(os.environ.get("NSA_TEST_SEL_PACK") != "1", reason="NSA_TEST_SEL_PACK is not 1")
@pytest.mark.parametrize("seq_len", (1, 63, 64, 65, 150))
def test_packed_equivalence_various_patterns(seq_len: int) -> None:
    shape = ModelShape(
        dim=32, n_layers=1, n_heads=4, n_kv_groups=2, d_k=8, d_v=8, cmp_block=8, cmp_stride=4, sel_block=16, n_sel=4, window=16
    )
    torch.manual_seed(seq_len)
    query = torch.randn(2, 4, seq_len, 8)
    key, value = torch.randn(2, 2, 2, seq_len, 8)
    ids = naive.select(torch.rand(2, seq_len, 2, shape.num_sel(seq_len)), shape, seq_len)

    expected = naive.selected(query, key, value, ids, shape)
    torch.testing.assert_close(gathered.selected(query, key, value, ids, shape), expected, atol=1e-5, rtol=0)
