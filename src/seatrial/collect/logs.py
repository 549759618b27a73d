"""Steps of a script that knows nothing of Seatrial, from the lines it prints.

In: an attempt's launcher.log with its arrivals. Out: `StepTables` with source `log:NAME` (one row a printed step, `span` steps
long), or None when no known format finds two steps.

The plan's own patterns come first, then the format the plan names, then the ready format that finds the most steps. Times are
those of arrival: what a script says of its own speed is not taken, unless no arrivals were kept. Lines that came in one chunk
were printed before it came, so only the last of them has a time; the steps of the others are in its span.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from seatrial.collect.events import PAUSE_SCHEMA, STEP_SCHEMA
from seatrial.collect.hf_lines import steps_by_epoch
from seatrial.collect.log_cautions import log_cautions
from seatrial.collect.log_source import StampedLine, read_arrivals, stamped_lines
from seatrial.collect.seed_lines import SeedReading, read_seed_lines
from seatrial.errors import UsageError
from seatrial.log_lines import compile_patterns, plain, values_in
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.log_formats import PAUSE_LINES, READY
from seatrial.records.run_spec import LogPatterns, WorkloadSpec
from seatrial.records.steps import StepTables

LEAST_STEPS = 2
MOST_PAUSES = 0.5
OWN = "plan"
Row = dict[str, float | int | None]


@dataclass
class PrintedStep:
    """One step as its lines told it."""

    step: int
    line: StampedLine
    at: int
    """Number of the line it was first told in."""
    values: dict[str, float]


@dataclass(frozen=True)
class Reading:
    """What one format finds in the lines."""

    name: str
    printed: list[PrintedStep]


def read_logs(attempt: Attempt) -> StepTables | None:
    """The steps the attempt's own output tells of, None when it tells of fewer than two."""
    paths = AttemptPaths(Path(attempt.folder))
    lines = list(stamped_lines(paths.launcher_log, read_arrivals(paths.arrivals)))
    formats, cautions = _candidates(attempt.spec.workload, attempt.spec.run)
    found = _best([Reading(fmt.name, printed_steps(lines, fmt) or _without_bar(lines, fmt)) for fmt in formats])
    if found is None:
        return None
    seed = read_seed_lines(lines) if found.name == "seed" else SeedReading()
    rows = _rows(found.printed, attempt.spec.workload)
    held = _held_pauses(found, rows, lines)
    # Where most rows hold a pause, leaving them out would leave nothing to measure.
    too_many = len({step for step, _ in held}) > MOST_PAUSES * len(rows)
    return StepTables(
        source=f"log:{found.name}",
        steps=pl.concat([_table(rows, seed.phases.get(0, {})), *_other_ranks(seed, {row["step"] for row in rows})]),
        pauses=_pause_table([] if too_many else held),
        world_size=attempt.spec.place.ranks,
        timing_points=seed.points,
        cautions=(*cautions, *log_cautions(rows, attempt.spec.run, pauses_count=too_many)),
    )


def _best(readings: list[Reading]) -> Reading | None:
    """The plan's own patterns if they find anything, else the format that finds the most steps."""
    enough = [reading for reading in readings if len(reading.printed) >= LEAST_STEPS]
    return max(enough, key=lambda reading: (reading.name == OWN, len(reading.printed)), default=None)


def _candidates(workload: WorkloadSpec, run: str) -> tuple[list[LogPatterns], list[Caution]]:
    """Formats to try, best first, and what is wrong with the plan's own patterns."""
    own, cautions = [], []
    if workload.patterns:
        try:
            compile_patterns(workload.patterns)
            own = [LogPatterns(name=OWN, lines=workload.patterns)]
        except UsageError as error:
            cautions = [Caution(kind="bad_pattern", subject=run, text=f"The plan's own patterns were not used: {error}.")]
    if workload.reads == "auto":
        return [*own, *READY.values()], cautions
    return [*own, *([READY[workload.reads]] if workload.reads in READY else [])], cautions


def printed_steps(lines: Sequence[StampedLine], fmt: LogPatterns) -> list[PrintedStep]:
    """Steps by one format, from the unmarked lines or else from the lowest rank whose lines tell of two."""
    patterns = compile_patterns(fmt.lines)
    told: dict[int, list[PrintedStep]] = {}
    for at, line in enumerate(lines):
        values = values_in(line.text, patterns)
        if values:
            told.setdefault(-1 if line.rank is None else line.rank, []).append(PrintedStep(-1, line, at, values))
    by_rank = [list(_joined(told[rank])) for rank in sorted(told)]
    return next((printed for printed in by_rank if len(printed) >= LEAST_STEPS), [])


