"""What can be drawn of a run, and the tables it goes into: OUT/charts/NAME.csv, from which, with summary.json, every chart is drawn.

Times are seconds since the launch of the attempt. Series are thinned so that no extreme is lost; distributions, shares and ranks are of the
steps that count, and carry their window and n.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.measure import Cell

Columns = dict[str, list[Cell]]
"""A table by column; all of one length."""

WHOSE = ("run", "group", "repeat")
"""The first columns of every table on disk; a run's own tables go without."""
STEPS, STEP_TIMES, PHASES, RANKS, TELEMETRY, SPANS, ETA = "steps", "step_times", "phases", "ranks", "telemetry", "spans", "eta"
CHART_TABLES: dict[str, tuple[str, ...]] = {
    STEPS: ("rank", "step", "begin_s", "t_s", "iter_ms", "loss", "counted"),
    STEP_TIMES: ("quantile", "iter_ms", "first_step", "last_step", "n"),
    PHASES: ("phase", "mean_ms", "share_pct", "first_step", "last_step", "n"),
    RANKS: ("rank", "host", "gpu", "iter_p50_ms", "work_p50_ms", "wait_p50_ms", "first_step", "last_step", "n"),
    TELEMETRY: ("source", "metric", "t_s", "value"),
    SPANS: ("source", "span", "begin_s", "end_s"),
    ETA: ("step", "elapsed_s", "eta_s", "low_s", "high_s", "actual_s"),
}
"""By file name. `steps` are those of the lowest rank that told any, thinned: a row begins with the first step it speaks of (`begin_s`) and
ends with the last (`t_s`); `counted` is whether they are in the window and hold no pause. `source` is `host`, `gpu 0` or `rank 0`, on many
hosts `host NAME` and `gpu NAME:0`; a metric has the name of its telemetry column; a span of a GPU is `throttled REASON`."""
TEXTS = frozenset({"run", "group", "host", "gpu", "phase", "source", "metric", "span"})
WHOLE = frozenset({"repeat", "rank", "step", "first_step", "last_step", "n"})
FLAGS = frozenset({"counted"})
TIMES = frozenset({"begin_s", "end_s", "t_s", "elapsed_s", "eta_s", "low_s", "high_s", "actual_s"})
"""Seconds, told to the millisecond."""
MARKED = frozenset({"loss"})
"""Columns in which a number that is none says something: it stays what it is."""
# What a column holds goes by its name in every table; those named nowhere here are other numbers.
DRAWN_GPU = (
    "power_w", "sm_clock_mhz", "temp_c", "util_gpu_pct", "mem_used_mib", "mem_free_mib", "pcie_rx_kib_per_s", "pcie_tx_kib_per_s",
)  # fmt: skip
DRAWN_HOST = (
    "cpu_user_pct", "cpu_system_pct", "rss_kib", "mem_available_kib", "disk_read_kib_per_s", "disk_write_kib_per_s", "net_rx_kib_per_s",
    "net_tx_kib_per_s",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Detail:
    """How many points of one run are kept."""

    steps: int
    telemetry: int
    """Of each metric of each source."""
    eta: int


@dataclass(frozen=True, kw_only=True)
class RunCharts:
    """One attempt, ready to be drawn."""

    tables: dict[str, Columns] = field(default_factory=dict)
    """By name in CHART_TABLES, without the columns of WHOSE; one that has no rows is not there."""
    gpus: int = 0
    """Of which there are samples."""
    gpus_drawn: int = 0
    """Of those, the ones that have every metric in the telemetry; of the others it has only what no drawn one reaches."""
    hosts: int = 0
    """Of a run on many hosts, those of which there are samples."""
    hosts_drawn: int = 0
