"""Provenance of a GPU host, read without torch, against torch's own values."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.torch]
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

from seatrial.machine.provenance import gather_provenance  # noqa: E402


def test_gpu_and_library_versions_are_those_torch_sees(tmp_path: Path) -> None:
    found = gather_provenance(tmp_path, ["0"])
    major, minor = torch.cuda.get_device_capability(0)
    assert (found.gpu_name, found.gpu_cc) == (torch.cuda.get_device_name(0), f"0:{major}.{minor}")
    assert found.cuda == torch.version.cuda
    # A build with its own libraries (conda, a vendor's image) has no metadata to read.
    if found.cudnn:
        number = torch.backends.cudnn.version()
        assert found.cudnn.startswith(f"{number // 10000}.{number // 100 % 100}.{number % 100}")
    if found.nccl:
        assert found.nccl.split("+")[0].split("-")[0].startswith(".".join(str(part) for part in torch.cuda.nccl.version()))


def test_clocks_and_power_are_plausible(tmp_path: Path) -> None:
    found = gather_provenance(tmp_path, ["0"])
    sm_mhz, memory_mhz = (int(value) for value in found.gpu_clocks.removeprefix("0:").split("/"))
    assert 300 < sm_mhz < 5000 and 300 < memory_mhz < 30000
    assert 50 < float(found.gpu_power_limit_w) <= 2000 and 50 < float(found.gpu_power_default_w) <= 2000
    assert found.driver_version and found.gpu_uuid_list.startswith("GPU-")
