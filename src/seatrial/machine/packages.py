"""Versions of the packages that decide how fast a job runs, read from their metadata without importing any of them."""

from __future__ import annotations

import functools
import importlib.metadata

RECORDED_PACKAGES = (
    "seatrial",
    "torch",
    "deepspeed",
    "transformers",
    "accelerate",
    "peft",
    "datasets",
    "lightning",
    "flash-attn",
    "triton",
    "vllm",
    "numpy",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
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
