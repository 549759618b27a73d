"""NVML, the NVIDIA driver's library: starting it with a timeout, and the queries of a GPU.

In: a function of the binding (`call_nvml`), or a device handle and queries (`query`, `query_all`). Out: what NVML answers; None for what
this driver, GPU or binding does not have. The harness goes through `call_nvml`, so that a driver that hangs cannot hang a campaign: no
answer within NVML_TIMEOUT_S raises `CallTimeout`, and until that call returns every further one raises it at once. A sampler, which has
its own thread, uses `start_nvml`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from seatrial.core.text import MIB
from seatrial.core.timeouts import CallTimeout, call_with_timeout

# Initialising takes seconds where no persistence daemon runs and there are many GPUs.
NVML_TIMEOUT_S = 10.0
# NVML's own error codes; the binding's names for them differ by version.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
# Expensive queries run on every n-th sample of a GPU, and for one GPU per sample at most where there are more GPUs than that. On an H200
# the energy counter takes the driver 4 ms, PCIe throughput 20 ms each way; everything else takes microseconds.
ENERGY_EVERY = 3
PCIE_EVERY = 5
# Bits of NVML's clocks event reasons. The first, an idle GPU's low clocks, throttles nothing and is left out.
GPU_IDLE = 0x1
THROTTLE_REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_TX, _RX = 0, 1
_CORRECTED, _UNCORRECTED, _SINCE_BOOT = 0, 1, 0
_GPU_SENSOR = 0
_MEMORY_V2 = 0x02000028

T = TypeVar("T")
_UNANSWERED: list[CallTimeout] = []


@dataclass(frozen=True, kw_only=True)
class Nvml:
    """The result of starting NVML."""

    library: Any | None = None
    """The binding (the module `pynvml`); None when it could not be started."""
    problem: str = ""
    no_driver: bool = False
    """No driver is installed, so there is no GPU: not an error."""


def call_nvml(function: Callable[[Nvml], T], timeout_s: float | None = None) -> T:
    """`function` of the started NVML; `CallTimeout` when the driver does not answer within `timeout_s`, NVML_TIMEOUT_S without."""
    # A campaign must not wait for the whole timeout before every run.
    _UNANSWERED[:] = [unanswered for unanswered in _UNANSWERED if not unanswered.has_returned]
    if _UNANSWERED:
        raise _UNANSWERED[0]
    try:
        return call_with_timeout(NVML_TIMEOUT_S if timeout_s is None else timeout_s, lambda: function(start_nvml()))
    except CallTimeout as unanswered:
        _UNANSWERED.append(unanswered)
        raise


@functools.cache
def start_nvml() -> Nvml:
    """Load and initialise NVML, once in a process, also when it fails: each try may take seconds. Never shut down."""
    try:
        import pynvml
    except ImportError:
        return Nvml(problem="nvidia-ml-py is not installed: install it to see GPUs")
    try:
        pynvml.nvmlInit()
    except nvml_errors(pynvml) as error:
        no_driver = error_code(error) in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED)
        return Nvml(problem="no GPU driver" if no_driver else f"NVML does not start: {error}", no_driver=no_driver)
    except OSError as error:
        return Nvml(problem=f"NVML does not start: {error}")
    return Nvml(library=pynvml)


def nvml_errors(library: Any, *more: type[Exception]) -> tuple[type[Exception], ...]:
    """The exceptions of the binding (a driver that is too old for it raises another class), and `more`."""
    names = ("NVMLError", "NVMLLibraryMismatchError")
    return (*(kind for name in names if (kind := getattr(library, name, None)) is not None), *more)


def error_code(error: Exception) -> int | None:
    """NVML's code of an exception of the binding; None for any other."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


@dataclass(frozen=True)
class NvmlQuery:
    """One query: the columns it fills, and the functions of the binding that answer it, of which the first that works is used."""

    columns: tuple[str, ...]
    calls: tuple[tuple[Any, ...], ...]
    """(function name, arguments …) each."""
    cells: Callable[[Any], tuple[Any, ...]] = lambda answer: (answer,)
    every: int = 1
    is_counter: bool = False
    """Read on the first and the last sample in any case: only the difference counts."""

    def row(self, answer: Any | None) -> dict[str, Any]:
        """Column → value; None where there is no answer."""
        return dict(zip(self.columns, (None,) * len(self.columns) if answer is None else self.cells(answer), strict=True))


def _milli(value: float) -> tuple[float]:
    return (value / 1000,)


