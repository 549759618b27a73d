"""Overhead of the telemetry samplers: CPU time of both threads over wall time, at one sample a second.

    python benchmarks/sampler_cost.py                 60 s, 16 processes
    python benchmarks/sampler_cost.py --seconds 10 --processes 64

    gpu      0.0009 of a core, 31 rows, 0.2 ms a sample; no errors
    host     0.0016 of a core, 31 rows, 1.0 ms a sample; no errors
    {"benchmark": "sampler_cost", "figures": {"core_fraction": 0.0025, …}, "bounds": {"core_fraction": 0.01}, "holds": true, …}

Both samplers run as in the agent, over a process tree of a job's size. The GPU sampler queries the real driver if there is one, else the
tests' stub library, which answers at once (so that only our own code is measured); without a C compiler it is off. `nvml` is `real`, `stub`
or `none`.
"""

from __future__ import annotations

import csv
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from outcome import parser, report
from seatrial.core.files import read_json
from seatrial.core.paths import AttemptPaths
from seatrial.machine.run_telemetry import NVML_LIBRARY, start_telemetry
from seatrial.records.codec import from_json
from seatrial.records.launch import AgentOrder, Command
from seatrial.records.plan import TelemetrySpec
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount

BOUNDS = {"core_fraction": 0.01}
INTERVAL_S = 1.0
STUB = Path(__file__).parents[1] / "tests" / "stubs" / "nvml.c"
# One parent and its children, as a launcher with its ranks and data workers.
TREE = "import subprocess, sys; [subprocess.Popen(['sleep', sys.argv[2]]) for _ in range(int(sys.argv[1]) - 1)]; input()"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="how long to sample (60)")
    options.add_argument("--processes", type=int, default=16, help="processes in the watched tree (16)")
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        nvml = os.environ.get("SAMPLER_COST_NVML") or find_nvml(Path(folder))
        if nvml == "stub" and "SAMPLER_COST_NVML" not in os.environ:
            # The dynamic linker reads LD_LIBRARY_PATH at process start only.
            os.environ.update(LD_LIBRARY_PATH=folder, SAMPLER_COST_NVML="stub")
            raise SystemExit(subprocess.run([sys.executable, *sys.argv], check=False).returncode)
        measure(Path(folder), nvml, 3.0 if args.quick else args.seconds, args.processes, quick=args.quick)


def find_nvml(folder: Path) -> str:
    """`real`, `stub` (built into `folder`) or `none`."""
    try:
        ctypes.CDLL(NVML_LIBRARY)
        return "real"
    except OSError:
        pass
    if shutil.which("cc") is None or not STUB.is_file():
        return "none"
    subprocess.run(["cc", "-shared", "-fPIC", "-pthread", "-O2", "-o", str(folder / NVML_LIBRARY), str(STUB)], check=True)
    return "stub"


def measure(folder: Path, nvml: str, seconds: float, processes: int, *, quick: bool) -> None:
    """Sample a tree of `processes` processes, and report."""
    telemetry = TelemetrySpec(gpu_s=None if nvml == "none" else INTERVAL_S, host_s=INTERVAL_S)
    order = AgentOrder(command=Command(argv=(), env={}, cwd="."), attempt_folder=str(folder), telemetry=telemetry)
    argv = [sys.executable, "-c", TREE, str(processes), str(seconds + 60)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True) as tree:
        running = start_telemetry(order, os.environ)
        print(f"sampling {processes} processes for {seconds:g} s …", file=sys.stderr)
        time.sleep(seconds)
        running.finish()
        os.killpg(tree.pid, 9)
    account = from_json(TelemetryAccount, read_json(AttemptPaths(folder).telemetry))
    samplers = {"gpu": account.gpu, "host": account.host}
    fractions = {kind: core_fraction(kind, sampler, folder) for kind, sampler in samplers.items() if sampler}
    figures = {
        "core_fraction": round(sum(fractions.values()), 6),
        **{f"{kind}_core_fraction": round(fraction, 6) for kind, fraction in fractions.items()},
    }
    report("sampler_cost", figures, BOUNDS, quick=quick, nvml=nvml, interval_s=INTERVAL_S, seconds=seconds, processes=processes)


def core_fraction(kind: str, sampler: SamplerAccount, folder: Path) -> float:
    """Print one sampler's line; its fraction of a core."""
    with open(getattr(AttemptPaths(folder), f"{kind}_telemetry"), newline="") as source:
        costs_ms = sorted(float(row["sample_ms"]) for row in csv.DictReader(source))
    fraction = sampler.cpu_s / sampler.wall_s
    typical_ms = costs_ms[len(costs_ms) // 2]
    print(f"{kind:8} {fraction:.4f} of a core, {sampler.rows} rows, {typical_ms:.1f} ms a sample; {sampler.note or 'no errors'}")
    return fraction


if __name__ == "__main__":
    main()
