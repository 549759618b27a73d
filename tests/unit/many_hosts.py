"""Attempts on many hosts as they are on disk: nodes.json, events, logs and samples of every host, each by its own clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.collect.attempts import read_attempt
from seatrial.core import files
from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.codec import to_json
from seatrial.records.launch import NodeRecord, NodesRecord
from seatrial.records.plan import PlaceSpec, RunSpec
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS
from tests.unit.analyse import factory
from tests.unit.collect import on_disk
from tests.unit.results.campaigns import write_samples

STEPS = 60
STEP_S = 0.1
FIRST_S = 5.0
"""From launch to the start of the first step."""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The hosts to write: `node0` and on, each with as many ranks."""

    hosts: int = 2
    ranks: int = 2
    skew_s: Mapping[int, float] = field(default_factory=dict)
    """By node rank, how far its clock is ahead."""
    slow: frozenset[int] = frozenset()
    """Hosts whose ranks take longer in fwd, so that the others wait for them in bwd."""
    returncodes: Mapping[int, int | None] = field(default_factory=dict)
    ended: Mapping[int, str] = field(default_factory=dict)
    gpus: int = 1
    provenance: Any = None

    @property
    def names(self) -> list[str]:
        return [f"node{at}" for at in range(self.hosts)]


def run_spec(hosts: Hosts, group: str = "mb8", repeat: int = 1, **changes: Any) -> RunSpec:
    place = PlaceSpec(kind="hostfile", ranks=hosts.hosts * hosts.ranks)
    return factory.spec(group, repeat, **{"place": place, "steps": STEPS, "axes": {"micro_batch": 8}, **changes})


def write(out: Path, hosts: Hosts, spec: RunSpec | None = None, **changes: Any) -> Attempt:
    """The attempt, read back."""
    attempt = on_disk.write_attempt(out, spec or run_spec(hosts), provenance=hosts.provenance, **changes)
    paths = AttemptPaths(Path(attempt.folder))
    files.write_json(paths.nodes_record, to_json(nodes_record(hosts)))
    for at, name in enumerate(hosts.names):
        own = paths.node(name) if at else paths
        paths.node(name).folder.mkdir(parents=True, exist_ok=True)
        _write_samples(own, hosts, at)
        own.launcher_log.write_text(f"hello from {name}\n")
        for rank in range(at * hosts.ranks, (at + 1) * hosts.ranks):
            on_disk.write_events(attempt, rank, _events(attempt, hosts, at, rank))
    read = read_attempt(paths)
    assert read is not None
    return read


def nodes_record(hosts: Hosts) -> NodesRecord:
    nodes = (
        NodeRecord(
            name=name,
            host=f"{name}.local",
            node_rank=at,
            first_rank=at * hosts.ranks,
            ranks=hosts.ranks,
            returncode=hosts.returncodes.get(at, 0),
            ended=hosts.ended.get(at, "exited"),
            clock_offset_s=hosts.skew_s.get(at, 0.0),
            clock_round_trip_s=0.0004,
        )
        for at, name in enumerate(hosts.names)
    )
    return NodesRecord(nodes=tuple(nodes), via="ssh", master_addr="node0", master_port=29500)


def _events(attempt: Attempt, hosts: Hosts, at: int, rank: int) -> str:
    """A host's monotonic clock begins anywhere; its wall clock is off by its skew."""
    ahead_s, booted_s, world = hosts.skew_s.get(at, 0.0), 1000.0 * (at + 1), hosts.hosts * hosts.ranks
    launched_t = factory.STARTED_T + ahead_s
    start = {"world_size": world, "host": f"{hosts.names[at]}.local", "process_t": launched_t + 1.0}
    lines = [on_disk.event(attempt, "start", rank=rank, t=launched_t + 3.0, m=booted_s + 3.0, **start)]
    fwd_ms = 40.0 if at in hosts.slow else 20.0
    for step in range(STEPS):
        end_s = FIRST_S + (step + 1) * STEP_S
        noise_ms = (step * 7 + rank * 3) % 5 / 50
        lines.append(
            on_disk.event(
                attempt,
                rank=rank,
                step=step,
                t=launched_t + end_s,
                m=booted_s + end_s,
                iter_ms=1000 * STEP_S,
                samples=8,
                tokens=None,
                data_wait_ms=0.5,
                preprocess_ms=0.0,
                fwd_ms=fwd_ms + noise_ms,
                bwd_ms=90.0 - fwd_ms - noise_ms,
                step_ms=5.0,
                loss=5.0 - step / 50,
            )
        )
    return "\n".join(lines) + "\n"


def _write_samples(own: AttemptPaths, hosts: Hosts, at: int) -> None:
    launched_t = factory.STARTED_T + hosts.skew_s.get(at, 0.0)
    times = [launched_t + 0.5 * number for number in range(1, 22)]
    host = {
        "cpu_user_pct": 10.0 + at,
        "cpu_system_pct": 1.0,
        "rss_kib": 1024 * (100 + at),
        "net_rx_kib_per_s": 2048,
        "net_tx_kib_per_s": 1024,
    }
    write_samples(own.host_telemetry, HOST_COLUMNS, [{**host, "epoch_sec": t} for t in times])
    gpu = {
        "gpu_uuid": "GPU-1",
        "gpu_name": "Example",
        "util_gpu_pct": 90,
        "power_w": 300.0,
        "mem_used_mib": 1000 + at,
        "mem_total_mib": 8000,
    }
    rows = [{**gpu, "gpu_index": index, "epoch_sec": t} for t in times for index in range(hosts.gpus)]
    if hosts.gpus:
        write_samples(own.gpu_telemetry, GPU_COLUMNS, rows)
