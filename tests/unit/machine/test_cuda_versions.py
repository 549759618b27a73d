"""Version files as torch has written them over the years, and the wheels beside them."""

from __future__ import annotations

import pytest

from seatrial.machine.cuda_versions import CudaVersions, cuda_in, cuda_versions

NEW = "from typing import Optional\n__version__ = '2.9.0'\ndebug = False\ncuda: Optional[str] = '13.0'\ngit_version = 'abc'\n"
OLD = "__version__ = '1.13.1'\ndebug = False\ncuda = \"11.7\"\ngit_version = 'abc'\n"
CPU = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\ngit_version = 'cuda 12'\n"


@pytest.mark.parametrize(("text", "version"), [(NEW, "13.0"), (OLD, "11.7"), (CPU, ""), ("", ""), ("cuda_home = '1.0'\n", "")])
def test_cuda_torch_was_built_for(text: str, version: str) -> None:
    assert cuda_in(text) == version


def test_wheels_of_torchs_own_cuda_count() -> None:
    packages = {
        "nvidia-cudnn-cu12": "9.10.2.21",
        "nvidia-cudnn-cu13": "9.13.0.50",
        "nvidia-nccl-cu12": "2.27.5",
        "nvidia-nccl-cu13": "2.28.3",
        "nvidia-nccl-extras": "1",
    }
    env = {"NCCL_VERSION": "1.0", "CUDNN_VERSION": "1.0"}
    assert cuda_versions("13.0", packages, env, "13.1") == CudaVersions(cuda="13.0", cudnn="9.13.0.50", nccl="2.28.3")
    assert cuda_versions("12.8", packages, env, "13.1") == CudaVersions(cuda="12.8", cudnn="9.10.2.21", nccl="2.27.5")


def test_a_container_images_variables_stand_in_for_wheels() -> None:
    found = cuda_versions("12.8", {"torch": "2.8.0a0"}, {"NCCL_VERSION": "2.26.3", "CUDNN_VERSION": "9.9.0.52"}, "12.9")
    assert found == CudaVersions(cuda="12.8", cudnn="9.9.0.52", nccl="2.26.3")


def test_without_a_torch_for_gpus_the_drivers_own_is_told() -> None:
    assert cuda_versions("", {}, {}, "12.9") == CudaVersions(cuda="12.9")
    assert cuda_versions("", {}, {}, "") == CudaVersions()
