"""`python -m seatrial.results.tracker_process NAME OUT`: one tracker in a process of its own.

Reads one JSON request a line from standard input and answers each with one line on standard output: `{"do": "open"}`,
`{"do": "run", "attempt": FOLDER}`, `{"do": "campaign"}` → `{"ok": true, "where": …}` or `{"ok": false, "reason": …}`. Ends when its input
does. What a tracker's library prints goes to standard error, which is OUT/tracking.log. A process of its own, since such a library may
hang on a network, start threads, or end the process, and a campaign must go on.

A finished attempt and the campaign are sent as `TrackedRun` and `TrackedCampaign`: plain values, thinned to what a page can draw, with
everything that looks like a secret masked.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seatrial import __version__
from seatrial.collect.attempts import read_attempt, read_campaign, read_plans
from seatrial.core import files
from seatrial.core.errors import CampaignError
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.machine.secrets import mask, mask_argv, mask_text
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Scalar
from seatrial.records.events import PHASES
from seatrial.records.measure import RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.report.text import finite_number
from seatrial.report.trackers import Point, TrackedCampaign, TrackedRun, Tracker, open_tracker
from seatrial.results.export import read_gpu_telemetry, read_host_telemetry
from seatrial.results.gather import Specs, planned_specs, with_current_spec

if TYPE_CHECKING:
    import polars as pl


MAX_STEP_POINTS = 2000
MAX_TELEMETRY_POINTS = 500
KEY_LENGTH = 16
MAX_TEXT_CHARS = 500
MAX_REASON_CHARS = 180
FIGURES = (
    "samples_per_s", "tokens_per_s", "steps_per_s", "wall_p50_ms", "wall_p90_ms", "wall_p90_over_p50", "startup_s", "duration_s",
    "first_loss", "last_loss",
)  # fmt: skip
GPU_DRAWN = ("util_gpu_pct", "power_w", "temp_c", "sm_clock_mhz", "mem_used_mib")
HOST_DRAWN = ("cpu_user_pct", "cpu_system_pct", "rss_kib", "mem_available_kib", "disk_read_kib_per_s", "net_rx_kib_per_s")


def tracked_run(measured: MeasuredRun, tables: StepTables) -> TrackedRun:
    """One finished attempt."""
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


def tracked_campaign(paths: CampaignPaths) -> TrackedCampaign | None:
    """The campaign as its report has it; None while no run is over."""
    over = [attempt for attempt in read_campaign(paths) if attempt.outcome and attempt.outcome.started_t]
    plans, verdict, summary = read_plans(paths), files.read_json(paths.verdict) or {}, files.read_json(paths.summary_json) or {}
    if not over or not plans:
        return None
    first = min(over, key=lambda attempt: attempt.outcome.started_t if attempt.outcome else 0.0)
    ranking = summary.get("ranking") or {}
    tags = {
        "verdict": verdict.get("verdict"),
        "winner": ranking.get("winner"),
        "recommended": ranking.get("recommended"),
        "decided": ranking.get("decided"),
        "winners": summary.get("winners"),
        "runs": len(over),
        "pending": len(verdict.get("pending") or ()),
    }
    return TrackedCampaign(
        key=_short_hash("campaign", attempt_key(first)),
        name=plans[-1].name,
        started_t=first.outcome.started_t if first.outcome else 0.0,
        tags={name: mask_text(str(value)) for name, value in tags.items() if value is not None},
        text=mask_text(files.read_whole(paths.summary_md).decode("utf-8", errors="replace") if paths.summary_md.is_file() else ""),
    )


def attempt_key(attempt: Attempt) -> str:
    """Identifies the attempt, wherever its folder is: the same settings run another day are another run."""
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
    effective = {f"effective.{name}": used for name, (_, used, _) in measure.effective.items()} if measure else {}
    params = {name: value for name, value in {**requested, **effective}.items() if value is not None}
    # Numbers under any name are settings; text may be a secret by its name or by its form.
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
    """At most MAX_TELEMETRY_POINTS of the host, or of each GPU."""
    frame = frame.filter(frame["epoch_sec"].is_not_null())
    # The rows of GPUs take turns: every k-th of all of them would be the same GPU's again and again.
    each = frame.partition_by("gpu_index", maintain_order=True) if "gpu_index" in frame.columns else [frame]
    points = []
    for row in (row for one in each for row in one[:: max(1, -(-len(one) // MAX_TELEMETRY_POINTS))].iter_rows(named=True)):
        where = f"{prefix}{row['gpu_index']}" if row.get("gpu_index") is not None else prefix
        values = {f"{where}/{name}": float(row[name]) for name in drawn if row.get(name) is not None}
        if values:
            points.append(Point(step=max(0, round(row["epoch_sec"] - started_t)), t=row["epoch_sec"], values=values))
    return points


def serve(name: str, folder: Path, requests: IO[str], answers: IO[str]) -> None:
    """Carry out each request and answer it; whatever a tracker raises is an answer, a library's SystemExit too."""
    open_once = functools.cache(lambda: open_tracker(name, folder))
    for line in requests:
        try:
            answer: dict[str, Any] = {"ok": True, "where": mask_text(_send(json.loads(line), open_once(), CampaignPaths(folder)))}
        except (Exception, SystemExit) as error:
            answer = {"ok": False, "reason": _reason(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _send(request: dict[str, str], tracker: Tracker, paths: CampaignPaths) -> str:
    if request["do"] == "run":
        _send_run(tracker, AttemptPaths(Path(request["attempt"])), paths)
    elif request["do"] == "campaign":
        campaign = tracked_campaign(paths)
        if campaign is not None:
            tracker.send_campaign(campaign)
    return tracker.where


def _send_run(tracker: Tracker, attempt: AttemptPaths, paths: CampaignPaths) -> None:
    from seatrial.collect.steps import read_steps
    from seatrial.results.measure import measure

    stored = read_attempt(attempt)
    if stored is None or stored.outcome is None:
        raise CampaignError(f"{attempt.folder} holds no finished attempt")
    current = with_current_spec(stored, _specs(paths))
    tracker.send_run(tracked_run(measure(current), read_steps(current)))


@functools.cache
def _specs(paths: CampaignPaths) -> Specs:
    return planned_specs(read_plans(paths))


def _reason(error: BaseException) -> str:
    """The first line with text, short and without secrets."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    reason = mask_text(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    return reason if len(reason) <= MAX_REASON_CHARS else reason[: MAX_REASON_CHARS - 1] + "…"


def private_stdout() -> IO[str]:
    """The stream for answers; everything else printed from now on goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), sys.stdin, private_stdout())
