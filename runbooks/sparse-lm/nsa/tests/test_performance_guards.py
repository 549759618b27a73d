"""Selection ranges: v2 must be far faster than v1 on a GPU, and must not wait for it.

PYTHONPATH=. pytest -q nsa/tests/test_performance_guards.py -k v2_performance_improvement --disable-warnings

Prints the ratio. Without CUDA it is skipped, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from seatrial_workloads.sparse_lm.ops.ranges import ranges_v1, ranges_v2  # noqa: E402

SIZE, BLOCK, NUM_BLOCKS = (2, 256, 4, 32), 64, 64
WARM_UP, ITERATIONS = 5, 10
# The time of v1 hardly varies: three are enough.
SLOW_ITERATIONS = 3
MIN_RATIO = 100.0
NO_CUDA = "NOT TESTED: no CUDA device, and the ratio is a figure of GPUs"


def seconds(act: Callable[[], object], warm_up: int, iterations: int) -> float:
    for _ in range(warm_up):
        act()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(iterations):
        act()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / iterations


@pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_CUDA)
def test_v2_performance_improvement(capsys: pytest.CaptureFixture[str]) -> None:
    ids = torch.randint(0, NUM_BLOCKS, SIZE, device="cuda").sort(dim=-1).values
    query = NUM_BLOCKS * BLOCK - SIZE[1]
    slow = seconds(lambda: ranges_v1(ids, BLOCK, NUM_BLOCKS, query), 1, SLOW_ITERATIONS)
    fast = seconds(lambda: ranges_v2(ids, BLOCK, NUM_BLOCKS, query), WARM_UP, ITERATIONS)
    with capsys.disabled():
        print(f"\nv2_performance_improvement: v1 {1000 * slow:.2f} ms, v2 {1000 * fast:.3f} ms, ratio {slow / fast:.2f}x at {SIZE}")

    assert slow / fast >= MIN_RATIO


@pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_CUDA)
def test_v2_does_not_wait_for_the_gpu() -> None:
    ids = torch.randint(0, NUM_BLOCKS, SIZE, device="cuda").sort(dim=-1).values
    torch.cuda.set_sync_debug_mode("error")
    try:
        ranges_v2(ids, BLOCK, NUM_BLOCKS, 0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
