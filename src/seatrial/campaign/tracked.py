"""A finished attempt, or the whole campaign, as a tracker takes it.

In: a measured attempt and its steps, or a campaign's folder with its report. Out: `TrackedRun`, `TrackedCampaign`: plain values,
thinned to what a page can draw, with everything that looks like a secret masked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial import __version__, files
from seatrial.campaign.attempt_frames import read_gpu_telemetry, read_host_telemetry
from seatrial.collect.attempts import read_campaign, read_plans
from seatrial.machine.secrets import mask, mask_text, mask_words
from seatrial.paths import CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.events import PHASES
from seatrial.records.measure import Cell, RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import Scalar
from seatrial.records.steps import StepTables
from seatrial.report.trackers.tracker import Point, TrackedCampaign, TrackedRun

if TYPE_CHECKING:
    import polars as pl

MOST_STEP_POINTS = 2000
MOST_TELEMETRY_POINTS = 500
KEY_LENGTH = 16
LONGEST_TEXT = 500
GPU_DRAWN = ("util_gpu_pct", "power_w", "temp_c", "sm_clock_mhz", "mem_used_mib")
HOST_DRAWN = ("cpu_user_pct", "cpu_system_pct", "rss_kib", "mem_available_kib", "disk_read_kib_per_s", "net_rx_kib_per_s")


def tracked_run(measured: MeasuredRun, tables: StepTables) -> TrackedRun:
    """Everything of one attempt that is over."""
    attempt, measure = measured.attempt, measured.measure
    spec, ended = attempt.spec, attempt.outcome
    assert ended is not None
    return TrackedRun(
        key=key_of(attempt),
        name=spec.run,
        campaign=spec.plan,
        group=spec.group,
        outcome=ended.outcome.value,
        attempt=attempt.number,
        started_t=ended.started_t,
        ended_t=ended.ended_t,
        params=_params(attempt, measure),
        tags=_tags(attempt),
        steps=_step_points(tables),
        telemetry=_telemetry(attempt, ended.started_t),
        figures=_figures(measure) if measure else {},
    )


def tracked_campaign(paths: CampaignPaths) -> TrackedCampaign | None:
    """The campaign as its report tells it; None while no run is over."""
    over = [attempt for attempt in read_campaign(paths) if attempt.outcome and attempt.outcome.started_t]
    plans, verdict, summary = read_plans(paths), files.read_json(paths.verdict) or {}, files.read_json(paths.summary_json) or {}
    if not over or not plans:
        return None
    first = min(over, key=lambda attempt: attempt.outcome.started_t if attempt.outcome else 0.0)
    ranking = summary.get("ranking") or {}
    told = {
        "verdict": verdict.get("verdict"),
        "winner": ranking.get("winner"),
        "decided": ranking.get("decided"),
        "winners": summary.get("winners"),
        "runs": len(over),
        "pending": len(verdict.get("pending") or ()),
    }
    return TrackedCampaign(
        key=_short_hash("campaign", key_of(first)),
        name=plans[-1].name,
        started_t=first.outcome.started_t if first.outcome else 0.0,
        tags={name: mask_text(str(value)) for name, value in told.items() if value is not None},
        text=mask_text(_text_of(paths.summary_md)),
    )


def key_of(attempt: Attempt) -> str:
    """Which attempt this is, wherever its folder lies: the same settings run another day are another run."""
    started_t = attempt.outcome.started_t if attempt.outcome else 0.0
    when = f"{attempt.provenance.host} {started_t!r}" if started_t else str(Path(attempt.folder).absolute())
    return _short_hash(attempt.spec.plan, attempt.spec.run, attempt.spec.hash, str(attempt.number), when)


def _short_hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:KEY_LENGTH]


def _params(attempt: Attempt, measure: RunMeasure | None) -> dict[str, Scalar]:
    spec = attempt.spec
    asked: dict[str, Scalar] = {
        **spec.settings,
        **spec.axes,
        "workload": spec.workload.name,
        "launcher": spec.launcher.kind,
        "ranks": measure.world_size if measure else spec.place.ranks,
        "steps": spec.steps,
        "args": " ".join(mask_words(spec.workload.args)) or None,
    }
    done = {f"effective.{name}": effective for name, (_, effective, _) in measure.effective.items()} if measure else {}
    return {name: _shown(name, value) for name, value in {**asked, **done}.items() if value is not None}


def _shown(name: str, value: Scalar) -> Scalar:
    """Numbers under any name are settings; text may be a secret by its name or by its form."""
    return mask(name, value) if isinstance(value, str) else value


def _tags(attempt: Attempt) -> dict[str, str]:
    spec, ended, machine = attempt.spec, attempt.outcome, attempt.provenance
    tags: dict[str, object] = {
        "group": spec.group,
        "repeat": spec.repeat,
        "attempt": attempt.number,
        "hash": spec.hash,
        "fingerprint": machine.fingerprint,
        "outcome": ended.outcome.value if ended else "",
        "cause": ended.cause.value if ended else "",
        "detail": ended.detail[:LONGEST_TEXT] if ended else "",
        "commit": machine.git_commit_hash,
        "gpu_name": machine.gpu_name,
        "host": machine.host,
        "version": __version__,
    }
    return {name: mask_text(str(value)) for name, value in tags.items() if value != ""}


def _figures(measure: RunMeasure) -> dict[str, float]:
    cells: dict[str, Cell] = {
        "samples_per_s": measure.samples_per_s,
        "tokens_per_s": measure.tokens_per_s,
        "steps_per_s": measure.steps_per_s,
        "wall_p50_ms": measure.wall_p50_ms,
        "wall_p90_ms": measure.wall_p90_ms,
        "wall_p90_over_p50": measure.wall_p90_over_p50,
        "startup_s": measure.startup_s,
        "duration_s": measure.duration_s,
        "first_loss": measure.first_loss,
        "last_loss": measure.last_loss,
        "window_n": measure.window.n if measure.window else None,
        **{f"startup_{part}_s": seconds for part, seconds in measure.startup.items()},
        **measure.telemetry,
    }
    return _finite(cells)


def _finite(cells: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in cells.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _step_points(tables: StepTables) -> tuple[Point, ...]:
    import polars as pl

    steps = tables.steps
    first_rank = steps.filter(pl.col("rank") == steps["rank"].min()) if len(steps) else steps
    names = {"iter_ms": "wall_iter_ms", "loss": "loss", **{phase: phase for phase in PHASES}}
    return tuple(_step_point(row, names) for row in thinned(first_rank, "iter_ms", MOST_STEP_POINTS).iter_rows(named=True))


def _step_point(row: Mapping[str, Any], names: Mapping[str, str]) -> Point:
    values = {told: float(row[column]) for column, told in names.items() if row[column] is not None}
    if row["samples"] is not None and row["iter_ms"]:
        values["samples_per_s"] = row["samples"] / row["iter_ms"] * 1000
    return Point(step=row["step"], t=row["t"] or 0.0, values=values)


def thinned(frame: pl.DataFrame, extreme: str, most: int) -> pl.DataFrame:
    """At most `most` rows in their order: the first, the last, and of every stretch between the lowest and the highest."""
    from seatrial.analyse.charts.thinning import kept_places

    return frame if len(frame) <= most else frame[kept_places(frame[extreme].to_numpy(), most)]


def _telemetry(attempt: Attempt, started_t: float) -> tuple[Point, ...]:
    points = [
        *_samples(read_host_telemetry(attempt), "host", HOST_DRAWN, started_t),
        *_samples(read_gpu_telemetry(attempt), "gpu", GPU_DRAWN, started_t),
    ]
    return tuple(sorted(points, key=lambda point: point.t))


def _samples(frame: pl.DataFrame, prefix: str, drawn: Iterable[str], started_t: float) -> list[Point]:
    """At most MOST_TELEMETRY_POINTS of the host, or of each GPU."""
    frame = frame.filter(frame["epoch_sec"].is_not_null())
    # The rows of GPUs take turns: every k-th of all of them would be the same GPU's again and again.
    each = frame.partition_by("gpu_index", maintain_order=True) if "gpu_index" in frame.columns else [frame]
    points = []
    for row in (row for one in each for row in one[:: max(1, -(-len(one) // MOST_TELEMETRY_POINTS))].iter_rows(named=True)):
        where = f"{prefix}{row['gpu_index']}" if row.get("gpu_index") is not None else prefix
        values = {f"{where}/{name}": float(row[name]) for name in drawn if row.get(name) is not None}
        if values:
            points.append(Point(step=max(0, round(row["epoch_sec"] - started_t)), t=row["epoch_sec"], values=values))
    return points


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
