"""What the machine did, group by group.

In: CampaignResults. Out: a table's headers and rows. Figures are of the measured window of each run (analyse.telemetry), then over the runs
that count: means of means, sums of counts, the highest of peaks. A column that no run has a figure for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults
from seatrial.report.digest.standings import groups_in_order, runs_by_group
from seatrial.report.numbers import NONE, figure

NOTHING = "Nothing is known: the plan's `telemetry` asks for none, no run counts, or what the runs wrote could not be read."
EXPLAINED = (
    "Of the measured window, GPUs of a run together; energy by the driver's own counter where it has one. Own cost is what the samplers "
    "took of one core. `gpu_telemetry.csv` and `host_telemetry.csv` in each run's folder hold every sample."
)
COLUMNS: tuple[tuple[str, str, Callable[[Sequence[float]], float]], ...] = (
    ("gpu_util_mean_pct", "GPU %", fmean),
    ("gpu_power_mean_w", "GPU W", fmean),
    ("gpu_joules_per_sample", "J a sample", fmean),
    ("gpu_temp_max_c", "hottest °C", max),
    ("gpu_sm_clock_mean_mhz", "SM MHz", fmean),
    ("gpu_mem_peak_mib", "GPU peak MiB", max),
    ("gpu_throttled_pct", "throttled %", fmean),
    ("host_rss_peak_mib", "tree peak MiB", max),
    ("host_cpu_busy_mean_pct", "CPU %", fmean),
    ("host_cpu_steal_mean_pct", "steal %", fmean),
    ("telemetry_gaps", "gaps", sum),
    ("telemetry_invalid", "dropped", sum),
    ("telemetry_cpu_pct", "own cost %", fmean),
)


def telemetry_table(results: CampaignResults, names: Sequence[str] | None = None) -> tuple[list[str], list[list[object]]]:
    """Headers and rows, best group first; of the columns in `names`, or of all, those that any run has a figure for."""
    sampled = {
        key: told
        for key, runs in runs_by_group(results).items()
        if (told := [run.measure.telemetry for run in runs if run.measure and run.measure.telemetry])
    }
    titled = {column[0]: column for column in COLUMNS}
    wanted = [titled[name] for name in names or titled]
    shown = [column for column in wanted if any(_values(runs, column[0]) for runs in sampled.values())]
    groups = [group for group in groups_in_order(results) if group.group_key in sampled]
    rows = [_row(group.group, sampled[group.group_key], shown) for group in groups] if shown else []
    return ["group", *(title for _, title, _ in shown), "runs"], rows


def _row(
    group: str, runs: Sequence[dict[str, Cell]], columns: Sequence[tuple[str, str, Callable[[Sequence[float]], float]]]
) -> list[object]:
    cells = [_cell(over(values)) if (values := _values(runs, name)) else NONE for name, _, over in columns]
    return [group, *cells, len(runs)]


def _cell(value: float) -> str:
    return str(value) if isinstance(value, int) else figure(value)


def _values(runs: Sequence[dict[str, Cell]], name: str) -> list[float]:
    return [value for run in runs if isinstance(value := run.get(name), (int, float))]
