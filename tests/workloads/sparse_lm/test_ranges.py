"""Block ids to token ranges: the vectorised form against the loops."""

from __future__ import annotations

from random import Random

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from seatrial_workloads.sparse_lm.ops.ranges import ranges_v1, ranges_v2  # noqa: E402

CASES, CASES_PER_EXAMPLE = 10_000, 50


def assert_equal(ids, sel_block: int, num_blocks: int, first_query: int = 0) -> None:
    one, other = (convert(ids, sel_block, num_blocks, first_query) for convert in (ranges_v1, ranges_v2))
    width = one.shape[3]
    assert torch.equal(other[..., :width, :], one)
    assert not other[..., width:, :].any()
    query = first_query + torch.arange(ids.shape[1])[:, None, None]
    assert (other[..., 1] <= query + 1).all()


@settings(max_examples=CASES // CASES_PER_EXAMPLE, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_equal_on_random_cases(seed) -> None:
    """Ids below and beyond the blocks, duplicates, gaps, blocks after the query, in any order: each case has parameters of its own. Many to
    an example, since hypothesis takes longer to draw one than both conversions take."""
    random = Random(seed)
    for _ in range(CASES_PER_EXAMPLE):
        num_blocks, beyond = random.randint(1, 40), random.randint(0, 8)
        ids = [random.randint(-1 - beyond, num_blocks + beyond) for _ in range(random.randint(0, 12))]
        ids = torch.tensor(sorted(ids) if random.random() < 0.5 else ids, dtype=torch.int64).view(1, 1, 1, -1)
        assert_equal(ids, random.choice((1, 4, 64)), num_blocks, random.randint(0, 700))


@pytest.mark.parametrize("shape", [(2, 8, 2, 12), (1, 64, 2, 16)])
@pytest.mark.parametrize("pattern", ["random", "sequential", "duplicates", "gaps", "single_valid", "all_invalid"])
def test_equal_on_patterns(pattern: str, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    width, invalid = shape[-1], torch.full(shape, -1)
    ids = {
        "random": torch.randint(-1, 20, shape, generator=generator).sort(dim=-1).values,
        "sequential": torch.arange(width).expand(shape),
        "duplicates": (torch.arange(width) // 3).expand(shape),
        # Beyond the last block from the fourth on.
        "gaps": (torch.arange(width) * 4).expand(shape),
        "single_valid": torch.where(torch.arange(width) == width - 1, 2, invalid),
        "all_invalid": invalid,
    }[pattern]
    assert_equal(ids, 4, 16)


def test_an_id_beyond_the_blocks_inside_a_run_drops_only_itself() -> None:
    ids = torch.tensor([[[[0, 1, 99, 2, -1]]]])
    for convert in (ranges_v1, ranges_v2):
        assert convert(ids, 4, 5, first_query=30)[0, 0, 0, 0].tolist() == [0, 12]


def test_the_partial_block_of_the_query_is_kept() -> None:
    ids = torch.tensor([[[[0, 2]]]])
    assert ranges_v2(ids, 4, 3, first_query=9)[0, 0, 0].tolist() == [[0, 4], [8, 10]]
