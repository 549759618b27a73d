"""False alarms and detection rate of the memory-leak verdict.

    python benchmarks/leak_rates.py

    leak-free  200 series: leak 0  plateau 120  inconclusive 80
    5 MiB/min  200 series: leak 195  plateau 0  inconclusive 5
    …
    {"benchmark": "leak_rates", "figures": {"false_alarms": 0, "detected_fraction": 0.975, "detected_2_mib_fraction": 0.6, …}, …}

`false_alarms` are leaks reported in 200 leak-free series (leak_series.py: caches, ramps, steps, saw-teeth, worker restarts; half a minute
to three hours). `detected_fraction` is of 200 series of half an hour at 2 s that leak 5 MiB/min, with warm-up, saw-teeth, checkpoints and
noise on top; the figures for 2 and 1 MiB/min have no bound. `slope_covered_fraction` is the coverage of the slope intervals of detected
leaks. `--first` takes other series, `-v` lists the misclassified ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl

from leak_series import Series, leak_free, leaking
from outcome import parser, report
from seatrial.analyse.memory_leaks import memory_trends
from seatrial.records.measure import MemoryTrend, MemoryVerdict
from seatrial.records.telemetry import TelemetryTables

SERIES = 200
STARTED_T = 1_794_700_000.0
RATES_MIB_PER_MIN = (5.0, 2.0, 1.0)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--first", type=int, default=0, help="number of the first series (0); another gives other series")
    options.add_argument("--series", type=int, default=SERIES, help="series of each kind")
    options.add_argument("-v", "--verbose", action="store_true", help="list the misclassified series")
    args = options.parse_args()
    numbers = range(args.first, args.first + (2 if args.quick else args.series))
    free = [(series, classify(series)) for series in map(leak_free, numbers)]
    leaks = {rate: [(series, classify(series)) for series in (leaking(number, rate) for number in numbers)] for rate in RATES_MIB_PER_MIN}
    print(line("leak-free", [trend for _, trend in free]))
    for rate, classified in leaks.items():
        print(line(f"{rate:g} MiB/min", [trend for _, trend in classified]))
    if args.verbose:
        wrong = [pair for pair in free if is_leak(pair[1])] + [pair for pair in leaks[RATES_MIB_PER_MIN[0]] if not is_leak(pair[1])]
        print(*(f"{series.shape} {series.kind} {series.at_s[-1] / 60:.1f} min: {trend.reason}" for series, trend in wrong), sep="\n")
    found = {rate: [trend for _, trend in classified if is_leak(trend)] for rate, classified in leaks.items()}
    figures = {
        "false_alarms": sum(is_leak(trend) for _, trend in free),
        "detected_fraction": len(found[5.0]) / len(numbers),
        "detected_2_mib_fraction": len(found[2.0]) / len(numbers),
        "detected_1_mib_fraction": len(found[1.0]) / len(numbers),
        "slope_covered_fraction": round(covered(found[5.0], 5.0), 3),
    }
    at_least = {"detected_fraction": 0.95, "slope_covered_fraction": 0.9}
    report("leak_rates", figures, {"false_alarms": 0}, at_least, quick=args.quick, series=len(numbers), first=args.first)


def classify(series: Series) -> MemoryTrend:
    """The analysis's trend of the series, given as its telemetry table."""
    t = STARTED_T + series.at_s
    count = int((series.at_s[-1] - series.at_s[0]) / series.step_s)
    step = np.arange(count + 1)
    steps = pl.DataFrame({"rank": np.zeros_like(step), "step": step, "t": t[0] + step * series.step_s})
    if series.kind == "gpu":
        table = pl.DataFrame({"epoch_sec": t, "gpu_index": np.zeros(len(t)), "mem_used_mib": series.mib, "mem_total_mib": 81_920.0})
        return memory_trends(TelemetryTables(gpu=table), steps)[0]
    table = pl.DataFrame({"epoch_sec": t, "rss_kib": series.mib * 1024, "mem_available_kib": 64.0 * 1024**2})
    return memory_trends(TelemetryTables(host=table), steps)[0]


def is_leak(trend: MemoryTrend) -> bool:
    return trend.verdict is MemoryVerdict.LEAK


def covered(trends: Sequence[MemoryTrend], rate: float) -> float:
    held = [trend for trend in trends if (trend.slope_low or 0) <= rate <= (trend.slope_high or 0)]
    return len(held) / len(trends) if trends else 0.0


def line(name: str, trends: Sequence[MemoryTrend]) -> str:
    counts = Counter(trend.verdict for trend in trends)
    return f"{name:<10} {len(trends)} series: " + "  ".join(f"{verdict.value} {counts[verdict]}" for verdict in MemoryVerdict)


if __name__ == "__main__":
    main()
