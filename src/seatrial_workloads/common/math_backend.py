"""torch's arithmetic switches. In: settings and the lowest compute capability. Out: torch configured, and the effective settings.

tf32              TF32 for fp32 matmuls and convolutions on CUDA; compute capability 8 or more
matmul_precision  torch's float32 matmul precision; `highest` on a CPU and without tf32
deterministic     only deterministic algorithms; an operation that has none raises
cudnn_benchmark   cuDNN times its algorithms and keeps the fastest, which may differ from run to run

Call `prepare_determinism` before CUDA is initialised, and `set_math_backend` when the device is known.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import MutableMapping
from dataclasses import dataclass

import torch

from seatrial_workloads.common.effective_settings import Choice, as_requested
from seatrial_workloads.common.precision import AMPERE, Capability

CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
# The two values with which cuBLAS is deterministic.
CUBLAS_DETERMINISTIC = (":4096:8", ":16:8")


@dataclass(frozen=True, kw_only=True)
class MathOptions:
    """The four switches."""

    tf32: bool = True
    matmul_precision: str = "high"
    deterministic: bool = False
    cudnn_benchmark: bool = False


def prepare_determinism(options: MathOptions, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set cuBLAS's variable, which it reads only at its start."""
    if options.deterministic:
        environment.setdefault(CUBLAS_VARIABLE, CUBLAS_DETERMINISTIC[0])


def set_math_backend(options: MathOptions, lowest: Capability | None) -> dict[str, Choice]:
    """Configure torch and return the effective settings; `lowest` is None on a CPU."""
    if lowest is not None and not torch.cuda.is_initialized():
        prepare_determinism(options)
    choices = choose_math_backend(options, lowest, os.environ.get(CUBLAS_VARIABLE))
    _set_tf32(choices["tf32"].effective, choices["matmul_precision"].effective)
    torch.use_deterministic_algorithms(choices["deterministic"].effective)
    torch.backends.cudnn.benchmark = choices["cudnn_benchmark"].effective
    return choices


def choose_math_backend(options: MathOptions, lowest: Capability | None, cublas_workspace: str | None) -> dict[str, Choice]:
    """The policy itself."""
    choices = {name: as_requested(getattr(options, name)) for name in ("tf32", "matmul_precision", "deterministic", "cudnn_benchmark")}
    no_tf32 = "no GPU" if lowest is None else f"compute capability {lowest[0]}.{lowest[1]} has no TF32" if lowest[0] < AMPERE else None
    if options.tf32 and no_tf32:
        choices["tf32"] = Choice(True, False, no_tf32)
    if options.matmul_precision != "highest" and not choices["tf32"].effective:
        reason = "no GPU: full fp32" if lowest is None else "tf32 is off"
        choices["matmul_precision"] = Choice(options.matmul_precision, "highest", reason)
    if options.deterministic and lowest is not None and cublas_workspace not in CUBLAS_DETERMINISTIC:
        allowed = " or ".join(CUBLAS_DETERMINISTIC)
        reason = f"{CUBLAS_VARIABLE} must be {allowed} before CUDA starts; it was {cublas_workspace or 'not set'}"
        choices["deterministic"] = Choice(True, False, reason)
    if options.cudnn_benchmark and lowest is None:
        choices["cudnn_benchmark"] = Choice(True, False, "no GPU")
    elif options.cudnn_benchmark and choices["deterministic"].effective:
        choices["cudnn_benchmark"] = Choice(True, False, "deterministic: the fastest algorithm may differ from run to run")
    return choices


def _set_tf32(tf32: bool, matmul_precision: str) -> None:
    """Uses torch's older switches: compiled code reads those and refuses to run when the newer ones were set (torch 2.9 to 2.13)."""
    with warnings.catch_warnings():
        # torch announces the newer switches once, on CUDA builds.
        warnings.filterwarnings("ignore", message="Please use the new API settings to control TF32", category=UserWarning)
        torch.set_float32_matmul_precision(matmul_precision)
        torch.backends.cudnn.allow_tf32 = tf32
