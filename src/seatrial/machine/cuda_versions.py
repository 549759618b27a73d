"""Which CUDA, cuDNN and NCCL a run computes with, told without importing torch (which takes seconds).

CUDA        torch/version.py of the run's interpreter, read as text: what torch was built for; else the newest the driver takes
cuDNN, NCCL the metadata of the wheels torch loads them from (nvidia-cudnn-cu13 …), those for torch's own CUDA where there are two;
            else the variable that NVIDIA's container images set (CUDNN_VERSION, NCCL_VERSION)

A library that LD_LIBRARY_PATH or LD_PRELOAD puts before these is not seen; both variables are in the recorded environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TORCH_CUDA = re.compile(r"""^cuda\b[^=\n]*=\s*["'](?P<version>[\d.]+)["']""", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class CudaVersions:
    """Empty strings where nothing tells."""

    cuda: str = ""
    cudnn: str = ""
    nccl: str = ""


def cuda_versions(torch_cuda: str, packages: Mapping[str, str], env: Mapping[str, str], driver_cuda: str) -> CudaVersions:
    """What is known, from the interpreter's torch and packages, the run's variables and the driver."""
    return CudaVersions(
        cuda=torch_cuda or driver_cuda,
        cudnn=_library("cudnn", torch_cuda, packages, env),
        nccl=_library("nccl", torch_cuda, packages, env),
    )


def cuda_in(version_file: str) -> str:
    """The CUDA that the text of a torch/version.py names; empty for a build without."""
    found = _TORCH_CUDA.search(version_file)
    return found["version"] if found else ""


def _library(name: str, torch_cuda: str, packages: Mapping[str, str], env: Mapping[str, str]) -> str:
    wheels = {wheel: version for wheel, version in packages.items() if re.fullmatch(rf"nvidia-{name}-cu\d+", wheel)}
    own = wheels.get(f"nvidia-{name}-cu{torch_cuda.partition('.')[0]}")
    return own or next(iter(wheels.values()), "") or env.get(f"{name.upper()}_VERSION", "")