UTILISATION = NvmlQuery(("util_gpu_pct", "util_mem_pct"), (("nvmlDeviceGetUtilizationRates",),), lambda rates: (rates.gpu, rates.memory))
# The second version leaves out what the driver reserves for itself, as nvidia-smi does.
MEMORY = NvmlQuery(
    ("mem_used_mib", "mem_total_mib", "mem_free_mib"),
    (("nvmlDeviceGetMemoryInfo", _MEMORY_V2), ("nvmlDeviceGetMemoryInfo",)),
    lambda memory: (memory.used // MIB, memory.total // MIB, memory.free // MIB),
)
POWER_LIMIT = NvmlQuery(("power_limit_w",), (("nvmlDeviceGetEnforcedPowerLimit",),), _milli)
THROTTLE = NvmlQuery(
    ("throttle_reasons",),
    (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",)),
    lambda bits: (throttle_names(bits),),
)
ECC_UNCORRECTED = NvmlQuery(("ecc_uncorrected",), (("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_BOOT),))
LINK_GEN = NvmlQuery(("pcie_link_gen",), (("nvmlDeviceGetCurrPcieLinkGeneration",),))
LINK_WIDTH = NvmlQuery(("pcie_link_width",), (("nvmlDeviceGetCurrPcieLinkWidth",),))
# What telemetry samples.
TELEMETRY_QUERIES = (
    NvmlQuery(("temp_c",), (("nvmlDeviceGetTemperature", _GPU_SENSOR), ("nvmlDeviceGetTemperatureV", _GPU_SENSOR))),
    UTILISATION,
    NvmlQuery(("power_w",), (("nvmlDeviceGetPowerUsage",),), _milli),
    NvmlQuery(("sm_clock_mhz",), (("nvmlDeviceGetClockInfo", _SM_CLOCK),)),
    NvmlQuery(("mem_clock_mhz",), (("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),)),
    MEMORY,
    NvmlQuery(("energy_j",), (("nvmlDeviceGetTotalEnergyConsumption",),), _milli, every=ENERGY_EVERY, is_counter=True),
    POWER_LIMIT,
    THROTTLE,
    NvmlQuery(("ecc_corrected",), (("nvmlDeviceGetTotalEccErrors", _CORRECTED, _SINCE_BOOT),)),
    ECC_UNCORRECTED,
    LINK_GEN,
    LINK_WIDTH,
    NvmlQuery(("pcie_rx_kib_per_s",), (("nvmlDeviceGetPcieThroughput", _RX),), every=PCIE_EVERY),
    NvmlQuery(("pcie_tx_kib_per_s",), (("nvmlDeviceGetPcieThroughput", _TX),), every=PCIE_EVERY),
)
# By version: the plain name raises an exception of another class where the driver is older than the binding.
PROCESSES = NvmlQuery(("process_count",), (("nvmlDeviceGetComputeRunningProcesses_v3",), ("nvmlDeviceGetComputeRunningProcesses_v2",)))
POWER_DEFAULT = NvmlQuery(("power_default_w",), (("nvmlDeviceGetPowerManagementDefaultLimit",),), _milli)
LINK_GEN_MAX = NvmlQuery(("pcie_gen_max",), (("nvmlDeviceGetMaxPcieLinkGeneration",),))
# Constant while the driver is loaded.
DEVICE_QUERIES = (
    NvmlQuery(("uuid",), (("nvmlDeviceGetUUID",),), lambda text: (as_text(text),)),
    NvmlQuery(("name",), (("nvmlDeviceGetName",),), lambda text: (as_text(text),)),
    NvmlQuery(("compute_capability",), (("nvmlDeviceGetCudaComputeCapability",),), lambda pair: ("{}.{}".format(*pair),)),
    POWER_LIMIT,
    POWER_DEFAULT,
    LINK_GEN_MAX,
    NvmlQuery(("sm_clock_max_mhz",), (("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),)),
    NvmlQuery(("memory_clock_max_mhz",), (("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK),)),
)
# What preflight checks before a campaign.
STATE_QUERIES = (
    UTILISATION,
    MEMORY,
    POWER_LIMIT,
    POWER_DEFAULT,
    THROTTLE,
    ECC_UNCORRECTED,
    NvmlQuery(("rows_pending", "rows_failed"), (("nvmlDeviceGetRemappedRows",),), lambda rows: (bool(rows[2]), bool(rows[3]))),
    NvmlQuery(("persistence",), (("nvmlDeviceGetPersistenceMode",),), lambda mode: (bool(mode),)),
    NvmlQuery(("performance_state",), (("nvmlDeviceGetPerformanceState",),)),
    LINK_GEN,
    LINK_GEN_MAX,
    LINK_WIDTH,
    NvmlQuery(("pcie_width_max",), (("nvmlDeviceGetMaxPcieLinkWidth",),)),
    NvmlQuery(("mig",), (("nvmlDeviceGetMigMode",),), lambda modes: (bool(modes[0]),)),
    NvmlQuery(("compute_mode",), (("nvmlDeviceGetComputeMode",),), lambda mode: (COMPUTE_MODES.get(mode, str(mode)),)),
)


def query(library: Any, handle: Any, wanted: NvmlQuery) -> Any | None:
    """The answer of the first call that works; None when none does."""
    for name, *arguments in wanted.calls:
        try:
            return getattr(library, name)(handle, *arguments)
        except nvml_errors(library, AttributeError, TypeError):
            # This driver, GPU or binding has no such function; an older binding may lack an argument.
            continue
    return None


def query_all(library: Any, handle: Any, queries: Sequence[NvmlQuery]) -> dict[str, Any]:
    """Column → value of every query; None where there is no answer."""
    cells: dict[str, Any] = {}
    for wanted in queries:
        cells.update(wanted.row(query(library, handle, wanted)))
    return cells


def throttle_names(bits: int) -> str:
    """`sw_power_cap+hw_slowdown`; empty while nothing throttles the clocks."""
    names = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~GPU_IDLE & ~sum(THROTTLE_REASONS)
    return "+".join([*names, *([hex(unknown)] if unknown else [])])


def as_text(value: Any) -> str:
    """The text of an answer, which older bindings return as bytes."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value or "")
