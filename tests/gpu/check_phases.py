"""Do phases measured by the probe's events agree with a synchronised reference? On a machine with a CUDA GPU and torch:

    PYTHONPATH=src python tests/gpu/check_phases.py

In: nothing. The same GPU-bound step (matrix products, 25 ms and more a phase) is run in turns with the probe's events and with a
synchronisation at every phase border, in one process. Out: a table, then one JSON object on the last line; exit 1 beyond the tolerance.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from seatrial.probe import Probe

TOLERANCE = 0.02
PHASE_MS = {"fwd": 30.0, "bwd": 60.0, "step": 25.0}
ROUNDS = 6
STEPS_A_ROUND = 10
SIZE = 4096

Step = Callable[[Callable[[str], Any]], None]


class SyncedPhases:
    """The reference: nothing of the probe in it."""

    def __init__(self) -> None:
        self.times_ms: dict[str, list[float]] = {name: [] for name in PHASE_MS}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        yield
        torch.cuda.synchronize()
        self.times_ms[name].append((time.perf_counter() - start_s) * 1000.0)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        result = compare(Path(folder))
    for name, row in result["phases"].items():
        ways = f"events {row['events_ms']:8.3f} ms   synchronised {row['synced_ms']:8.3f} ms"
        print(f"{name:5}  {ways}   difference {row['difference_ratio']:+.3%}")
    print(json.dumps(result))
    return 0 if result["holds"] else 1


def compare(folder: Path) -> dict[str, Any]:
    """Medians of both ways by phase, and their relative difference."""
    step = make_step()
    reference = SyncedPhases()
    with Probe(folder / "events", phase_every=1) as events, Probe(folder / "probe_sync", sync=True) as probe_sync:
        for _ in range(ROUNDS):
            for _ in range(STEPS_A_ROUND):
                with events.step():
                    step(events.phase)
                events.loss(torch.ones((), device="cuda"))
            torch.cuda.synchronize()
            for _ in range(STEPS_A_ROUND):
                step(reference.phase)
            for _ in range(STEPS_A_ROUND):
                with probe_sync.step():
                    step(probe_sync.phase)
    taken = {way: _steps(folder / way) for way in ("events", "probe_sync")}
    phases = {name: _row(name, taken, reference) for name in PHASE_MS}
    return {
        "check": "cuda_phases",
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "phases": phases,
        "losses_read": sum(record["loss"] == 1.0 for record in taken["events"]),
        "steps": len(taken["events"]),
        "tolerance_ratio": TOLERANCE,
        "holds": all(abs(row["difference_ratio"]) <= TOLERANCE for row in phases.values()),
    }


def make_step() -> Step:
    """A step whose phases take about PHASE_MS of the GPU's time."""
    left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    product_ms = _product_ms(left, right, out)
    counts = {name: max(1, round(ms / product_ms)) for name, ms in PHASE_MS.items()}

    def step(phase: Callable[[str], Any]) -> None:
        for name, count in counts.items():
            with phase(name):
                for _ in range(count):
                    torch.mm(left, right, out=out)

    return step


def _product_ms(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> float:
    # The first second brings the clocks to where they stay.
    for _ in range(2):
        torch.cuda.synchronize()
        start_s, count = time.perf_counter(), 0
        while time.perf_counter() - start_s < 1.0:
            for _ in range(50):
                torch.mm(left, right, out=out)
            torch.cuda.synchronize()
            count += 50
        product_ms = (time.perf_counter() - start_s) * 1000.0 / count
    return product_ms


def _steps(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "events_rank0.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == "step"]


def _row(name: str, taken: dict[str, list[dict[str, Any]]], reference: SyncedPhases) -> dict[str, Any]:
    by_events = [record[f"{name}_ms"] for record in taken["events"] if record[f"{name}_ms"] is not None]
    events_ms, synced_ms = statistics.median(by_events), statistics.median(reference.times_ms[name])
    return {
        "events_ms": events_ms,
        "synced_ms": synced_ms,
        "probe_sync_ms": statistics.median(record[f"{name}_ms"] for record in taken["probe_sync"]),
        "difference_ratio": events_ms / synced_ms - 1.0,
        "n_events": len(by_events),
        "n_synced": len(reference.times_ms[name]),
    }


if __name__ == "__main__":
    sys.exit(main())
