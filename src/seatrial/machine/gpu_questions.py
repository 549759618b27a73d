"""What NVML is asked of a GPU: each question with the functions that answer it, the columns they fill, and how often it may be asked.

In: nothing. Out: QUESTIONS and PROCESSES, for machine.gpu_readings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MIB = 1024 * 1024
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
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_TX, _RX = 0, 1
_CORRECTED, _UNCORRECTED, _SINCE_BOOT = 0, 1, 0
_GPU_SENSOR = 0
_MEMORY_V2 = 0x02000028


@dataclass(frozen=True)
class Question:
    """One thing to ask: functions of the binding with their arguments, the first that the driver has counts, and what they fill."""

    columns: tuple[str, ...]
    ways: tuple[tuple[Any, ...], ...]
    cells: Callable[[Any], tuple[Any, ...]] = lambda answer: (answer,)
    every: int = 1
    is_counter: bool = False
    """Asked on the first and the last look in any case: what counts is how far it got."""


QUESTIONS = (
    Question(("temp_c",), (("nvmlDeviceGetTemperature", _GPU_SENSOR), ("nvmlDeviceGetTemperatureV", _GPU_SENSOR))),
    Question(("util_gpu_pct", "util_mem_pct"), (("nvmlDeviceGetUtilizationRates",),), lambda rates: (rates.gpu, rates.memory)),
    Question(("power_w",), (("nvmlDeviceGetPowerUsage",),), lambda milliwatt: (milliwatt / 1000,)),
    Question(("sm_clock_mhz",), (("nvmlDeviceGetClockInfo", _SM_CLOCK),)),
    Question(("mem_clock_mhz",), (("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),)),
    # The second version leaves out what the driver keeps for itself, as nvidia-smi does.
    Question(
        ("mem_used_mib", "mem_total_mib", "mem_free_mib"),
        (("nvmlDeviceGetMemoryInfo", _MEMORY_V2), ("nvmlDeviceGetMemoryInfo",)),
        lambda memory: (memory.used // MIB, memory.total // MIB, memory.free // MIB),
    ),
    Question(
        ("energy_j",),
        (("nvmlDeviceGetTotalEnergyConsumption",),),
        lambda millijoule: (millijoule / 1000,),
        every=ENERGY_EVERY,
        is_counter=True,
    ),
    Question(("power_limit_w",), (("nvmlDeviceGetEnforcedPowerLimit",),), lambda milliwatt: (milliwatt / 1000,)),
    Question(
        ("throttle_reasons",),
        (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",)),
        lambda bits: (throttle_names(bits),),
    ),
    Question(("ecc_corrected",), (("nvmlDeviceGetTotalEccErrors", _CORRECTED, _SINCE_BOOT),)),
    Question(("ecc_uncorrected",), (("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_BOOT),)),
    Question(("pcie_link_gen",), (("nvmlDeviceGetCurrPcieLinkGeneration",),)),
    Question(("pcie_link_width",), (("nvmlDeviceGetCurrPcieLinkWidth",),)),
    Question(("pcie_rx_kib_per_s",), (("nvmlDeviceGetPcieThroughput", _RX),), every=PCIE_EVERY),
    Question(("pcie_tx_kib_per_s",), (("nvmlDeviceGetPcieThroughput", _TX),), every=PCIE_EVERY),
)
# By version: the plain name raises an error of its own kind where the driver is older than the binding.
PROCESSES = Question(("process_count",), (("nvmlDeviceGetComputeRunningProcesses_v3",), ("nvmlDeviceGetComputeRunningProcesses_v2",)))


def throttle_names(bits: int) -> str:
    """`sw_power_cap+hw_slowdown`; empty while nothing holds the clocks back."""
    names = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~GPU_IDLE & ~sum(THROTTLE_REASONS)
    return "+".join([*names, *([hex(unknown)] if unknown else [])])
