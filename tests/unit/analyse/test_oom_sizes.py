"""Sizes that torch tells when a GPU's memory is not enough."""

from __future__ import annotations

import pytest

from seatrial.analyse.oom_sizes import oom_sizes

OLDER = (
    "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.78 GiB total capacity; 14.10 GiB already allocated; "
    "312.00 MiB free; 14.30 GiB reserved in total by PyTorch)"
)


def test_the_older_wording_is_read_too() -> None:
    found = oom_sizes(OLDER)
    assert found is not None
    assert (found.tried_mib, found.free_mib, found.held_mib, found.others_mib) == (512, 312, pytest.approx(14438.4), 0)
    assert found.factor == pytest.approx(1.0136, abs=1e-4)


def test_memory_that_lies_in_pieces_is_told_from_memory_that_is_not_there() -> None:
    found = oom_sizes(
        "CUDA out of memory. Tried to allocate 1.19 GiB. GPU 1 has a total capacity of 23.65 GiB of which 801.81 MiB is free. 21.40 GiB is "
        "allocated by PyTorch, and 1.01 GiB is reserved by PyTorch but unallocated."
    )
    assert found is not None and found.factor < 1
    assert "1.01 GiB more lie in pieces" in found.words and "expandable_segments:True" in found.words


def test_what_other_processes_hold_is_told() -> None:
    found = oom_sizes(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Including "
        "non-PyTorch memory, this process has 11.00 GiB memory in use. Of the allocated memory 10.00 GiB is allocated by PyTorch"
    )
    assert found is not None and found.words.endswith("Other processes hold 12.00 GiB of this GPU.")


@pytest.mark.parametrize("line", ["", "CUDA error: out of memory", "Cuda failure 2 'out of memory'", "Tried to allocate 2.00 GiB."])
def test_a_line_without_sizes_says_nothing(line: str) -> None:
    assert oom_sizes(line) is None
