"""Small campaigns on disk, as the harness leaves them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.core import files
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.codec import to_json
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS
from seatrial.records.verdict import Criterion
from tests.unit.analyse import factory
from tests.unit.collect import on_disk

STEPS = 60
RANKS = 2
RUNS = 4
TOKEN = "hf_abcdefghijklmnop"
PROVENANCE = Provenance(host="node-1", fingerprint="f00d", git_commit_hash="0123456789abcdef", gpu_name="Example GPU")


def spec(group: str, repeat: int, **changes: Any) -> RunSpec:
    values: dict[str, Any] = {
        "ranks": RANKS,
        "axes": {"micro_batch": 8 if group == "mb8" else 16, "loader": "fork"},
        "settings": {"api_key": "sesame-open", "d_model": 64, "note": f"use {TOKEN}"},
        "workload": {"args": ("--lr", "0.1", "--hub-token", TOKEN)},
        "steps": STEPS,
    }
    return factory.spec(group, repeat, **{**values, **changes})


def write_campaign(out: Path, *, steps: int = STEPS, nan_step: int | None = 5) -> CampaignPaths:
    """Plan, attempts, events, telemetry, heartbeats."""
    paths = CampaignPaths(out)
    specs = [spec(group, repeat) for group in ("mb8", "mb16") for repeat in (1, 2)]
    stored = to_json(CampaignPlan(name="factory", output=str(out), repeats=2, runs=tuple(specs)))
    files.write_json(paths.plan, stored)
    files.write_json(paths.plans / "factory.json", stored)
    on_disk.write_attempt(out, specs[0], outcome=Outcome.FAILED, cause=Cause.CUDA_OOM, provenance=PROVENANCE)
    for at, run in enumerate(specs):
        attempt = on_disk.write_attempt(
            out,
            run,
            number=2 if at == 0 else 1,
            outcome=Outcome.FAILED if at == 3 else Outcome.OK,
            cause=Cause.EXCEPTION if at == 3 else Cause.NONE,
            provenance=PROVENANCE,
            started_t=factory.STARTED_T + 100 * at,
        )
        write_what_ranks_write(attempt, steps, nan_step)
        write_telemetry(attempt)
    return paths


def write_what_ranks_write(attempt: Attempt, steps: int, nan_step: int | None) -> None:
    paths = AttemptPaths(Path(attempt.folder))
    assert attempt.outcome is not None
    started_t = attempt.outcome.started_t
    for rank in range(RANKS):
        lines = [on_disk.event(attempt, "start", rank=rank, world_size=RANKS), on_disk.event(attempt, "pause", rank=rank, **pause())]
        lines += [step_line(attempt, rank, step, started_t, nan_step) for step in range(steps)]
        on_disk.write_events(attempt, rank, "\n".join(lines) + "\n")
        beat = {"ts": started_t + 5, "iso": "2026-01-01T00:00:00Z", "pid": 7, "rank": rank, "step": 3, "msg": "train", "host": "node-1"}
        paths.heartbeat(rank).write_text(json.dumps(beat) + "\n" + '{"ts": 17, "torn')


def pause() -> dict[str, Any]:
    return {"name": "eval", "step": 3, "pause_ms": 250.0}


def step_line(attempt: Attempt, rank: int, step: int, started_t: float, nan_step: int | None) -> str:
    ms = 40.0 if step == 30 else 10.0 + (step * 7 % 5) / 10
    loss = "nan" if step == nan_step else 5.0 / (1 + step)
    return on_disk.event(
        attempt,
        rank=rank,
        step=step,
        t=started_t + 5 + step / 100,
        m=100 + step / 100,
        iter_ms=ms,
        samples=8,
        tokens=None,
        fwd_ms=3.0,
        loss=loss,
    )


def write_telemetry(attempt: Attempt) -> None:
    paths = AttemptPaths(Path(attempt.folder))
    assert attempt.outcome is not None
    started_t = attempt.outcome.started_t
    gpu = {"timestamp": "2026/01/01 00:00:00", "gpu_index": 0, "gpu_uuid": "GPU-1", "gpu_name": "Example GPU", "util_gpu_pct": 91}
    write_samples(paths.gpu_telemetry, GPU_COLUMNS, [{**gpu, "epoch_sec": started_t + at, "power_w": 300.5} for at in (2, 4)])
    host = {"timestamp": "2026-01-01T00:00:00", "cpu_user_pct": 12.5, "rss_kib": 1024}
    write_samples(paths.host_telemetry, HOST_COLUMNS, [{**host, "epoch_sec": started_t + at} for at in (2, 4, 6)])


def write_samples(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    lines = [",".join(columns), *(",".join(str(row.get(name, "")) for name in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


STEPS_COMPARED_CAMPAIGN = 80
ROUND_S, RUN_S = 1000.0, 100.0
MACHINE = Provenance(host="node-1", fingerprint="f00d", git_commit_hash="0123456789abcdef", gpu_name="0:Example GPU", driver_version="550")


def write_compared(
    out: Path,
    step_ms: Mapping[str, Sequence[float]],
    *,
    provenance: Provenance = MACHINE,
    baseline: str = "old_like",
    criteria: tuple[Criterion, ...] = (),
    failed: Sequence[str] = (),
    ranks: int = 1,
    axes: Mapping[str, dict[str, Any]] | None = None,
    effective: Mapping[str, Sequence[dict[str, Any]]] | None = None,
) -> CampaignPaths:
    """One group a key, one repeat a step time, made in rounds; runs named in `failed` ended badly. By group, its axes, and the events of
    its effective settings."""
    paths = CampaignPaths(out)
    specs = {
        (group, repeat): factory.spec(
            group, repeat, axes=(axes or {}).get(group, {"variant": group}), steps=STEPS_COMPARED_CAMPAIGN, ranks=ranks
        )
        for group, times in step_ms.items()
        for repeat in range(1, len(times) + 1)
    }
    plan = CampaignPlan(name="factory", output=str(out), repeats=3, runs=tuple(specs.values()), baseline=baseline, criteria=criteria)
    files.write_json(paths.plan, to_json(plan))
    files.write_json(paths.plans / "factory.json", to_json(plan))
    for (group, repeat), spec in specs.items():
        started_t = factory.STARTED_T + repeat * ROUND_S + list(step_ms).index(group) * RUN_S
        how = Outcome.FAILED if spec.run in failed else Outcome.OK
        attempt = on_disk.write_attempt(out, spec, outcome=how, provenance=provenance, started_t=started_t)
        for rank in range(ranks):
            reported = (effective or {}).get(group, ())
            _write_steps(attempt, step_ms[group][repeat - 1], started_t, rank, ranks, reported)
    return paths


def elsewhere(**changes: Any) -> Provenance:
    """Another machine."""
    return dataclasses.replace(MACHINE, **{"host": "node-2", "fingerprint": "beef", **changes})


def _write_steps(attempt: Attempt, ms: float, started_t: float, rank: int, ranks: int, reported: Sequence[dict[str, Any]] = ()) -> None:
    lines = [on_disk.event(attempt, "start", rank=rank, world_size=ranks)]
    lines += [on_disk.event(attempt, "effective", rank=rank, **setting) for setting in reported]
    for step in range(STEPS_COMPARED_CAMPAIGN):
        wall_ms = ms * (1 + 0.002 * (step % 5))
        end_s = (step + 1) * ms / 1000
        loss = 5.0 / (1 + 0.1 * step)
        lines.append(
            on_disk.event(attempt, rank=rank, step=step, t=started_t + end_s, m=1000 + end_s, iter_ms=wall_ms, samples=8, loss=loss)
        )
    on_disk.write_events(attempt, rank, "\n".join(lines) + "\n")
