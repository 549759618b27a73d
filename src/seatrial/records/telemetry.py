"""Telemetry: columns of gpu_telemetry.csv and host_telemetry.csv, and telemetry.json, the samplers' own account.

Stage 1's columns come first, under their names; ours follow. A cell is empty where the driver or the kernel has no value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from seatrial.records.caution import Caution

if TYPE_CHECKING:
    import polars

GPU_STAGE1 = (
    "timestamp", "epoch_sec", "gpu_index", "gpu_uuid", "gpu_name", "temp_c", "util_gpu_pct", "util_mem_pct", "power_w", "sm_clock_mhz",
    "mem_clock_mhz", "mem_used_mib", "mem_total_mib",
)  # fmt: skip
GPU_OURS = (
    "mem_free_mib", "energy_j", "power_limit_w", "throttle_reasons", "ecc_corrected", "ecc_uncorrected", "pcie_rx_kib_per_s",
    "pcie_tx_kib_per_s", "pcie_link_gen", "pcie_link_width", "process_count", "foreign_process_count", "sample_ms", "gap_s",
)  # fmt: skip
"""`energy_j` counts since the driver was loaded; `throttle_reasons` joins names with `+`, empty while the clocks are free; `gap_s` is
the time since the sample before, filled only where that is more than two intervals."""
HOST_STAGE1 = (
    "timestamp", "epoch_sec", "load1", "load5", "load15", "cpu_user_pct", "cpu_system_pct", "cpu_idle_pct", "mem_total_kib",
    "mem_available_kib", "mem_used_kib", "swap_total_kib", "swap_free_kib", "rss_kib",
)  # fmt: skip
"""`rss_kib` is that of the run's whole process tree, data workers included."""
HOST_SAMPLER_STAGE1 = ("train_proc_count", "train_rss_kib", "train_vsz_kib")
"""Further columns of stage 1's hand-written sampler."""
HOST_OURS = (
    "cpu_iowait_pct", "cpu_steal_pct", "tree_cpu_pct", "tree_threads", "shm_used_kib", "shm_total_kib", "disk_read_kib_per_s",
    "disk_write_kib_per_s", "net_rx_kib_per_s", "net_tx_kib_per_s", "sample_ms", "gap_s",
)  # fmt: skip
GPU_COLUMNS = (*GPU_STAGE1, *GPU_OURS)
HOST_COLUMNS = (*HOST_STAGE1, *HOST_SAMPLER_STAGE1, *HOST_OURS)
TEXT_COLUMNS = ("timestamp", "gpu_uuid", "gpu_name", "throttle_reasons")
"""All others are numbers."""
MAX_VALUES = {"power_w": 5000.0, "temp_c": 200.0}
"""Far above any hardware, far below what an overflowed counter gives."""
MAY_BE_NEGATIVE = frozenset({"temp_c"})

HOST_INDEX = "host_index"
GPUS_A_HOST = 4096
"""More than any host has."""


@dataclass(frozen=True, kw_only=True)
class SamplerAccount:
    """How one sampler worked."""

    interval_s: float
    rows: int = 0
    samples: int = 0
    """Samples taken, with or without a row."""
    invalid: int = 0
    """Rows dropped for an impossible value: utilisation outside 0 to 100, a negative power."""
    gaps: int = 0
    """Pairs of samples with more than two intervals between them."""
    longest_gap_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time of the sampler itself."""
    wall_s: float = 0.0
    """Time from its first sample to its last."""
    empty: bool = False
    """No row was written; `note` says why, and `expected` whether that is normal."""
    expected: bool = False
    """Empty or nearly empty for a good reason: no GPU here, or a run shorter than two intervals."""
    stopped_t: float | None = None
    """Wall clock of a call that had not returned when the run ended; None where all did."""
    missing: tuple[str, ...] = ()
    """Columns without any value: the driver or the kernel does not provide them."""
    note: str = ""
    """One sentence on what went wrong: why it is empty, or when the driver stopped answering."""


@dataclass(frozen=True, kw_only=True)
class TelemetryAccount:
    """attempt-N/telemetry.json; None for a sampler that was off."""

    gpu: SamplerAccount | None = None
    host: SamplerAccount | None = None


@dataclass(frozen=True, kw_only=True)
class TelemetryTables:
    """The samples of one attempt, read by collect/ and measured by analyse/; None where there are none."""

    gpu: polars.DataFrame | None = None
    """Columns of GPU_COLUMNS that figures are computed from, one row per GPU and sample."""
    host: polars.DataFrame | None = None
    cautions: tuple[Caution, ...] = ()
    """About skipped parts of the files."""
    hosts: tuple[str, ...] = ()
    """Names of the hosts of a run on many. Then `host` has a column `host_index`, an index into these, and `gpu_index` is
    `host_index * GPUS_A_HOST` plus the GPU's number on its host, so that GPUs of different hosts stay apart."""
