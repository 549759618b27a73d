"""How long `seatrial report` takes for a large campaign, and how much memory it needs.

    python benchmarks/analysis_scale.py

    {"benchmark": "analysis_scale", "figures": {"runs_1000_over_bare_read": 2.4, "runs_1000_s": 8.2, "ranks_1024_s": 12.1, …}, …}

Two synthetic campaigns have the files of real ones: 1,000 runs of 1,200 steps each, with GPU and host telemetry, and one run of 1,024 ranks
and 1,200 steps. `seatrial report` then recomputes everything in a process of its own; its memory is the resident memory of it and its
workers, sampled every 50 ms (shared pages count once per process, so it is an upper bound). `runs_1000_over_bare_read` divides its time by
that of a process in which polars only reads the same files, run alternately: seconds depend on machine and load, the ratio hardly does.
`--ranks N` gives each of the 1,000 runs that many ranks (1 by default); `--keep FOLDER` keeps the campaigns there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil

from outcome import parser, report
from seatrial.campaign.loop import save_plan
from seatrial.core import files
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.plan.load import load_plan
from seatrial.plan.resolve import resolve_plan
from seatrial.records.attempt import Provenance
from seatrial.records.codec import to_json
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, SamplerAccount, TelemetryAccount

STEPS, QUICK_STEPS = 1_200, 120
TURNS = 3
# What it was before the modules were merged, measured in one hour with this script.
MAX_OVER_BARE_READ = 3.0
STEP_S = 0.5
TELEMETRY_EVERY_S = 2.0
GIB = 1 << 30
SAMPLE_EVERY_S = 0.05
START_T = 1_794_705_558.0
RUN_PLACEHOLDER = "RUN-NAME-PLACEHOLDER"
MANY_RUNS = """\
name: many-runs
workload: dummy
axes:
  micro_batch: [8, 16, 24, 32, 40, 48, 56, 64, 72, 80]
  step_ms: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
repeats: 10
"""
FEW_RUNS = """\
name: few-runs
workload: dummy
axes:
  micro_batch: [8]
repeats: 10
"""
MANY_RANKS = """\
name: many-ranks
workload: dummy
place: {{kind: local, ranks: {ranks}}}
"""


def main() -> None:
    args = arguments()
    steps, turns, ranks = (QUICK_STEPS, 1, 8) if args.quick else (STEPS, TURNS, 1024)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        runs = create_campaign(folder, FEW_RUNS if args.quick else MANY_RUNS, args.ranks, steps)
        # Alternately, so that a slow minute of the machine affects both.
        bare_reads_s, reports = zip(*((bare_read_s(runs), measure_report(runs)) for _ in range(turns)), strict=True)
        ranks_s, ranks_gib = measure_report(create_campaign(folder, MANY_RANKS.format(ranks=ranks), ranks, steps))
    runs_s, read_s = median(took_s for took_s, _ in reports), median(bare_reads_s)
    figures = {
        "runs_1000_over_bare_read": round(runs_s / read_s, 3),
        "runs_1000_s": round(runs_s, 2),
        "bare_read_s": round(read_s, 2),
        "runs_1000_peak_gib": round(max(gib for _, gib in reports), 3),
        "ranks_1024_s": round(ranks_s, 2),
        "ranks_1024_peak_gib": round(ranks_gib, 3),
    }
    bounds = {
        "runs_1000_over_bare_read": MAX_OVER_BARE_READ,
        "runs_1000_peak_gib": 1.0,
        "ranks_1024_s": 60.0,
        "ranks_1024_peak_gib": 2.0,
    }
    notes = {"steps": steps, "turns": turns, "ranks_of_each_run": args.ranks, "cores": os.cpu_count()}
    report("analysis_scale", figures, bounds, quick=args.quick, **notes)


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--ranks", type=int, default=1, metavar="N", help="Ranks of each of the 1,000 runs.")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="Create the campaigns here and keep them.")
    return options.parse_args()


READ_ALL = """
import sys
from pathlib import Path
import polars as pl
for attempt in Path(sys.argv[1]).glob("*/attempt-1"):
    for events in attempt.glob("events_rank*.jsonl"):
        pl.read_ndjson(events)
    for table in ("gpu_telemetry.csv", "host_telemetry.csv"):
        pl.read_csv(attempt / table)
"""


def bare_read_s(out: Path) -> float:
    """Wall time of a process in which polars reads the events and telemetry of all runs, one file after another."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", READ_ALL, str(out)], check=True)
    return time.perf_counter() - began_s


def measure_report(out: Path) -> tuple[float, float]:
    """Wall time and peak memory of `seatrial report` and its workers."""
    began_s = time.perf_counter()
    peak_gib = 0.0
    with subprocess.Popen([sys.executable, "-m", "seatrial", "report", str(out)], stdout=subprocess.DEVNULL) as process:
        tree = psutil.Process(process.pid)
        while (code := exit_code(process)) is None:
            peak_gib = max(peak_gib, tree_rss_gib(tree))
        took_s = time.perf_counter() - began_s
    if code not in (0, 3):
        raise SystemExit(f"seatrial report {out} ended with {code}")
    print(f"{out.name}: {took_s:.2f} s, {peak_gib:.3f} GiB", file=sys.stderr)
    return took_s, peak_gib


def exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """Its exit code; None if it still runs after `SAMPLE_EVERY_S`."""
    try:
        return process.wait(SAMPLE_EVERY_S)
    except subprocess.TimeoutExpired:
        return None


