"""What trackers receive of a campaign, and the requests to their processes.

In: a measured attempt, and the campaign's results. Out: `TrackedRun` and `TrackedCampaign`: plain values, thinned to what a page can draw,
with everything that looks like a secret masked; and JSON of them. They are computed once for all trackers.

A request has the fields of the value as they are, not as `records.codec` writes records: a loss of NaN stays NaN.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial import __version__
from seatrial.core import files
from seatrial.core.paths import CampaignPaths
from seatrial.machine.secrets import mask, mask_argv, mask_text
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Scalar
from seatrial.records.events import PHASES
from seatrial.records.measure import RunMeasure
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.text import finite_number
from seatrial.report.trackers import Point, TrackedCampaign, TrackedRun
from seatrial.report.view.campaign import winners_sentence
from seatrial.results.export import read_gpu_telemetry, read_host_telemetry

if TYPE_CHECKING:
    import polars as pl

Request = dict[str, Any]
"""`do` is `open`, `run` or `campaign`; the last two have their value beside it."""
OPEN: Request = {"do": "open"}
MAX_STEP_POINTS = 2000
MAX_TELEMETRY_POINTS = 500
KEY_LENGTH = 16
MAX_TEXT_CHARS = 500
FIGURES = (
    "samples_per_s", "tokens_per_s", "steps_per_s", "wall_p50_ms", "wall_p90_ms", "wall_p90_over_p50", "startup_s", "duration_s",
    "first_loss", "last_loss",
)  # fmt: skip
GPU_DRAWN = ("util_gpu_pct", "power_w", "temp_c", "sm_clock_mhz", "mem_used_mib")
HOST_DRAWN = ("cpu_user_pct", "cpu_system_pct", "rss_kib", "mem_available_kib", "disk_read_kib_per_s", "net_rx_kib_per_s")


def run_request(measured: MeasuredRun) -> Request:
    """The request to send a finished attempt."""
    from seatrial.collect.steps import read_steps

    return {"do": "run", "run": asdict(tracked_run(measured, read_steps(measured.attempt)))}


def campaign_request(results: CampaignResults) -> Request:
    """The request to send the campaign; its value is None while no run is over."""
    campaign = tracked_campaign(results)
    return {"do": "campaign", "campaign": asdict(campaign) if campaign else None}


def requested_run(request: Request) -> TrackedRun:
    """The run of a request."""
    points = {name: tuple(Point(**point) for point in request["run"][name]) for name in ("steps", "telemetry")}
    return TrackedRun(**{**request["run"], **points})


def requested_campaign(request: Request) -> TrackedCampaign | None:
    """The campaign of a request."""
    return TrackedCampaign(**request["campaign"]) if request["campaign"] else None


def tracked_run(measured: MeasuredRun, tables: StepTables) -> TrackedRun:
    """A finished attempt as trackers receive it."""
    attempt, measure = measured.attempt, measured.measure
    spec, ended = attempt.spec, attempt.outcome
    assert ended is not None
    return TrackedRun(
        key=attempt_key(attempt),
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


def tracked_campaign(results: CampaignResults) -> TrackedCampaign | None:
    """The campaign as in its report; None while no run is over."""
    over = [run.attempt for run in results.runs if run.attempt.outcome and run.attempt.outcome.started_t]
    if not over or not results.plans:
        return None
    first = min(over, key=lambda attempt: attempt.outcome.started_t if attempt.outcome else 0.0)
    ranking, summary_md = results.ranking, CampaignPaths(Path(results.output)).summary_md
    tags = {
        "verdict": results.verdict.verdict.value,
        "winner": ranking.winner,
        "recommended": ranking.recommended,
        "decided": ranking.decided,
        "winners": winners_sentence(results),
        "runs": len(over),
        "pending": len(results.pending),
    }
    return TrackedCampaign(
        key=_short_hash("campaign", attempt_key(first)),
        name=results.plans[-1].name,
        started_t=first.outcome.started_t if first.outcome else 0.0,
        tags={name: mask_text(str(value)) for name, value in tags.items() if value is not None},
        text=mask_text(files.read_whole(summary_md).decode("utf-8", errors="replace") if summary_md.is_file() else ""),
    )


def attempt_key(attempt: Attempt) -> str:
    """Identifies the attempt, wherever its folder is; the same settings on another day are another run."""
    started_t = attempt.outcome.started_t if attempt.outcome else 0.0
    when = f"{attempt.provenance.host} {started_t!r}" if started_t else str(Path(attempt.folder).absolute())
    return _short_hash(attempt.spec.plan, attempt.spec.run, attempt.spec.hash, str(attempt.number), when)


def _short_hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:KEY_LENGTH]


def _params(attempt: Attempt, measure: RunMeasure | None) -> dict[str, Scalar]:
    spec = attempt.spec
    requested: dict[str, Scalar] = {
        **spec.settings,
        **spec.axes,
        "workload": spec.workload.name,
        "launcher": spec.launcher.kind,
        "ranks": measure.world_size if measure else spec.place.ranks,
        "steps": spec.steps,
        "args": " ".join(mask_argv(spec.workload.args)) or None,
    }
    effective = {f"effective.{name}": one.effective for name, one in measure.effective.items()} if measure else {}
    params = {name: value for name, value in {**requested, **effective}.items() if value is not None}
    # Numbers are settings under any name; text may be a secret by its name or its form.
    return {name: mask(name, value) if isinstance(value, str) else value for name, value in params.items()}


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
        "detail": ended.detail[:MAX_TEXT_CHARS] if ended else "",
        "commit": machine.git_commit_hash,
        "gpu_name": machine.gpu_name,
        "host": machine.host,
        "version": __version__,
    }
    return {name: mask_text(str(value)) for name, value in tags.items() if value != ""}


def _figures(measure: RunMeasure) -> dict[str, float]:
    cells: dict[str, Scalar] = {
        **{name: getattr(measure, name) for name in FIGURES},
        "window_n": measure.window.n if measure.window else None,
        **{f"startup_{part}_s": seconds for part, seconds in measure.startup.items()},
        **measure.telemetry,
    }
    return {name: float(number) for name, value in cells.items() if (number := finite_number(value)) is not None}


def _step_points(tables: StepTables) -> tuple[Point, ...]:
    import polars as pl

    steps = tables.steps
    first_rank = steps.filter(pl.col("rank") == steps["rank"].min()) if len(steps) else steps
    names = {"iter_ms": "wall_iter_ms", "loss": "loss", **{phase: phase for phase in PHASES}}
    return tuple(_step_point(row, names) for row in thin(first_rank, "iter_ms", MAX_STEP_POINTS).iter_rows(named=True))


def _step_point(row: Mapping[str, Any], names: Mapping[str, str]) -> Point:
    values = {name: float(row[column]) for column, name in names.items() if row[column] is not None}
    if row["samples"] is not None and row["iter_ms"]:
        values["samples_per_s"] = row["samples"] / row["iter_ms"] * 1000
    return Point(step=row["step"], t=row["t"] or 0.0, values=values)


def thin(frame: pl.DataFrame, extreme: str, most: int) -> pl.DataFrame:
    """At most `most` rows in their order: the first, the last, and the lowest and the highest of every stretch between."""
    from seatrial.analyse.charts.thinning import kept_indices

    return frame if len(frame) <= most else frame[kept_indices(frame[extreme].to_numpy(), most)]


def _telemetry(attempt: Attempt, started_t: float) -> tuple[Point, ...]:
    points = [
        *_samples(read_host_telemetry(attempt), "host", HOST_DRAWN, started_t),
        *_samples(read_gpu_telemetry(attempt), "gpu", GPU_DRAWN, started_t),
    ]
    return tuple(sorted(points, key=lambda point: point.t))


def _samples(frame: pl.DataFrame, prefix: str, drawn: Iterable[str], started_t: float) -> list[Point]:
    """At most MAX_TELEMETRY_POINTS samples of the host, or of each GPU."""
    frame = frame.filter(frame["epoch_sec"].is_not_null())
    # Rows of several GPUs alternate: every k-th of all of them might always be the same GPU.
    each = frame.partition_by("gpu_index", maintain_order=True) if "gpu_index" in frame.columns else [frame]
    points = []
    for row in (row for one in each for row in one[:: max(1, -(-len(one) // MAX_TELEMETRY_POINTS))].iter_rows(named=True)):
        where = f"{prefix}{row['gpu_index']}" if row.get("gpu_index") is not None else prefix
        values = {f"{where}/{name}": float(row[name]) for name in drawn if row.get(name) is not None}
        if values:
            points.append(Point(step=max(0, round(row["epoch_sec"] - started_t)), t=row["epoch_sec"], values=values))
    return points
