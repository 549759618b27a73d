"""How torch may compute. In: the settings and the lowest compute capability. Out: torch set so, and what each setting came to.

tf32              fp32 products and convolutions on CUDA may use TF32: compute capability 8 or more
matmul_precision  torch's float32 matmul precision; on a CPU, and without tf32, products stay whole (`highest`)
deterministic     only algorithms that give the same bits each time; an operation that has none is an error
cudnn_benchmark   cuDNN tries its algorithms and keeps the fastest, which may be another one each time

Call `prepare_determinism` before anything touches CUDA, and `set_math_backend` when the device is known.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import MutableMapping
from dataclasses import dataclass

import torch

from seatrial_workloads.common.choice import Choice, as_requested
from seatrial_workloads.common.precision import AMPERE, Capability

CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
# The two values with which cuBLAS gives the same bits each time.
CUBLAS_REPEATABLE = (":4096:8", ":16:8")


@dataclass(frozen=True, kw_only=True)
class MathOptions:
    """What can be set."""

    tf32: bool = True
    matmul_precision: str = "high"
    deterministic: bool = False
    cudnn_benchmark: bool = False


def prepare_determinism(options: MathOptions, environment: MutableMapping[str, str] = os.environ) -> None:
    """cuBLAS reads its variable when it starts: later is too late."""
    if options.deterministic:
        environment.setdefault(CUBLAS_VARIABLE, CUBLAS_REPEATABLE[0])


def set_math_backend(options: MathOptions, lowest: Capability | None) -> dict[str, Choice]:
    """Set torch and say what each setting came to; no compute capability means CPU."""
    if lowest is not None and not torch.cuda.is_initialized():
        prepare_determinism(options)
    choices = choose_math_backend(options, lowest, os.environ.get(CUBLAS_VARIABLE))
    _set_tf32(choices["tf32"].effective, choices["matmul_precision"].effective)
    torch.use_deterministic_algorithms(choices["deterministic"].effective)
    torch.backends.cudnn.benchmark = choices["cudnn_benchmark"].effective
    return choices


def choose_math_backend(options: MathOptions, lowest: Capability | None, cublas_workspace: str | None) -> dict[str, Choice]:
    """The policy itself."""
    tf32 = _choose_tf32(options.tf32, lowest)
    deterministic = _choose_deterministic(options.deterministic, lowest, cublas_workspace)
    return {
        "tf32": tf32,
        "matmul_precision": _choose_matmul_precision(options.matmul_precision, tf32, lowest),
        "deterministic": deterministic,
        "cudnn_benchmark": _choose_benchmark(options.cudnn_benchmark, deterministic, lowest),
    }


def _choose_tf32(requested: bool, lowest: Capability | None) -> Choice:
    if requested and lowest is None:
        return Choice(True, False, "no GPU")
    if requested and lowest is not None and lowest[0] < AMPERE:
        return Choice(True, False, f"compute capability {lowest[0]}.{lowest[1]} has no TF32")
    return as_requested(requested)


def _choose_matmul_precision(requested: str, tf32: Choice, lowest: Capability | None) -> Choice:
    if requested != "highest" and not tf32.effective:
        return Choice(requested, "highest", "no GPU: products stay whole" if lowest is None else "tf32 is off")
    return as_requested(requested)


def _choose_deterministic(requested: bool, lowest: Capability | None, cublas_workspace: str | None) -> Choice:
    if requested and lowest is not None and cublas_workspace not in CUBLAS_REPEATABLE:
        return Choice(
            True,
            False,
            f"{CUBLAS_VARIABLE} must be {' or '.join(CUBLAS_REPEATABLE)} before CUDA starts, and was {cublas_workspace or 'not set'}",
        )
    return as_requested(requested)


def _choose_benchmark(requested: bool, deterministic: Choice, lowest: Capability | None) -> Choice:
    if requested and lowest is None:
        return Choice(True, False, "no GPU")
    if requested and deterministic.effective:
        return Choice(True, False, "deterministic: the fastest algorithm may be another one each time")
    return as_requested(requested)


def _set_tf32(tf32: bool, matmul_precision: str) -> None:
    """Through torch's older switches: compiled code reads those, and refuses to run where the newer ones were used (torch 2.9 to 2.13)."""
    with warnings.catch_warnings():
        # torch announces the newer switches once, on CUDA builds.
        warnings.filterwarnings("ignore", message="Please use the new API settings to control TF32", category=UserWarning)
        torch.set_float32_matmul_precision(matmul_precision)
        torch.backends.cudnn.allow_tf32 = tf32
