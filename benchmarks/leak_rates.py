"""How often memory that does not leak is called a leak, and how often a leak is found.

    python benchmarks/leak_rates.py

    leak-free  200 series: leak 0  plateau 120  inconclusive 80
    5 MiB/min  200 series: leak 195  plateau 0  inconclusive 5
    …
    {"benchmark": "leak_rates", "figures": {"false_alarms": 0, "detected_fraction": 0.975, "detected_2_mib_fraction": 0.6, …}, …}

`false_alarms` are leaks reported in 200 leak-free series (leak_series.py: caches, ramps, steps, saw-teeth, workers that come and go; half a
minute to three hours). `detected_fraction` is of 200 series of half an hour at 2 s that leak 5 MiB/min, with warm-up, saw-teeth,
checkpoints and noise on top; the figures of 2 and 1 MiB/min stand beside it without a bound. `slope_covered_fraction`: intervals of the
found leaks that hold the true rate. `--first` takes other series than the usual ones, `-v` names those that were judged wrongly.
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
    options.add_argument("--first", type=int, default=0, help="number of the first series: others than the usual ones")
    options.add_argument("--series", type=int, default=SERIES, help="series of each kind")
    options.add_argument("-v", "--verbose", action="store_true", help="name the series that were judged wrongly")
    args = options.parse_args()
    numbers = range(args.first, args.first + (2 if args.quick else args.series))
    free = [(series, judge(series)) for series in map(leak_free, numbers)]
    leaks = {rate: [(series, judge(series)) for series in (leaking(number, rate) for number in numbers)] for rate in RATES_MIB_PER_MIN}
    print(line("leak-free", [course for _, course in free]))
    for rate, judged in leaks.items():
        print(line(f"{rate:g} MiB/min", [course for _, course in judged]))
    if args.verbose:
        wrong = [one for one in free if is_leak(one[1])] + [one for one in leaks[RATES_MIB_PER_MIN[0]] if not is_leak(one[1])]
        print(*(f"{series.shape} {series.kind} {series.at_s[-1] / 60:.1f} min: {course.reason}" for series, course in wrong), sep="\n")
    found = {rate: [course for _, course in judged if is_leak(course)] for rate, judged in leaks.items()}
    figures = {
        "false_alarms": sum(is_leak(course) for _, course in free),
        "detected_fraction": len(found[5.0]) / len(numbers),
        "detected_2_mib_fraction": len(found[2.0]) / len(numbers),
        "detected_1_mib_fraction": len(found[1.0]) / len(numbers),
        "slope_covered_fraction": round(covered(found[5.0], 5.0), 3),
    }
    at_least = {"detected_fraction": 0.95, "slope_covered_fraction": 0.9}
    report("leak_rates", figures, {"false_alarms": 0}, at_least, quick=args.quick, series=len(numbers), first=args.first)


def judge(series: Series) -> MemoryTrend:
    """What the analysis makes of it, through its own tables."""
    t = STARTED_T + series.at_s
    count = int((series.at_s[-1] - series.at_s[0]) / series.step_s)
    step = np.arange(count + 1)
    steps = pl.DataFrame({"rank": np.zeros_like(step), "step": step, "t": t[0] + step * series.step_s})
    if series.kind == "gpu":
        table = pl.DataFrame({"epoch_sec": t, "gpu_index": np.zeros(len(t)), "mem_used_mib": series.mib, "mem_total_mib": 81_920.0})
        return memory_trends(TelemetryTables(gpu=table), steps)[0]
    table = pl.DataFrame({"epoch_sec": t, "rss_kib": series.mib * 1024, "mem_available_kib": 64.0 * 1024**2})
    return memory_trends(TelemetryTables(host=table), steps)[0]


def is_leak(course: MemoryTrend) -> bool:
    return course.verdict is MemoryVerdict.LEAK


def covered(courses: Sequence[MemoryTrend], rate: float) -> float:
    held = [course for course in courses if (course.slope_low or 0) <= rate <= (course.slope_high or 0)]
    return len(held) / len(courses) if courses else 0.0


def line(name: str, courses: Sequence[MemoryTrend]) -> str:
    counts = Counter(course.verdict for course in courses)
    return f"{name:<10} {len(courses)} series: " + "  ".join(f"{verdict.value} {counts[verdict]}" for verdict in MemoryVerdict)


if __name__ == "__main__":
    main()
