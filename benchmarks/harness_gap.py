"""What the harness itself takes between two runs: from the end of one run's launcher to the birth of the next run's first process.

    python benchmarks/harness_gap.py

    {"benchmark": "harness_gap", "figures": {"gap_s_p50": 0.31, "gap_s_p90": 0.36, "large_log_gap_s_p50": 0.29}, "bounds": {…}, …}

A real campaign of short dummy runs through the command line. In the gap lie the look for processes left behind, the last telemetry, the
outcome, the measuring of the run, its manifest row, the next run's files, port and provenance, and the start of its agent. The second
campaign is of a script that prints a large log (LOUD_MB). It is searched while it grows, for a cause and for the lines by which the run
is measured; what came since the last turn is left for the end, at about 10 milliseconds a megabyte of lines that are mostly alike.
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
LOUD_MB, QUICK_LOUD_MB = 25, 4
LOUD_RUNS, QUICK_LOUD_RUNS = 4, 2
# As a job with NCCL_DEBUG=INFO prints, ten megabytes a second.
LOUD = """\
import sys, time

print(f"born {time.time()}", flush=True)
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
        make_repository(Path(folder))
        command = [sys.executable, "-m", "seatrial", "run", str(plan), "--out", str(out)]
        subprocess.run(command, check=True, stdout=sys.stderr, cwd=folder)
        gaps_s = gaps_in(out)
        loud_gaps_s = loud_gaps_in(Path(folder), QUICK_LOUD_MB if quick else LOUD_MB, QUICK_LOUD_RUNS if quick else LOUD_RUNS)
    figures = {
        "gap_s_p50": round(median(gaps_s), 4),
        "gap_s_p90": round(quantiles(gaps_s, n=10)[-1], 4),
        "large_log_gap_s_p50": round(median(loud_gaps_s), 4),
    }
    bounds = {"gap_s_p50": 0.5, "large_log_gap_s_p50": 0.5}
    shown, loud_shown = ([round(gap_s, 3) for gap_s in each] for each in (gaps_s, loud_gaps_s))
    report("harness_gap", figures, bounds, quick=quick, n=len(gaps_s), gaps_s=shown, large_log_gaps_s=loud_shown)


def loud_gaps_in(folder: Path, megabytes: int, runs: int) -> list[float]:
    """The same for a script without the probe that prints so much in each run."""
    (folder / "loud.py").write_text(LOUD)
    out = folder / "loud"
    command = [sys.executable, "-m", "seatrial", "sweep", "-P", f"mb={megabytes}", "--repeats", str(runs), "--out", str(out), "--yes", "--"]
    subprocess.run([*command, sys.executable, "loud.py", "{mb}"], check=False, stdout=sys.stderr, cwd=folder)
    return gaps_in(out)


def make_repository(folder: Path) -> None:
    """With a changed file, as it is while somebody works: git status is read before every run."""
    code = folder / "train.py"
    code.write_text("lr = 1\n")
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    for words in (["init", "-q"], ["add", "train.py"], [*who, "commit", "-qm", "code"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    code.write_text("lr = 2\n")


def gaps_in(out: Path) -> list[float]:
    """Time between the end of each run and the start of the next one's process."""
    lives = sorted((born_t(attempt), json.loads((attempt / "outcome.json").read_text())["ended_t"]) for attempt in out.glob("*/attempt-1"))
    return [born - ended for (_, ended), (born, _) in pairwise(lives)]


def born_t(attempt: Path) -> float:
    """By the probe, else by what the script prints first."""
    events = attempt / "events_rank0.jsonl"
    if events.exists():
        return float(json.loads(events.open().readline())["process_t"])
    with open(attempt / "launcher.log") as log:
        return float(log.readline().removeprefix("born "))


if __name__ == "__main__":
    main()
