"""Error of the ETA estimates, and of those of the stage-1 benchmark's algorithm on the same jobs.

    python benchmarks/eta_error.py

    steady                       n  1080  median 0.0003  p90 0.0027  seed 0.0007 0.0048  covered 0.97
    …
    all                          n 18360  median 0.0010  p90 0.0121  seed 0.0062 0.0559  covered 0.90
    {"benchmark": "eta_error", "figures": {"median_fraction": 0.001, "p90_fraction": 0.0121, "seed_median_fraction": 0.0062, …}, …}

Estimates are taken at every fortieth of a run, from a tenth of it on; an error is |estimate - truth| over the duration of the run, from
launch to the end of the last step. `interval_covered` is the coverage of the 90 % intervals. The `seed_` figures are of the stage-1
algorithm: mean of the last hundred step times, without pauses, times the remaining steps. The `sparse_` ones are of an observer who sees
one step in twenty-five, as through heartbeats. The `recorded_` ones use step times measured on a GPU (tests/recorded/steps): runs of 200
steps, so short that a 10 % change of pace for a while is a large part of them. The `real_` ones are of runs of the dummy workload: real
processes, real clocks; `--no-real` skips these, which take half a minute. The simulated jobs are described in eta_jobs.py.
"""

from __future__ import annotations

import csv
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from eta_jobs import SHAPES, Job, simulate
from outcome import parser, report
from seatrial.records.eta import EtaEstimator

BOUNDS = {"median_fraction": 0.005, "p90_fraction": 0.015}
JOBS_PER_SHAPE = 30
POINTS, FIRST_POINT = 40, 4
MIN_SAMPLES = 10
SEED_WINDOW = 100
SPARSE_EVERY = 25
RECORDED = Path(__file__).parents[1] / "tests" / "recorded" / "steps"
REAL = {
    "real_warm_pauses": {"warmup_steps": 20, "warmup_factor": 5.0, "pause_every": 50, "pause_ms": 150.0},
    "real_warm_drift": {"warmup_steps": 10, "drift_ratio": 1.15, "jitter_ratio": 0.1},
    "real_warm_drift_pauses": {"warmup_steps": 30, "drift_ratio": 0.85, "pause_every": 40, "pause_ms": 100.0},
}
REAL_COMMON = {"steps": 1000, "step_ms": 15.0}
QUICK_COMMON = {"steps": 120, "step_ms": 2.0}


@dataclass(frozen=True, kw_only=True)
class EstimateError:
    """Error of one estimate, as a fraction of the run's duration."""

    fraction: float
    seed_fraction: float
    covered: bool


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--jobs", type=int, default=JOBS_PER_SHAPE, help="simulated jobs of each shape")
    options.add_argument("--first", type=int, default=0, help="number of the first job of each shape (0); another gives other jobs")
    options.add_argument("--no-real", action="store_true", help="skip the real runs")
    args = options.parse_args()
    numbers = range(args.first, args.first + (1 if args.quick else args.jobs))
    by_shape = {shape: [error for number in numbers for error in estimate_errors(simulate(shape, number))] for shape in SHAPES}
    pooled = [error for found in by_shape.values() for error in found]
    sparse = [error for shape in SHAPES for number in numbers for error in estimate_errors(simulate(shape, number), SPARSE_EVERY)]
    recorded = {f"recorded_{path.stem}": list(estimate_errors(job_from_csv(path))) for path in sorted(RECORDED.glob("*.csv"))}
    all_recorded = [error for found in recorded.values() for error in found]
    real = [] if args.no_real else [error for job in run_real_jobs(args.quick) for error in estimate_errors(job)]
    for name, found in {**by_shape, "all": pooled, "sparse": sparse, **recorded, "recorded": all_recorded, "real": real}.items():
        if found:
            print(line(name, found), flush=True)
    figures = {**quality(pooled), **prefixed("sparse", sparse), **prefixed("recorded", all_recorded), **prefixed("real", real)}
    report(
        "eta_error",
        {name: round(value, 5) for name, value in figures.items()},
        BOUNDS,
        quick=args.quick,
        n=len(pooled),
        jobs=len(numbers) * len(SHAPES),
    )


