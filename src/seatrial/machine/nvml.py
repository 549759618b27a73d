"""NVML, the driver's own library, started for this process.

In: nothing. Out: the binding, initialised, or one sentence on why there is none and whether that only means that there is no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# NVML's own numbers; the binding's names for them came and went with its versions.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16


@dataclass(frozen=True, kw_only=True)
class Nvml:
    """What came of starting NVML."""

    library: Any | None = None
    """The binding (the module `pynvml`); None when it could not be started."""
    problem: str = ""
    no_driver: bool = False
    """There is no driver, so no GPU either: nothing is amiss."""


def start_nvml() -> Nvml:
    """Load and initialise it; may take seconds where no persistence daemon runs. The driver counts: a second start costs nothing."""
    try:
        import pynvml
    except ImportError:
        return Nvml(problem="nvidia-ml-py is not installed: install it to see GPUs")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        no_driver = error_code(error) in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED)
        return Nvml(problem="no GPU driver" if no_driver else f"NVML does not start: {error}", no_driver=no_driver)
    except OSError as error:
        return Nvml(problem=f"NVML does not start: {error}")
    return Nvml(library=pynvml)


def error_code(error: Exception) -> int | None:
    """NVML's number of an error of the binding; None for one that did not come from NVML."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None