def _without_bar(lines: Sequence[StampedLine], fmt: LogPatterns) -> list[PrintedStep]:
    """Steps of a Trainer without its bar; every other format must name its steps."""
    told = steps_by_epoch(lines) if fmt.name == "hf_trainer" else []
    steps = [PrintedStep(-1, lines[each.at], each.at, {"step": each.step, "loss": each.loss}) for each in told]
    return list(_joined(steps))


def _joined(told: list[PrintedStep]) -> Iterator[PrintedStep]:
    """One step for each new step number, with what later lines say of it; numbers that start again are counted on."""
    current: PrintedStep | None = None
    raw, before = 0, 0
    for each in told:
        number = each.values.pop("step", math.nan)
        is_new = math.isfinite(number) and (current is None or int(number) != raw)
        if is_new:
            # A new epoch, or a script that starts again from a checkpoint: the steps before it were done all the same.
            before += raw if current is not None and number < raw else 0
            raw = int(number)
        if is_new and (current is None or raw + before > current.step):
            if current is not None:
                yield current
            current = PrintedStep(raw + before, each.line, each.at, {})
        if current is not None:
            current.values.update(each.values)
    if current is not None:
        yield current


def _rows(printed: list[PrintedStep], workload: WorkloadSpec) -> list[Row]:
    """Rows of the step table, ranks and phases still missing."""
    rows: list[Row] = []
    last_timed, last_row = printed[0], printed[0]
    for index, each in enumerate(printed):
        is_timed = not _came_together(each, printed[index + 1] if index + 1 < len(printed) else None)
        span = each.step - last_timed.step
        # The first chunk has nothing before it to be timed from.
        iter_ms = _iter_ms(last_timed, each, span) if index and is_timed and each.line.m != last_timed.line.m else None
        rows.append(
            {
                "step": each.step,
                "span": span if iter_ms is not None else max(each.step - last_row.step, 1),
                "t": _finite(each.line.t),
                "m": _finite(each.line.m),
                "iter_ms": iter_ms,
                "samples": each.values.get("samples", workload.samples_per_step),
                "tokens": each.values.get("tokens", workload.tokens_per_step),
                "loss": each.values.get("loss"),
            }
        )
        last_row = each
        last_timed = each if is_timed else last_timed
    return rows


def _came_together(one: PrintedStep, later: PrintedStep | None) -> bool:
    return later is not None and math.isfinite(one.line.m) and later.line.m == one.line.m


def _iter_ms(before: PrintedStep, each: PrintedStep, span: int) -> float | None:
    if math.isfinite(each.line.m) and math.isfinite(before.line.m):
        return (each.line.m - before.line.m) * 1000 / span
    if "iter_ms" in each.values:
        return each.values["iter_ms"]
    return each.values["iter_s"] * 1000 if "iter_s" in each.values else None


def _held_pauses(reading: Reading, rows: list[Row], lines: Sequence[StampedLine]) -> list[tuple[int, str]]:
    """Steps in whose time the script did something else (evaluation, checkpoint), and what."""
    timed = [(each.at, each.step) for each, row in zip(reading.printed, rows, strict=True) if row["iter_ms"] is not None]
    first = reading.printed[0].at
    found: set[tuple[int, str]] = set()
    for name, pattern in PAUSE_LINES.get(reading.name, {}).items():
        compiled = re.compile(pattern)
        for at, line in enumerate(lines[first:], start=first):
            place = bisect.bisect_right(timed, (at, math.inf)) if compiled.search(plain(line.text)) else len(timed)
            if place < len(timed):
                found.add((timed[place][1], name))
    return sorted(found)


def _pause_table(held: list[tuple[int, str]]) -> pl.DataFrame:
    """How long they took is not known: only the whole row is."""
    return pl.DataFrame([(0, step, name, None) for step, name in held], schema=PAUSE_SCHEMA, orient="row")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _table(rows: list[Row], phases: dict[int, dict[str, float]]) -> pl.DataFrame:
    """Rank 0's rows, with the phases the seeds' lines give for some of them."""
    full = [{**row, "rank": 0, **phases.get(int(row["step"] or 0), {})} for row in rows]
    return pl.DataFrame(full, schema=STEP_SCHEMA)


def _other_ranks(seed: SeedReading, steps: set[float | int | None]) -> list[pl.DataFrame]:
    """Rows with phases only: no wall time is known of a rank that did not print the line."""
    rows = [
        {"rank": rank, "step": step, "span": 1, **values}
        for rank, by_step in sorted(seed.phases.items())
        if rank != 0
        for step, values in sorted(by_step.items())
        if step in steps
    ]
    return [pl.DataFrame(rows, schema=STEP_SCHEMA)] if rows else []
