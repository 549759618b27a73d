"""Endurance: 500 one-second runs, a third of them with a random fault, and what they leave behind.

    python benchmarks/endurance.py [--runs 500]

    {"benchmark": "endurance", "figures": {"unaccounted": 0, "orphans": 0, "rss_growth_mib": 12.4}, "bounds": {…}, "holds": true}

One campaign; endurance_job.py draws the fault from the run's number: a crash, a kill, a hang, an orphan, wrong events, leaked shared
memory, garbage or no output. `unaccounted` counts runs without an outcome or with an unexpected one; `orphans` the processes and shared
memory segments left; `rss_growth_mib` is the growth of the harness's resident memory from its first runs after warm-up to its last.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil

from endurance_job import fault_of
from outcome import parser, report
from seatrial.core.paths import CampaignPaths

WARM_UP_RUNS = 20
QUICK_RUNS = 6
MIB = 1024 * 1024
LIMITS = {"start_s": 30, "run_s": 60, "stall": {"factor": 3, "floor_s": 2}, "soft_s": 1, "term_s": 1}
SHARED_MEMORY = Path("/dev/shm")
SAMPLE_EVERY_S = 1.0


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=500, help="runs of the campaign (500)")
    args = options.parse_args()
    count = QUICK_RUNS if args.quick else args.runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        before, began_s = shared_memory_segments(), time.monotonic()
        growth_mib = run_campaign(folder, count)
        figures = {
            "unaccounted": count_unaccounted(folder, count),
            "orphans": len(orphans_of(folder)) + len(shared_memory_segments() - before),
            "rss_growth_mib": growth_mib,
        }
        faulty = sum(bool(fault_of(number).settings) for number in range(count))
        minutes = round((time.monotonic() - began_s) / 60, 1)
        bounds = {"unaccounted": 0, "orphans": 0, "rss_growth_mib": 50}
        report("endurance", figures, bounds, quick=args.quick, runs=count, faulty=faulty, minutes=minutes)


def run_campaign(folder: Path, count: int) -> float | None:
    """Run the campaign; the growth of the harness's memory in MiB, None if too few runs were sampled."""
    plan = {
        "name": "endurance",
        "workload": {"script": str(Path(__file__).with_name("endurance_job.py")), "args": ["{number}"]},
        "launcher": "python",
        "place": {"kind": "local", "ranks": 2},
        "axes": {"number": list(range(count))},
        "limits": LIMITS,
        "telemetry": {"gpu_s": None, "host_s": 1},
        "output": "out",
    }
    # JSON is YAML too.
    (folder / "plan.yaml").write_text(json.dumps(plan))
    with open(folder / "harness.log", "wb") as log:
        harness = subprocess.Popen([sys.executable, "-m", "seatrial", "run", "plan.yaml"], cwd=folder, stdout=log, stderr=log)
        samples = sample_memory(harness, CampaignPaths(folder / "out"), count)
    first = [rss for finished, rss in samples if WARM_UP_RUNS <= finished < 2 * WARM_UP_RUNS]
    last = [rss for finished, rss in samples if finished >= count - WARM_UP_RUNS]
    return round((median(last) - median(first)) / MIB, 1) if first and last else None


def sample_memory(harness: subprocess.Popen[bytes], out: CampaignPaths, count: int) -> list[tuple[int, int]]:
    """Finished runs and resident bytes, every second until the last run has ended."""
    samples: list[tuple[int, int]] = []
    while harness.poll() is None:
        finished = len(list(out.folder.glob("*/attempt-1/outcome.json")))
        if finished < count:
            samples.append((finished, psutil.Process(harness.pid).memory_info().rss))
        if len(samples) % 60 == 1:
            print(f"{finished} of {count} runs, {samples[-1][1] / MIB:.0f} MiB", file=sys.stderr)
        time.sleep(SAMPLE_EVERY_S)
    return samples


def count_unaccounted(folder: Path, count: int) -> int:
    """Number of runs whose outcome is missing or not the expected one."""
    out, wrong = CampaignPaths(folder / "out"), 0
    for number in range(count):
        path = out.run(f"number{number}_r1").attempt(1).outcome
        ended = json.loads(path.read_text())["outcome"] if path.exists() else "none"
        fault = fault_of(number)
        if ended != fault.outcome:
            wrong += 1
            print(f"run {number}: {ended}, expected {fault.outcome} with {fault.settings}", file=sys.stderr)
    return wrong


def orphans_of(folder: Path) -> list[psutil.Process]:
    """Running processes with a run directory of this campaign in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SEATRIAL_RUN_DIR", "").startswith(str(folder)):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def shared_memory_segments() -> set[str]:
    return {entry.name for entry in SHARED_MEMORY.iterdir() if entry.name.startswith("torch_")}


if __name__ == "__main__":
    main()
