"""One rank's probe, process group and log: opened and closed in order, also after an error."""

from __future__ import annotations

import pytest

from seatrial.core.ports import reserve_port
from seatrial.probe import Probe
from seatrial_workloads.common.distributed import process_group, rank_context
from tests.workloads.ranks import events, run_module

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


def test_an_error_is_printed_and_the_group_still_ends():
    with reserve_port() as reserved:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserved.port), "LOCAL_WORLD_SIZE": "2"}
        finished = run_module(["tests.workloads.common.failing_rank"], 2, **place)
    assert finished.returncodes == [1, 1], finished.stderr
    assert "ValueError: this rank breaks" in finished.stderr[1]
    assert not any("terminate called" in text or "destroy_process_group" in text for text in finished.stderr)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SEATRIAL_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_single_rank_has_folder_probe_and_log(tmp_path):
    with rank_context(tmp_path, "cpu", 3) as rank:
        assert rank.run_dir == tmp_path
        assert (rank.ranks.rank, rank.ranks.world_size, rank.ranks.device) == (0, 1, torch.device("cpu"))
        rank.log.info("ready")
    assert "ready" in (tmp_path / "train.log").read_text()
    assert [event["kind"] for event in events(tmp_path, "stop")] == ["stop"]


def test_after_an_error_everything_is_closed(tmp_path):
    with pytest.raises(ValueError, match="this rank breaks"), rank_context(tmp_path, "cpu", 3):
        raise ValueError("this rank breaks")
    assert not torch.distributed.is_initialized()
    assert events(tmp_path, "start")


def test_cuda_without_a_gpu_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="use device=auto or cpu"), process_group("cuda", Probe()):
        pass


def test_a_local_rank_beyond_the_gpus_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match=r"local rank 2 has no GPU \(2 visible\)"), process_group("cuda", Probe()):
        pass
