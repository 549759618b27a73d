"""What of telemetry is drawn in the timeline: which metrics stand together in a panel, and in which unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from seatrial.units import KIB_PER_MIB


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One or two metrics on one scale."""

    id: str
    title: str
    unit: str
    metrics: dict[str, str]
    """Metric → the word for it; the second is dashed."""
    per_unit: int = 1
    """How much of the metric is one of `unit`."""


KIB_PER_GIB = KIB_PER_MIB * 1024
RATES = {"KiB/s": 1, "MiB/s": KIB_PER_MIB, "GiB/s": KIB_PER_GIB}
PANELS = (
    Panel(id="power", title="Power", unit="W", metrics={"power_w": "power"}),
    Panel(id="clock", title="SM clock", unit="MHz", metrics={"sm_clock_mhz": "clock"}),
    Panel(id="temperature", title="Temperature", unit="°C", metrics={"temp_c": "temperature"}),
    Panel(id="busy", title="GPU busy", unit="%", metrics={"util_gpu_pct": "busy"}),
    Panel(id="frame", title="GPU memory", unit="GiB", metrics={"mem_used_mib": "used", "mem_free_mib": "free"}, per_unit=1024),
    Panel(id="pcie", title="PCIe", unit="KiB/s", metrics={"pcie_rx_kib_per_s": "received", "pcie_tx_kib_per_s": "sent"}),
    Panel(id="cpu", title="CPU", unit="%", metrics={"cpu_user_pct": "user", "cpu_system_pct": "system"}),
    Panel(id="rss", title="Memory of the run's processes", unit="GiB", metrics={"rss_kib": "resident"}, per_unit=KIB_PER_GIB),
    Panel(id="available", title="Memory available", unit="GiB", metrics={"mem_available_kib": "available"}, per_unit=KIB_PER_GIB),
    Panel(id="disk", title="Disk", unit="KiB/s", metrics={"disk_read_kib_per_s": "read", "disk_write_kib_per_s": "written"}),
    Panel(id="net", title="Network", unit="KiB/s", metrics={"net_rx_kib_per_s": "received", "net_tx_kib_per_s": "sent"}),
)


def in_fitting_unit(panel: Panel, largest: float) -> Panel:
    """A rate in the unit in which its peak is 1 or more; all else as it is."""
    if panel.unit not in RATES:
        return panel
    unit = next((name for name, size in reversed(RATES.items()) if largest >= size), "KiB/s")
    return replace(panel, unit=unit, per_unit=RATES[unit])
