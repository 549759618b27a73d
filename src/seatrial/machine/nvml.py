"""NVML, the driver's own library, started for this process and asked with patience.

In: a question. Out: what it makes of the binding, or one sentence on why there is none and whether that only means that there is no GPU.

The harness asks through `ask`, so that a driver that hangs cannot hang a campaign: no answer within PATIENCE_S raises `NoAnswer`, and
while that call has not returned every further question is answered so at once. A sampler, which has a thread of its own, takes
`start_nvml`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from seatrial.machine.patience import NoAnswer, within

# Starting the library takes seconds where no persistence daemon runs and there are many GPUs.
PATIENCE_S = 10.0
# NVML's own numbers; the binding's names for them came and went with its versions.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
T = TypeVar("T")
_UNANSWERED: list[NoAnswer] = []


@dataclass(frozen=True, kw_only=True)
class Nvml:
    """What came of starting NVML."""

    library: Any | None = None
    """The binding (the module `pynvml`); None when it could not be started."""
    problem: str = ""
    no_driver: bool = False
    """There is no driver, so no GPU either: nothing is amiss."""


def ask(question: Callable[[Nvml], T], patience_s: float = PATIENCE_S) -> T:
    """What `question` makes of NVML; `NoAnswer` when the driver hangs."""
    # Waited for once: a campaign must not lose the whole patience again before every run.
    _UNANSWERED[:] = [unanswered for unanswered in _UNANSWERED if not unanswered.came_late]
    if _UNANSWERED:
        raise _UNANSWERED[0]
    try:
        return within(patience_s, lambda: question(start_nvml()))
    except NoAnswer as unanswered:
        _UNANSWERED.append(unanswered)
        raise


@functools.cache
def start_nvml() -> Nvml:
    """Load and initialise it, once in a process, failure included: each try may take seconds. Kept, since ending it would unload it."""
    try:
        import pynvml
    except ImportError:
        return Nvml(problem="nvidia-ml-py is not installed: install it to see GPUs")
    try:
        pynvml.nvmlInit()
    except errors_of(pynvml) as error:
        no_driver = error_code(error) in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED)
        return Nvml(problem="no GPU driver" if no_driver else f"NVML does not start: {error}", no_driver=no_driver)
    except OSError as error:
        return Nvml(problem=f"NVML does not start: {error}")
    return Nvml(library=pynvml)


def errors_of(library: Any, *more: type[Exception]) -> tuple[type[Exception], ...]:
    """What the binding raises: an error of NVML, or that the driver is too old for it, which is of another kind; and `more`."""
    names = ("NVMLError", "NVMLLibraryMismatchError")
    return (*(kind for name in names if (kind := getattr(library, name, None)) is not None), *more)


def error_code(error: Exception) -> int | None:
    """NVML's number of an error of the binding; None for one that did not come from NVML."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None