def tree_rss_gib(tree: psutil.Process) -> float:
    """Resident memory of a process and its descendants; those that have just ended are left out."""
    total_bytes = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in (tree, *tree.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total_bytes += process.memory_info().rss
    return total_bytes / GIB


def create_campaign(folder: Path, text: str, ranks: int, steps: int = STEPS) -> Path:
    """Write a finished campaign with the runs of this plan."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "plan.yaml"
    source.write_text(f"{text}steps: {steps}\n")
    plan = resolve_plan(load_plan(source), source=str(source), cwd=folder)
    out = folder / plan.name
    print(f"writing {len(plan.runs)} runs of {ranks} ranks in {out.name}", file=sys.stderr)
    campaign = CampaignPaths(out)
    save_plan(replace(plan, output=str(out)), campaign)
    write_runs(plan, campaign, ranks, steps)
    return out


def write_runs(plan: CampaignPlan, campaign: CampaignPaths, ranks: int, steps: int) -> None:
    events = [events_text(rank, ranks, steps) for rank in range(min(ranks, 8))]
    gpu, host = table_text(GPU_COLUMNS, gpu_cells(), steps), table_text(HOST_COLUMNS, host_cells(), steps)
    for spec in plan.runs:
        attempt = campaign.run(spec.run).attempt(1)
        attempt.folder.mkdir(parents=True)
        write_records(spec, attempt)
        attempt.gpu_telemetry.write_text(gpu)
        attempt.host_telemetry.write_text(host)
        for rank in range(ranks):
            text = events[rank % 8] if rank < 8 else events[rank % 8].replace(f'"rank":{rank % 8},', f'"rank":{rank},')
            attempt.events(rank).write_text(text.replace(RUN_PLACEHOLDER, spec.run))


def write_records(spec: RunSpec, attempt: AttemptPaths) -> None:
    outcome = RunOutcome(run=spec.run, attempt=1, hash=spec.hash, outcome=Outcome.OK, exit_code=0, started_t=START_T - 10, duration_s=620.0)
    account = SamplerAccount(interval_s=TELEMETRY_EVERY_S, rows=300, samples=300, cpu_s=0.5, wall_s=600.0)
    files.write_json(attempt.spec, to_json(spec))
    files.write_json(attempt.provenance, to_json(Provenance(host="fake", fingerprint="fake")))
    files.write_json(attempt.telemetry, to_json(TelemetryAccount(gpu=account, host=account)))
    files.write_json(attempt.outcome, to_json(outcome))


def events_text(rank: int, ranks: int, steps: int) -> str:
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in rank_events(rank, ranks, steps))


def rank_events(rank: int, ranks: int, steps: int) -> Iterator[dict[str, object]]:
    """Five slow steps, then steady ones with a little noise, and a checkpoint every 300 steps."""
    rng = random.Random(rank)
    head = {"v": 1, "run": RUN_PLACEHOLDER, "attempt": 1, "rank": rank}
    yield {**head, "t": START_T - 5, "m": 95.0, "kind": "start", "pid": 1000 + rank, "host": "fake", "world_size": ranks}
    now_s = 0.0
    for step in range(steps):
        iter_s = STEP_S * (3 if step < 5 else 1) * rng.uniform(0.98, 1.02)
        now_s += iter_s
        parts = {"data_wait_ms": 1.0, "preprocess_ms": 0.0, "fwd_ms": iter_s * 350, "bwd_ms": iter_s * 550, "step_ms": iter_s * 90}
        yield {
            **head,
            "t": round(START_T + now_s, 6),
            "m": round(100 + now_s, 6),
            "kind": "step",
            "step": step,
            "iter_ms": round(iter_s * 1000, 3),
            "samples": 8,
            "tokens": None,
            **{name: round(value, 3) for name, value in parts.items()},
            "loss": round(4.0 * 0.999**step, 4),
        }
        if step and step % 300 == 0:
            now_s += 3.0
            yield {
                **head,
                "t": START_T + now_s,
                "m": 100 + now_s,
                "kind": "pause",
                "name": "checkpoint",
                "step": step + 1,
                "pause_ms": 3000.0,
            }
    yield {**head, "t": START_T + now_s, "m": 100 + now_s, "kind": "stop", "step": steps - 1, "steps": steps}


def table_text(columns: tuple[str, ...], cells: dict[str, object], steps: int) -> str:
    """A telemetry file for the whole run, with the same busy machine in every row."""
    rows = [",".join(columns)]
    for number in range(int(steps * STEP_S / TELEMETRY_EVERY_S)):
        row = {**cells, "timestamp": "2026-11-15T00:00:00", "epoch_sec": round(START_T + number * TELEMETRY_EVERY_S, 3)}
        row["energy_j"] = number * 1200.0
        rows.append(",".join(str(row.get(name, "")) for name in columns))
    return "\n".join(rows) + "\n"


def gpu_cells() -> dict[str, object]:
    return {
        "gpu_index": 0, "gpu_uuid": "GPU-0", "gpu_name": "fake", "temp_c": 55, "util_gpu_pct": 97, "util_mem_pct": 40, "power_w": 600.5,
        "sm_clock_mhz": 1900, "mem_clock_mhz": 2600, "mem_used_mib": 70000, "mem_total_mib": 143000, "mem_free_mib": 73000,
        "power_limit_w": 700.0, "process_count": 1, "foreign_process_count": 0, "sample_ms": 1.5,
    }  # fmt: skip


def host_cells() -> dict[str, object]:
    return {
        "load1": 4.0, "load5": 4.0, "load15": 4.0, "cpu_user_pct": 40.0, "cpu_system_pct": 5.0, "cpu_idle_pct": 55.0,
        "mem_total_kib": 134217728, "mem_available_kib": 100000000, "mem_used_kib": 34217728, "rss_kib": 9000000, "cpu_steal_pct": 0.0,
        "train_proc_count": 12, "train_rss_kib": 9000000, "sample_ms": 2.0,
    }  # fmt: skip


if __name__ == "__main__":
    main()
