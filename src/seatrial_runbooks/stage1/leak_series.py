"""Growth of GPU memory, host memory and step time of one run, as the procedure defines it, each with its basis or why it is missing.

The first fifth of the samples is warm-up and dropped; head and tail are the first and last tenth of the rest, at least one value each.

`seatrial report` has its own leak detection (analyse/memory_leaks.py), which needs numpy and uses another method: this one keeps the
procedure's numbers and runs with the standard library alone. Tables are read here because notes count what was dropped, and because a
sampler that was restarted appends to the file of the attempt before it.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, linear_regression
from typing import NamedTuple, TypeVar

from seatrial.collect.logs.launcher_log import StampedLine, read_stage1_lines
from seatrial.collect.original.attempt_records import LARGEST_SAMPLES_BYTES
from seatrial.collect.original.manifests import NO_FILE, RunKey, number, read_lines, whole
from seatrial.collect.original.runs import Span, restarts
from seatrial.core.text import KIB_PER_MIB

Cells = Mapping[str, str]
"""Column → text; cells may be empty or missing."""


@dataclass(frozen=True, kw_only=True)
class Table:
    columns: tuple[str, ...] = ()
    parts: tuple[Sequence[Cells], ...] = ()
    """Rows below each header: a table that was restarted in the same file has several parts."""
    num_torn: int = 0
    problem: str = ""
    """Why the file cannot be read, if so."""


def read_table(path: Path) -> Table:
    """Every complete row; truncated ones are counted."""
    text = read_lines(path, LARGEST_SAMPLES_BYTES)
    columns: tuple[str, ...] = ()
    parts: list[list[Cells]] = []
    num_torn = 0
    for position, line in enumerate(text.lines, start=1):
        cells = _split_cells(line)
        if not any(cells):
            continue
        if not columns or cells[0] == columns[0] != "":
            columns = tuple(cells)
            parts.append([])
        elif len(cells) != len(columns):
            num_torn += 1
        else:
            if position == len(text.lines) and not text.ends_whole:
                # A truncated number looks like a complete one.
                cells[-1] = ""
            parts[-1].append(dict(zip(columns, cells, strict=True)))
    missing = "" if text.lines or path.exists() else NO_FILE
    return Table(columns=columns, parts=tuple(parts), num_torn=num_torn, problem=text.problem or missing)


def _split_cells(line: str) -> list[str]:
    try:
        cells = line.split(",") if '"' not in line else next(csv.reader([line]), [])
    except csv.Error:
        return [line]
    return [cell.strip() for cell in cells]


def dropped_clause(num_dropped: int, num_torn: int) -> str:
    """The dropped rows, as the end of a note; empty for none."""
    parts = [f"{num_dropped} rows with invalid values"] if num_dropped else []
    parts += [f"{num_torn} truncated rows"] if num_torn else []
    return f"; dropped: {' and '.join(parts)}" if parts else ""


Sample = tuple[float, float]
"""Seconds since the epoch, value."""
T = TypeVar("T")

WARM_UP_PARTS = 5
TAIL_PARTS = 10
MIN_VALUES = 10
MIN_SPAN_S = 60.0
S_PER_MIN = 60.0


@dataclass(frozen=True, kw_only=True)
class Series:
    """The result of one series."""

    note: str
    """The basis of its figures, or why they are missing."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures by the name of their flag; unknown ones are left out."""
    tail_ms: float | None = None
    """For step times: the mean of the tail."""


class Growth(NamedTuple):
    """Growth of samples after the warm-up, or the `problem` that prevents it."""

    num_samples: int
    slope_per_min: float = 0.0
    drift: float = 0.0
    problem: str = ""


