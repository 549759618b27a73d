"""The end of a process group after an error, with two real ranks."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from seatrial.ports import reserve_port  # noqa: E402
from tests.workloads.ranks import run_module  # noqa: E402


def test_an_error_is_printed_and_the_group_still_ends():
    with reserve_port() as reserved:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserved.port), "LOCAL_WORLD_SIZE": "2"}
        finished = run_module(["tests.workloads.common.failing_rank"], 2, **place)
    assert finished.returncodes == [1, 1], finished.stderr
    assert "ValueError: this rank breaks" in finished.stderr[1]
    assert not any("terminate called" in text or "destroy_process_group" in text for text in finished.stderr)
