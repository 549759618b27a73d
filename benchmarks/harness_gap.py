"""Time between two runs: from the exit of one run's launcher to the start of the next run's first process.

    python benchmarks/harness_gap.py

    {"benchmark": "harness_gap", "figures": {"gap_s_p50": 0.31, "gap_s_p90": 0.36, "large_log_gap_s_p50": 0.29}, "bounds": {…}, …}

A real campaign of short dummy runs through the command line. The gap includes the search for orphans, the last telemetry, outcome,
measurements and manifest row of one run, and the files, port, provenance and agent start of the next. The second campaign runs a script
that prints a large log (LARGE_LOG_MB). The harness searches it while it grows, for a cause of failure and for step lines; only what came
since the last poll is left for the end, at about 10 ms/MB of mostly repetitive lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from outcome import parser, report

RUNS, QUICK_RUNS = 16, 3
PLAN = """\
name: harness-gap
workload: dummy
settings: {step_ms: 5}
steps: 40
repeats: """
LARGE_LOG_MB, QUICK_LARGE_LOG_MB = 25, 4
LARGE_LOG_RUNS, QUICK_LARGE_LOG_RUNS = 4, 2
# 10 MB/s, as printed by a job with NCCL_DEBUG=INFO.
LARGE_LOG_SCRIPT = """\
import sys, time

print(f"started {time.time()}", flush=True)
line = "gpu-01:4136:4200 [0] NCCL INFO Channel 02/0 : 3[3] -> 4[4] via P2P/CUMEM/read of a line as long as they are\\n"
for step in range(int(sys.argv[1])):
    sys.stdout.write(line * (1_000_000 // len(line)))
    print(f"step {step}: loss {4 - 0.01 * step:.4f}", flush=True)
    time.sleep(0.1)
"""


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        plan = Path(folder) / "plan.yaml"
        plan.write_text(f"{PLAN}{QUICK_RUNS if quick else RUNS}\n")
        create_repository(Path(folder))
        command = [sys.executable, "-m", "seatrial", "run", str(plan), "--out", str(out)]
        subprocess.run(command, check=True, stdout=sys.stderr, cwd=folder)
        gaps_s = gaps_in(out)
        large_log_gaps_s = measure_large_log_gaps(
            Path(folder), QUICK_LARGE_LOG_MB if quick else LARGE_LOG_MB, QUICK_LARGE_LOG_RUNS if quick else LARGE_LOG_RUNS
        )
    figures = {
        "gap_s_p50": round(median(gaps_s), 4),
        "gap_s_p90": round(quantiles(gaps_s, n=10)[-1], 4),
        "large_log_gap_s_p50": round(median(large_log_gaps_s), 4),
    }
    bounds = {"gap_s_p50": 0.5, "large_log_gap_s_p50": 0.5}
    rounded, large_log_rounded = ([round(gap_s, 3) for gap_s in each] for each in (gaps_s, large_log_gaps_s))
    report("harness_gap", figures, bounds, quick=quick, n=len(gaps_s), gaps_s=rounded, large_log_gaps_s=large_log_rounded)


def measure_large_log_gaps(folder: Path, megabytes: int, runs: int) -> list[float]:
    """The gaps of a script without the probe that prints this many MB in each run."""
    (folder / "large_log.py").write_text(LARGE_LOG_SCRIPT)
    out = folder / "large-log"
    command = [sys.executable, "-m", "seatrial", "sweep", "-P", f"mb={megabytes}", "--repeats", str(runs), "--out", str(out), "--yes", "--"]
    subprocess.run([*command, sys.executable, "large_log.py", "{mb}"], check=False, stdout=sys.stderr, cwd=folder)
    return gaps_in(out)


def create_repository(folder: Path) -> None:
    """A repository with a modified file, as during development: git status is read before every run."""
    code = folder / "train.py"
    code.write_text("lr = 1\n")
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    for arguments in (["init", "-q"], ["add", "train.py"], [*identity, "commit", "-qm", "code"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    code.write_text("lr = 2\n")


def gaps_in(out: Path) -> list[float]:
    """Time from the end of each run to the start of the next one's first process."""
    spans = sorted(
        (process_start_t(attempt), json.loads((attempt / "outcome.json").read_text())["ended_t"]) for attempt in out.glob("*/attempt-1")
    )
    return [started_t - ended_t for (_, ended_t), (started_t, _) in pairwise(spans)]


def process_start_t(attempt: Path) -> float:
    """From the probe's first event, or from the first line of a script without the probe."""
    events = attempt / "events_rank0.jsonl"
    if events.exists():
        return float(json.loads(events.open().readline())["process_t"])
    with open(attempt / "launcher.log") as log:
        return float(log.readline().removeprefix("started "))


if __name__ == "__main__":
    main()
