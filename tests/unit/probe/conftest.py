"""A clock moved by hand, a probe on it, and the lines it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.probe import Probe
from seatrial.records.events import RANK_VARIABLES


class FakeClock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def pass_ms(self, ms: float) -> None:
        self.now_s += ms / 1000.0


class Lines:
    """What a probe left in a run folder."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def events(self, kind: str | None = None, rank: int = 0) -> list[dict[str, Any]]:
        found = self._read(f"events_rank{rank}.jsonl")
        return [event for event in found if kind in (None, event["kind"])]

    def steps(self, rank: int = 0) -> list[dict[str, Any]]:
        return self.events("step", rank)

    def heartbeats(self, rank: int = 0) -> list[dict[str, Any]]:
        return self._read(f"heartbeat_rank{rank}.jsonl")

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self.run_dir / name
        return [json.loads(line, parse_constant=_refuse) for line in path.read_text().splitlines()] if path.exists() else []


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test sets rank and run itself."""
    names = [name for launcher in RANK_VARIABLES for name in launcher]
    ours = [f"SEATRIAL_{name}" for name in ("RUN_DIR", "RUN", "ATTEMPT", "RANK_SCOPE", "STACK_SIGNAL")]
    for name in (*names, *ours, "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def fallback(fallback_folder: Path) -> Path:
    """No test here writes into the machine's own."""
    return fallback_folder


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "run")


@pytest.fixture
def make_probe(lines: Lines, clock: FakeClock) -> Iterator[Callable[..., Probe]]:
    """Probes without a thread, on the fake clock, closed when the test is over."""
    probes: list[Probe] = []

    def make(**options: Any) -> Probe:
        probes.append(Probe(lines.run_dir, **{"heartbeat_s": None, "monotonic": clock, "wall": lambda: clock.now_s + 5e8, **options}))
        return probes[-1]

    yield make
    for probe in probes:
        probe.close()
