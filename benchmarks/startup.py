"""Wall time of `seatrial --help`, in a new process each time.

    python benchmarks/startup.py

    {"benchmark": "startup", "figures": {"help_s_p50": 0.158, "python_s_p50": 0.012}, "bounds": {"help_s_p50": 0.4}, "holds": true, "n": 21}

`python_s_p50` is that of `python -c pass`, run alternately: the lower limit of any Python program.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from outcome import parser, report

TIMES, QUICK_TIMES = 21, 2
HELP = [sys.executable, "-m", "seatrial", "--help"]
PASS = [sys.executable, "-c", "pass"]


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    times = QUICK_TIMES if quick else TIMES
    for command in (HELP, PASS):
        seconds_of(command)
    pairs = [(seconds_of(HELP), seconds_of(PASS)) for _ in range(times)]
    figures = {"help_s_p50": median(pair[0] for pair in pairs), "python_s_p50": median(pair[1] for pair in pairs)}
    report("startup", {name: round(value, 4) for name, value in figures.items()}, {"help_s_p50": 0.4}, quick=quick, n=times)


def seconds_of(command: list[str]) -> float:
    began_s = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()
