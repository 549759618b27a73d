"""A long night: 500 one-second runs, a third of them broken at random, and what is left of them afterwards.

    python benchmarks/endurance.py [--runs 500]

    {"benchmark": "endurance", "figures": {"unaccounted": 0, "orphans": 0, "rss_growth_mib": 12.4}, "bounds": {…}, "holds": true}

One campaign; which run breaks how is drawn by endurance_job.py from the run's number: a crash, a kill, a hang, an orphan, lies in its
events, shared memory left lying, rubbish or nothing as output. `unaccounted` counts runs without an outcome, or with another than is
right for what was ordered; `orphans` the processes and shared memory left; `rss_growth_mib` what the harness grew by from its first
settled runs to its last.
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

from endurance_job import ordered
from outcome import parser, report
from seatrial.core.paths import CampaignPaths

SETTLED_AFTER_RUNS = 20
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
        before, began_s = segments(), time.monotonic()
        growth_mib = run_campaign(folder, count)
        figures = {
            "unaccounted": unaccounted(folder, count),
            "orphans": len(processes_of(folder)) + len(segments() - before),
            "rss_growth_mib": growth_mib,
        }
        faulty = sum(bool(ordered(number).settings) for number in range(count))
        minutes = round((time.monotonic() - began_s) / 60, 1)
        bounds = {"unaccounted": 0, "orphans": 0, "rss_growth_mib": 50}
        report("endurance", figures, bounds, quick=args.quick, runs=count, faulty=faulty, minutes=minutes)


def run_campaign(folder: Path, count: int) -> float | None:
    """Run it all and follow the harness's memory; its growth in MiB, None where too few runs were seen."""
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
        samples = sampled(harness, CampaignPaths(folder / "out"), count)
    settled = [rss for finished, rss in samples if SETTLED_AFTER_RUNS <= finished < 2 * SETTLED_AFTER_RUNS]
    last = [rss for finished, rss in samples if finished >= count - SETTLED_AFTER_RUNS]
    return round((median(last) - median(settled)) / MIB, 1) if settled and last else None


def sampled(harness: subprocess.Popen[bytes], out: CampaignPaths, count: int) -> list[tuple[int, int]]:
    """Runs finished and resident bytes, second by second, until the last run is over."""
    samples: list[tuple[int, int]] = []
    while harness.poll() is None:
        finished = len(list(out.folder.glob("*/attempt-1/outcome.json")))
        if finished < count:
            samples.append((finished, psutil.Process(harness.pid).memory_info().rss))
        if len(samples) % 60 == 1:
            print(f"{finished} of {count} runs, {samples[-1][1] / MIB:.0f} MiB", file=sys.stderr)
        time.sleep(SAMPLE_EVERY_S)
    return samples


def unaccounted(folder: Path, count: int) -> int:
    """Runs whose outcome is missing or not the one that was ordered."""
    out, wrong = CampaignPaths(folder / "out"), 0
    for number in range(count):
        path = out.run(f"number{number}_r1").attempt(1).outcome
        ended = json.loads(path.read_text())["outcome"] if path.exists() else "none"
        if ended != ordered(number).outcome:
            wrong += 1
            print(f"run {number}: {ended}, expected {ordered(number).outcome} of {ordered(number).settings}", file=sys.stderr)
    return wrong


def processes_of(folder: Path) -> list[psutil.Process]:
    """Living processes that carry the campaign's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SEATRIAL_RUN_DIR", "").startswith(str(folder)):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def segments() -> set[str]:
    return {entry.name for entry in SHARED_MEMORY.iterdir() if entry.name.startswith("torch_")}


if __name__ == "__main__":
    main()
