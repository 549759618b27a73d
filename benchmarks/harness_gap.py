"""What the harness itself takes between two runs: from the end of one run's launcher to the birth of the next run's first process.

    python benchmarks/harness_gap.py

    {"benchmark": "harness_gap", "figures": {"gap_s_p50": 0.31, "gap_s_p90": 0.36}, "bounds": {"gap_s_p50": 0.5}, "holds": true, "n": 15}

A real campaign of short dummy runs through the command line. In the gap lie the look for processes left behind, the last telemetry, the
outcome, the measuring of the run, its manifest row, the next run's files, port and provenance, and the start of its agent.
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
    figures = {"gap_s_p50": round(median(gaps_s), 4), "gap_s_p90": round(quantiles(gaps_s, n=10)[-1], 4)}
    report("harness_gap", figures, {"gap_s_p50": 0.5}, quick=quick, n=len(gaps_s), gaps_s=[round(gap_s, 3) for gap_s in gaps_s])


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
    with open(attempt / "events_rank0.jsonl") as events:
        return float(json.loads(events.readline())["process_t"])


if __name__ == "__main__":
    main()
