"""What NVML is asked of a GPU: each question with the functions that answer it, the columns they fill, and how often it may be asked.

In: nothing. Out: QUESTIONS and PROCESSES, which machine.gpu_readings asks again and again; FACTS and STATE, which machine.gpus and
machine.gpu_state ask once, with `answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.machine.nvml import errors_of
from seatrial.units import MIB

# Slow questions are asked of a GPU on one look in so many, and of no more than one GPU a look where there are more of those. On an H200
# the driver works 4 ms for its energy counter, and watches the bus for 20 ms each way while we wait; all others take microseconds.
ENERGY_EVERY = 3
PCIE_EVERY = 5
# Bits of NVML's clocks event reasons. The first, an idle GPU's low clocks, holds nothing back and is left out.
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


@dataclass(frozen=True)
class NvmlQuestion:
    """One thing to ask: functions of the binding with their arguments, the first that the driver has counts, and what they fill."""

    columns: tuple[str, ...]
    ways: tuple[tuple[Any, ...], ...]
    cells: Callable[[Any], tuple[Any, ...]] = lambda answer: (answer,)
    every: int = 1
    is_counter: bool = False
    """Asked on the first and the last look in any case: what counts is how far it got."""


UTILISATION = NvmlQuestion(("util_gpu_pct", "util_mem_pct"), (("nvmlDeviceGetUtilizationRates",),), lambda rates: (rates.gpu, rates.memory))
# The second version leaves out what the driver keeps for itself, as nvidia-smi does.
MEMORY = NvmlQuestion(
    ("mem_used_mib", "mem_total_mib", "mem_free_mib"),
    (("nvmlDeviceGetMemoryInfo", _MEMORY_V2), ("nvmlDeviceGetMemoryInfo",)),
    lambda memory: (memory.used // MIB, memory.total // MIB, memory.free // MIB),
)
POWER_LIMIT = NvmlQuestion(("power_limit_w",), (("nvmlDeviceGetEnforcedPowerLimit",),), lambda milliwatt: (milliwatt / 1000,))
THROTTLE = NvmlQuestion(
    ("throttle_reasons",),
    (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",)),
    lambda bits: (throttle_names(bits),),
)
ECC_UNCORRECTED = NvmlQuestion(("ecc_uncorrected",), (("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_BOOT),))
LINK_GEN = NvmlQuestion(("pcie_link_gen",), (("nvmlDeviceGetCurrPcieLinkGeneration",),))
LINK_WIDTH = NvmlQuestion(("pcie_link_width",), (("nvmlDeviceGetCurrPcieLinkWidth",),))
QUESTIONS = (
    NvmlQuestion(("temp_c",), (("nvmlDeviceGetTemperature", _GPU_SENSOR), ("nvmlDeviceGetTemperatureV", _GPU_SENSOR))),
    UTILISATION,
    NvmlQuestion(("power_w",), (("nvmlDeviceGetPowerUsage",),), lambda milliwatt: (milliwatt / 1000,)),
    NvmlQuestion(("sm_clock_mhz",), (("nvmlDeviceGetClockInfo", _SM_CLOCK),)),
    NvmlQuestion(("mem_clock_mhz",), (("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),)),
    MEMORY,
    NvmlQuestion(
        ("energy_j",),
        (("nvmlDeviceGetTotalEnergyConsumption",),),
        lambda millijoule: (millijoule / 1000,),
        every=ENERGY_EVERY,
        is_counter=True,
    ),
    POWER_LIMIT,
    THROTTLE,
    NvmlQuestion(("ecc_corrected",), (("nvmlDeviceGetTotalEccErrors", _CORRECTED, _SINCE_BOOT),)),
    ECC_UNCORRECTED,
    LINK_GEN,
    LINK_WIDTH,
    NvmlQuestion(("pcie_rx_kib_per_s",), (("nvmlDeviceGetPcieThroughput", _RX),), every=PCIE_EVERY),
    NvmlQuestion(("pcie_tx_kib_per_s",), (("nvmlDeviceGetPcieThroughput", _TX),), every=PCIE_EVERY),
)
# By version: the plain name raises an error of its own kind where the driver is older than the binding.
PROCESSES = NvmlQuestion(("process_count",), (("nvmlDeviceGetComputeRunningProcesses_v3",), ("nvmlDeviceGetComputeRunningProcesses_v2",)))
POWER_DEFAULT = NvmlQuestion(("power_default_w",), (("nvmlDeviceGetPowerManagementDefaultLimit",),), lambda milliwatt: (milliwatt / 1000,))
LINK_GEN_MAX = NvmlQuestion(("pcie_gen_max",), (("nvmlDeviceGetMaxPcieLinkGeneration",),))
# What a card is, whatever it does.
FACTS = (
    NvmlQuestion(("uuid",), (("nvmlDeviceGetUUID",),), lambda text: (as_text(text),)),
    NvmlQuestion(("name",), (("nvmlDeviceGetName",),), lambda text: (as_text(text),)),
    NvmlQuestion(("compute_capability",), (("nvmlDeviceGetCudaComputeCapability",),), lambda pair: ("{}.{}".format(*pair),)),
    POWER_LIMIT,
    POWER_DEFAULT,
    LINK_GEN_MAX,
    NvmlQuestion(("sm_clock_max_mhz",), (("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),)),
    NvmlQuestion(("memory_clock_max_mhz",), (("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK),)),
)
# How it is now, for a judgement before a campaign.
STATE = (
    UTILISATION,
    MEMORY,
    POWER_LIMIT,
    POWER_DEFAULT,
    THROTTLE,
    ECC_UNCORRECTED,
    NvmlQuestion(("rows_pending", "rows_failed"), (("nvmlDeviceGetRemappedRows",),), lambda rows: (bool(rows[2]), bool(rows[3]))),
    NvmlQuestion(("persistence",), (("nvmlDeviceGetPersistenceMode",),), lambda mode: (bool(mode),)),
    NvmlQuestion(("performance_state",), (("nvmlDeviceGetPerformanceState",),)),
    LINK_GEN,
    LINK_GEN_MAX,
    LINK_WIDTH,
    NvmlQuestion(("pcie_width_max",), (("nvmlDeviceGetMaxPcieLinkWidth",),)),
    NvmlQuestion(("mig",), (("nvmlDeviceGetMigMode",),), lambda modes: (bool(modes[0]),)),
    NvmlQuestion(("compute_mode",), (("nvmlDeviceGetComputeMode",),), lambda mode: (COMPUTE_MODES.get(mode, str(mode)),)),
)


def answer(library: Any, handle: Any, question: NvmlQuestion) -> Any | None:
    """What the first way that works gives, asked once; None when none does."""
    for name, *arguments in question.ways:
        try:
            return getattr(library, name)(handle, *arguments)
        except errors_of(library, AttributeError, TypeError):
            # This driver, this GPU or this binding has none; a binding older than ours may lack an argument.
            continue
    return None


def answers(library: Any, handle: Any, questions: Sequence[NvmlQuestion]) -> dict[str, Any]:
    """Column → value of everything asked; None where there is no answer."""
    cells: dict[str, Any] = {}
    for question in questions:
        told = answer(library, handle, question)
        cells.update(zip(question.columns, (None,) * len(question.columns) if told is None else question.cells(told), strict=True))
    return cells


def throttle_names(bits: int) -> str:
    """`sw_power_cap+hw_slowdown`; empty while nothing holds the clocks back."""
    names = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~GPU_IDLE & ~sum(THROTTLE_REASONS)
    return "+".join([*names, *([hex(unknown)] if unknown else [])])


def as_text(value: Any) -> str:
    """Older bindings give bytes."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value or "")
