"""Versions of the packages that decide how fast a job runs, read from their metadata without importing any of them.

In: nothing but this interpreter (another one is asked by `machine.interpreter`). Out: name → version of those that are installed.
"""

from __future__ import annotations

import functools
import importlib.metadata

RECORDED_PACKAGES = (
    "seatrial",
    # What trains and serves.
    "torch",
    "torchvision",
    "torchaudio",
    "torchao",
    "torchtitan",
    "torchdata",
    "deepspeed",
    "accelerate",
    "transformers",
    "peft",
    "trl",
    "lightning",
    "pytorch-lightning",
    "megatron-core",
    "nemo-toolkit",
    "vllm",
    "sglang",
    "jax",
    "jaxlib",
    # What its kernels come from.
    "triton",
    "pytorch-triton",
    "flash-attn",
    "flash-attn-3",
    "flash-linear-attention",
    "xformers",
    "transformer-engine",
    "apex",
    "bitsandbytes",
    "liger-kernel",
    "numpy",
    "scipy",
    # What its data comes through.
    "datasets",
    "tokenizers",
    "sentencepiece",
    "safetensors",
    "pyarrow",
    "webdataset",
    "soundfile",
    "soxr",
    "librosa",
    "hydra-core",
    "omegaconf",
    "mpi4py",
    # CUDA as wheels: 12 has its number in every name, 13 only in some.
    *(f"nvidia-{name}-cu{major}" for major in (12, 13) for name in ("cudnn", "nccl", "nvshmem", "cusparselt")),
    *(f"nvidia-{name}-cu12" for name in ("cublas", "cuda-runtime", "cuda-nvrtc", "cufft", "cusolver", "cusparse", "nvjitlink")),
    *(f"nvidia-{name}" for name in ("cublas", "cuda-runtime", "cuda-nvrtc", "cufft", "cusolver", "cusparse", "nvjitlink")),
)


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, version) for name in RECORDED_PACKAGES if (version := version_of(name)))


def package_versions() -> dict[str, str]:
    """Name to version of every recorded package that is installed beside this interpreter."""
    return dict(_versions())


def version_of(name: str) -> str:
    """The installed version, or an empty string."""
    try:
        return importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""
