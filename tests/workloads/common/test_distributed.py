"""The process group: also for a rank alone, and gone at the end."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from seatrial.probe import Probe  # noqa: E402
from seatrial_workloads.common.distributed import Ranks, ensure_group, joined_ranks, lowest_capability  # noqa: E402


@pytest.fixture(autouse=True)
def by_hand(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_a_rank_alone_has_a_group_only_where_one_is_insisted_on_and_it_ends():
    with joined_ranks("cpu", Probe()) as ranks:
        assert not dist.is_initialized()
        ensure_group(ranks)
        ensure_group(ranks)
        assert (dist.get_world_size(), dist.get_backend()) == (1, "gloo")
    assert not dist.is_initialized()


def test_after_an_error_the_group_of_a_rank_alone_ends_too():
    with pytest.raises(RuntimeError, match="in the middle"), joined_ranks("cpu", Probe()) as ranks:
        ensure_group(ranks)
        raise RuntimeError("in the middle")
    assert not dist.is_initialized()


class Mixed(Ranks):
    """As if the other rank's GPU were older."""

    def largest(self, values):
        return [max(value, -705.0) for value in values]


def test_the_lowest_capability_of_all_ranks_decides(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    gpu = torch.device("cuda", 0)
    assert lowest_capability(Ranks(rank=0, local_rank=0, world_size=1, device=gpu)) == (9, 0)
    assert lowest_capability(Mixed(rank=0, local_rank=0, world_size=2, device=gpu)) == (7, 5)
    assert lowest_capability(Ranks(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))) is None
