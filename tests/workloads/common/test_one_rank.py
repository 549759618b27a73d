"""What one rank trains in: taken up in order, let go of in the opposite one."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial_workloads.common.one_rank import one_rank  # noqa: E402
from tests.workloads.ranks import events  # noqa: E402


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SEATRIAL_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_one_rank_alone_has_its_folder_its_probe_and_its_lines(tmp_path):
    with one_rank(tmp_path, "cpu", 3) as rank:
        assert rank.run_dir == tmp_path
        assert (rank.ranks.rank, rank.ranks.world_size, rank.ranks.device) == (0, 1, torch.device("cpu"))
        rank.lines.say("ready")
    assert "ready" in (tmp_path / "train.log").read_text()
    assert [event["kind"] for event in events(tmp_path, "stop")] == ["stop"]


def test_after_an_error_all_is_let_go_of_and_the_error_stays(tmp_path):
    with pytest.raises(ValueError, match="this rank breaks"), one_rank(tmp_path, "cpu", 3):
        raise ValueError("this rank breaks")
    assert not torch.distributed.is_initialized()
    assert events(tmp_path, "start")
