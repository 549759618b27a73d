"""Campaigns on disk whose groups have given step times: what comparisons are tried on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json
from seatrial.records.command import Provenance
from seatrial.records.outcome import Outcome
from seatrial.records.verdict import Criterion
from tests.unit.analyse import factory
from tests.unit.collect import on_disk

STEPS = 80
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
) -> CampaignPaths:
    """One group a key, one repeat a step time, made in rounds; runs named in `failed` ended badly."""
    paths = CampaignPaths(out)
    specs = {
        (group, repeat): factory.spec(group, repeat, axes={"variant": group}, steps=STEPS, ranks=ranks)
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
            _write_steps(attempt, step_ms[group][repeat - 1], started_t, rank, ranks)
    return paths


def elsewhere(**changes: Any) -> Provenance:
    """Another machine."""
    return dataclasses.replace(MACHINE, **{"host": "node-2", "fingerprint": "beef", **changes})


def _write_steps(attempt: Attempt, ms: float, started_t: float, rank: int, ranks: int) -> None:
    lines = [on_disk.event(attempt, "start", rank=rank, world_size=ranks)]
    for step in range(STEPS):
        wall_ms = ms * (1 + 0.002 * (step % 5))
        end_s = (step + 1) * ms / 1000
        loss = 5.0 / (1 + 0.1 * step)
        lines.append(
            on_disk.event(attempt, rank=rank, step=step, t=started_t + end_s, m=1000 + end_s, iter_ms=wall_ms, samples=8, loss=loss)
        )
    on_disk.write_events(attempt, rank, "\n".join(lines) + "\n")