def estimate_errors(job: Job, every: int = 1) -> Iterator[EstimateError]:
    """Error at each point of a job, for an observer who sees every `every`th step."""
    count, length_s = len(job.ends_s), job.ends_s[-1]
    points = {count * point // POINTS for point in range(FIRST_POINT, POINTS)}
    estimator = EtaEstimator(count, MIN_SAMPLES)
    for step, end_s in enumerate(job.ends_s):
        if step % every == 0:
            estimator.add(step, end_s, job.paused_s[step])
        found = estimator.estimate() if step in points else None
        if found is not None:
            seen = step - step % every
            actual_s = length_s - job.ends_s[seen]
            yield EstimateError(
                fraction=abs(found.eta_s - actual_s) / length_s,
                seed_fraction=abs(seed_eta_s(job, seen) - actual_s) / length_s,
                covered=found.low_s <= actual_s <= found.high_s,
            )


def seed_eta_s(job: Job, step: int) -> float:
    """Mean of the last hundred step times, times the remaining steps."""
    window = job.iter_s[max(0, step - SEED_WINDOW + 1) : step + 1]
    return (len(job.iter_s) - 1 - step) * statistics.fmean(window)


def job_from_csv(path: Path) -> Job:
    """The job with the step times in a file."""
    with path.open(newline="") as file:
        iter_s = [float(row["iter_ms"]) / 1000 for row in csv.DictReader(file)]
    return Job(shape=path.stem, ends_s=list(accumulate(iter_s)), iter_s=iter_s, paused_s=[0.0] * len(iter_s))


def run_real_jobs(quick: bool) -> list[Job]:
    """Concurrent runs of the dummy workload."""
    with tempfile.TemporaryDirectory() as folder:
        started = {
            name: start(Path(folder) / name, {**(QUICK_COMMON if quick else REAL_COMMON), **settings}) for name, settings in REAL.items()
        }
        for process in started.values():
            if process.wait() != 0:
                raise SystemExit(f"the dummy workload ended with {process.returncode}")
        return [job_from_events(name, Path(folder) / name / "events_rank0.jsonl") for name in REAL]


def start(folder: Path, settings: dict[str, float]) -> subprocess.Popen[bytes]:
    arguments = [argument for name, value in settings.items() for argument in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "seatrial_workloads.dummy.train", "--run-dir", str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def job_from_events(name: str, events: Path) -> Job:
    """The job in an event file, from the start of its first step."""
    from seatrial.collect.events import read_event_batch

    table = read_event_batch({events: events.read_bytes()})[events]
    steps = table.filter(table["kind"] == "step").sort("step")
    pauses = table.filter(table["kind"] == "pause")
    iter_s = [value / 1000 for value in steps["iter_ms"]]
    began_s = steps["m"][0] - iter_s[0]
    pause_s = dict(zip(pauses["step"], (value / 1000 for value in pauses["pause_ms"]), strict=True))
    paused_s, total_s = [], 0.0
    for step in steps["step"]:
        total_s += pause_s.get(step, 0.0)
        paused_s.append(total_s)
    return Job(shape=name, ends_s=[end_s - began_s for end_s in steps["m"]], iter_s=iter_s, paused_s=paused_s)


def quality(found: list[EstimateError]) -> dict[str, float]:
    ours, seeds = [error.fraction for error in found], [error.seed_fraction for error in found]
    return {
        "median_fraction": statistics.median(ours),
        "p90_fraction": p90(ours),
        "seed_median_fraction": statistics.median(seeds),
        "seed_p90_fraction": p90(seeds),
        "interval_covered": statistics.fmean(error.covered for error in found),
    }


def p90(values: list[float]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[-1]


def prefixed(name: str, found: list[EstimateError]) -> dict[str, float]:
    return {f"{name}_{figure}": value for figure, value in quality(found).items()} if found else {}


def line(name: str, found: list[EstimateError]) -> str:
    summary = quality(found)
    ours = f"median {summary['median_fraction']:.4f}  p90 {summary['p90_fraction']:.4f}"
    seeds = f"seed {summary['seed_median_fraction']:.4f} {summary['seed_p90_fraction']:.4f}"
    return f"{name:28} n {len(found):5}  {ours}  {seeds}  covered {summary['interval_covered']:.2f}"


if __name__ == "__main__":
    main()