def after_warm_up(items: Sequence[T]) -> Sequence[T]:
    """The samples without the first fifth."""
    return items[len(items) // WARM_UP_PARTS :]


def head_and_tail(values: Sequence[float]) -> tuple[float, float]:
    """Means of the first and of the last tenth."""
    tenth = max(1, len(values) // TAIL_PARTS)
    return fmean(values[:tenth]), fmean(values[-tenth:])


def growth(samples: Sequence[Sample]) -> Growth:
    """Least-squares slope and drift after the warm-up."""
    left = after_warm_up(sorted(samples))
    if len(left) < MIN_VALUES:
        return Growth(len(left), problem=f"{len(left)} samples after the warm-up, at least {MIN_VALUES} are needed")
    span_s = left[-1][0] - left[0][0]
    if span_s < MIN_SPAN_S:
        problem = f"the samples after the warm-up span {span_s:.0f} s, at least {MIN_SPAN_S:.0f} s are needed"
        return Growth(len(left), problem=problem)
    times, values = zip(*left, strict=True)
    head, tail = head_and_tail(values)
    return Growth(len(left), slope_per_min=linear_regression(times, values).slope * S_PER_MIN, drift=tail - head)


def gpu_growth(path: Path) -> Series:
    """The largest slope and the largest drift over all GPUs in the file; where it was restarted, only of the last part."""
    table = read_table(path)
    rows = table.parts[-1] if table.parts else ()
    if not rows:
        return Series(note=f"gpu: no figures: {path.name}: {table.problem or 'it has no rows'}")
    samples = _samples_by_gpu(rows)
    dropped = dropped_clause(len(rows) - sum(map(len, samples.values())), table.num_torn)
    all_growth = {gpu: growth(own) for gpu, own in samples.items()}
    grown = [found for found in all_growth.values() if not found.problem]
    if not grown:
        problem = max(all_growth.values(), key=lambda found: found.num_samples, default=growth(())).problem
        return Series(note=f"gpu: no figures: {path.name}: {problem}{dropped}")
    left_out = ", ".join(sorted(gpu for gpu, found in all_growth.items() if found.problem))
    few = f"; GPU {left_out} has too few samples" if left_out else ""
    gpus = "1 GPU" if len(grown) == 1 else f"{len(grown)} GPUs"
    least = min(found.num_samples for found in grown)
    figures = {"gpu_tail_slope": max(found.slope_per_min for found in grown), "gpu_tail_drift": max(found.drift for found in grown)}
    return Series(note=f"gpu: {path.name}: {gpus}, {least} samples or more of each after the warm-up{few}{dropped}", figures=figures)


def _samples_by_gpu(rows: Sequence[Cells]) -> dict[str, list[Sample]]:
    """Used memory in MiB of each GPU; rows with impossible values are left out."""
    samples: dict[str, list[Sample]] = {}
    for row in rows:
        t, used, total = (number(row.get(name)) for name in ("epoch_sec", "mem_used_mib", "mem_total_mib"))
        if t is not None and t > 0 and used is not None and used >= 0 and (not total or total < 0 or used <= total):
            samples.setdefault(row.get("gpu_index", "") or row.get("gpu_uuid", ""), []).append((t, used))
    return samples


MIN_PROCESSES = 10
OURS = "our layout (rss_kib, train_proc_count)"
DRIVER = "the driver's layout (rss_kib)"
HAND_MADE = "the hand-made sampler's layout (train_rss_kib)"


class HostSample(NamedTuple):
    t: float
    rss_mib: float | None
    """None where the cell is invalid."""
    proc_count: float | None


@dataclass(frozen=True, kw_only=True)
class HostFile:
    name: str
    """File name and owner."""
    samples: tuple[HostSample, ...] = ()
    layout: str = ""
    num_torn: int = 0
    problem: str = ""


def read_host_file(path: Path, owner: str, *, restarts: bool) -> HostFile:
    """Every row with a time; with `restarts`, only those after the last header."""
    table = read_table(path)
    rows = [row for part in (table.parts[-1:] if restarts else table.parts) for row in part]
    samples = [
        HostSample(t, _rss_mib(row), number(row.get("train_proc_count"))) for row in rows if (t := number(row.get("epoch_sec"))) and t > 0
    ]
    layout = _layout(table.columns)
    problem = table.problem
    if not problem and not layout:
        problem = "its header has neither rss_kib nor train_rss_kib" if table.columns else "it is empty"
    elif not problem and not samples:
        problem = "it has no rows"
    return HostFile(name=f"{path.name} of the {owner}", samples=tuple(samples), layout=layout, num_torn=table.num_torn, problem=problem)


def host_growth(file: HostFile, span: Span | None) -> Series:
    """Memory growth within `span`, or in the whole file for None."""
    if file.problem:
        return Series(note=f"host: no figures: {file.name}: {file.problem}")
    note = f"host: {file.name}, {file.layout}{f', cut to the time of the run by {span.source}' if span else ''}"
    within = [sample for sample in file.samples if span is None or span.covers(sample.t)]
    if not within:
        return Series(note=f"{note}: no figures: no sample in that time")
    training, which = _while_training(within)
    samples = [(sample.t, sample.rss_mib) for sample in training if sample.rss_mib is not None]
    dropped = dropped_clause(len(training) - len(samples), file.num_torn)
    found = growth(samples)
    if found.problem:
        return Series(note=f"{note}: no figures: {which}{found.problem}{dropped}")
    figures = {"host_tail_slope": found.slope_per_min, "host_tail_drift": found.drift}
    return Series(note=f"{note}: {which}{found.num_samples} samples after the warm-up{dropped}", figures=figures)


def _while_training(samples: Sequence[HostSample]) -> tuple[list[HostSample], str]:
    """The samples taken while the training ran, moments with fewer processes included, and a description of them."""
    if all(sample.proc_count is None for sample in samples):
        return list(samples), ""
    counts = Counter(int(sample.proc_count) for sample in samples if sample.proc_count is not None and sample.proc_count > 0)
    if not counts:
        return [], "no sample has a training process; "
    if max(counts) >= MIN_PROCESSES:
        least, which = MIN_PROCESSES, f"from the first to the last sample with {MIN_PROCESSES} or more processes, "
    else:
        least = min(counts, key=lambda count: (-counts[count], count))
        which = f"never {MIN_PROCESSES} processes, so from the first to the last sample with the usual {least}, "
    times = [sample.t for sample in samples if sample.proc_count is not None and sample.proc_count >= least]
    return [sample for sample in samples if min(times) <= sample.t <= max(times)], which


def _layout(columns: Sequence[str]) -> str:
    if "rss_kib" in columns:
        return OURS if "train_proc_count" in columns else DRIVER
    return HAND_MADE if "train_rss_kib" in columns else ""


def _rss_mib(row: Cells) -> float | None:
    rss_kib, total_kib = number(row.get("rss_kib") or row.get("train_rss_kib")), number(row.get("mem_total_kib"))
    # 0 means that no training process was running.
    if rss_kib is None or rss_kib <= 0 or (total_kib is not None and 0 < total_kib < rss_kib):
        return None
    return rss_kib / KIB_PER_MIB


ITER_P50 = "iter_ms_p50"


class Point(NamedTuple):
    step: float | None
    iter_ms: float | None


Points = dict[RunKey, dict[str, list[Point]]]
"""Points by run, then by attempt, which is empty where the table has none."""


def read_points(path: Path) -> Points:
    """Every timing point of a campaign's table; empty if there is none."""
    found: Points = {}
    for row in (row for part in read_table(path).parts for row in part):
        key = _run_key(row)
        if key is not None:
            point = Point(number(row.get("step")), _positive(row.get(ITER_P50)))
            found.setdefault(key, {}).setdefault(row.get("attempt", ""), []).append(point)
    return found


def points_of(row: Cells, points: Points) -> Sequence[Point]:
    """Points of the attempt of a manifest's row; of the last one where either has no attempt."""
    key, attempt = _run_key(row), row.get("attempt", "")
    by_attempt = points.get(key, {}) if key is not None else {}
    if not attempt:
        attempt = max(by_attempt, key=lambda name: number(name) or 0.0, default="")
    found = by_attempt.get(attempt, by_attempt.get("", []))
    begins = max((at for _, at in restarts(point.step for point in found)), default=0)
    return found[begins:]


def _run_key(row: Cells) -> RunKey | None:
    repeat = whole(row.get("repeat"))
    return None if repeat is None else (row.get("group", ""), repeat)


def log_points(lines: Sequence[str]) -> list[Point]:
    """Points from the `Timing` lines of one attempt."""
    read = read_stage1_lines([StampedLine(None, line, math.nan, math.nan) for line in lines]).points
    return [Point(float(point.step), _positive(str(point.values.get(ITER_P50)))) for point in read]


def iter_drift(points: Sequence[Point], source: str) -> Series:
    """How much the tail of the points with a value is above their head, in percent."""
    values = [point.iter_ms for point in points if point.iter_ms is not None]
    if not values:
        return Series(note=f"iter: no figures: {source} has no timing points of this run")
    left = after_warm_up(values)
    head_ms, tail_ms = head_and_tail(left)
    if len(left) < MIN_VALUES:
        note = f"iter: {source}: no drift: {len(left)} timing points after the warm-up, at least {MIN_VALUES} are needed"
        return Series(note=note, tail_ms=tail_ms)
    drift_pct = (tail_ms / head_ms - 1) * 100
    return Series(note=f"iter: {source}: {len(left)} timing points after the warm-up", figures={"iter_drift": drift_pct}, tail_ms=tail_ms)


def _positive(text: str | None) -> float | None:
    value = number(text)
    return value if value is not None and value > 0 else None
