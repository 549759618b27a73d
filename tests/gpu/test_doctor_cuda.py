"""The doctor on a real GPU: its state, a process on it, and every column of the telemetry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.machine.gpus import read_driver, read_gpu_states
from seatrial.machine.run_telemetry import empty_columns
from seatrial.preflight import gpus
from seatrial.preflight.check_definition import Need

pytestmark = pytest.mark.gpu
HOLDS_A_GPU = "import sys, torch; held = torch.zeros(1 << 28, device='cuda:0'); print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def holder() -> Iterator[int]:
    """Another process with a gibibyte on GPU 0."""
    with subprocess.Popen([sys.executable, "-c", HOLDS_A_GPU], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def test_the_state_of_a_gpu_is_complete() -> None:
    states = read_gpu_states(read_driver().gpus)
    assert states is not None
    state = states[0]
    assert 0 <= (state.util_gpu_pct or 0) <= 100 and 0 <= (state.mem_used_mib or 0) < (state.mem_total_mib or 0)
    assert state.power_limit_w and state.power_default_w and state.compute_mode
    assert state.pcie_link_width and state.pcie_width_max and state.pcie_link_width <= state.pcie_width_max


def test_a_process_on_the_gpu_is_found(holder: int, tmp_path: Path) -> None:
    check = {check.name: check for check in gpus.check_gpus(Need(output=tmp_path))}["GPUs idle"]
    assert not check.ok and not check.refuses and "MiB" in check.found


def test_every_column_of_the_telemetry_is_filled() -> None:
    assert empty_columns()["gpu_telemetry.csv"] == ()
