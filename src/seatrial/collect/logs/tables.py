"""Steps of a script that knows nothing of Seatrial, from the lines it prints.

In: an attempt's launcher.log with its arrivals. Out: `StepTables` with source `log:NAME` (one row a printed step, `span` steps
long), or None when no known format finds two steps.

Times are those of arrival: what a script says of its own speed is not taken, unless no arrivals were kept. Lines that came in one
chunk were printed before it came, so only the last of them has a time; the steps of the others are in its span. The first row of
an epoch has no time, since how many steps it took since the row before is not known.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from seatrial.collect.hosts.one_clock import steps_on_one_clock
from seatrial.collect.logs.cautions import log_cautions, reading_cautions, source_cautions, unplaced_losses
from seatrial.collect.logs.hf_lines import count_losses
from seatrial.collect.logs.readings import OWN, Reading, best_reading
from seatrial.collect.logs.seed_lines import SeedReading, read_rank_lines, read_seed_lines
from seatrial.collect.logs.source import StampedLine, read_log
from seatrial.collect.logs.step_numbers import PrintedStep
from seatrial.collect.step_schema import PAUSE_SCHEMA, STEP_SCHEMA, empty_pauses, empty_steps
from seatrial.log_lines import LinePattern, own_patterns, plain
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.log_formats import PAUSE, PAUSE_LINES, TELLING
from seatrial.records.run_spec import WorkloadSpec
from seatrial.records.steps import StepTables

MOST_PAUSES = 0.5
Row = dict[str, float | int | None]


def read_logs(attempt: Attempt) -> StepTables | None:
    """The steps the attempt's own output tells of, None when it tells of fewer than two."""
    paths, spec = AttemptPaths(Path(attempt.folder)), attempt.spec
    telling = () if spec.workload.patterns else TELLING
    text = read_log(paths.launcher_log, paths.arrivals, telling)
    lines = text.lines
    found, cautions = best_reading(lines, spec)
    cautions = [*source_cautions(text, spec.run), *cautions]
    if found is None:
        cautions += unplaced_losses(count_losses(lines), spec.run) if spec.workload.reads in ("auto", "hf_trainer") else ()
        return _without_steps(attempt, cautions) if cautions else None
    seed = read_seed_lines(lines) if found.name == "seed" else read_rank_lines(lines)
    rows = _rows(found.printed, spec.workload)
    held = _held_pauses(found, rows, lines, spec.workload)
    timed = {row["step"] for row in rows if row["iter_ms"] is not None}
    # Where most rows hold a pause, leaving them out would leave nothing to measure.
    too_many = len({step for step, _ in held} & timed) > MOST_PAUSES * len(timed)
    odd = (*reading_cautions(found, spec.run), *log_cautions(rows, spec.run, restarts=found.numbered.restarts, pauses_count=too_many))
    return StepTables(
        source=f"log:{found.name}",
        # Lines arrive by the clock of node 0, and rows are rank 0's.
        steps=steps_on_one_clock(
            pl.concat([_table(rows, seed.phases.get(0, {})), *_other_ranks(seed, {row["step"] for row in rows})]), attempt.nodes
        ),
        pauses=_pause_table([] if too_many else held),
        world_size=spec.place.ranks,
        timing_points=seed.points,
        eta_points=seed.eta_points,
        cautions=(*cautions, *odd),
    )


def _without_steps(attempt: Attempt, cautions: list[Caution]) -> StepTables:
    return StepTables(
        source="whole",
        steps=empty_steps(),
        pauses=empty_pauses(),
        world_size=attempt.spec.place.ranks,
        cautions=tuple(cautions),
    )


def _rows(printed: list[PrintedStep], workload: WorkloadSpec) -> list[Row]:
    """Rows of the step table, ranks and phases still missing."""
    rows: list[Row] = []
    # What the next time is taken from: nothing before the first chunk, nor over the end of an epoch.
    base: PrintedStep | None = None
    last = printed[0]
    for each, later in zip(printed, [*printed[1:], None], strict=True):
        is_timed = not _came_together(each, later)
        base = None if each.restarts or each.line.part != last.line.part else base
        iter_ms = _iter_ms(base, each) if base and is_timed else None
        rows.append(
            {
                "step": each.step,
                "span": each.step - base.step if base and iter_ms is not None else max(each.step - last.step, 1),
                "t": _finite(each.line.t),
                "m": _finite(each.line.m),
                "iter_ms": iter_ms,
                "samples": each.values.get("samples", workload.samples_per_step),
                "tokens": each.values.get("tokens", workload.tokens_per_step),
                "loss": each.values.get("loss"),
            }
        )
        last = each
        base = each if is_timed else base
    return rows


def _came_together(one: PrintedStep, later: PrintedStep | None) -> bool:
    return later is not None and math.isfinite(one.line.m) and later.line.m == one.line.m


def _iter_ms(before: PrintedStep, each: PrintedStep) -> float | None:
    if math.isfinite(each.line.m) and math.isfinite(before.line.m):
        return (each.line.m - before.line.m) * 1000 / (each.step - before.step)
    if "iter_ms" in each.values:
        return each.values["iter_ms"]
    return each.values["iter_s"] * 1000 if "iter_s" in each.values else None


def _held_pauses(reading: Reading, rows: list[Row], lines: Sequence[StampedLine], workload: WorkloadSpec) -> list[tuple[int, str]]:
    """Steps in whose time the script did something else (evaluation, checkpoint), and what."""
    # A pause between two epochs falls to the new one's first row, which has no time.
    marks = [(each.at, each.step) for each, row in zip(reading.printed, rows, strict=True) if row["iter_ms"] is not None or each.restarts]
    first = reading.printed[0].at
    found: set[tuple[int, str]] = set()
    for name, compiled in _pause_lines(reading.name, workload):
        for at, line in enumerate(lines[first:], start=first):
            place = bisect.bisect_right(marks, (at, math.inf)) if _shows_pause(compiled, line.text) else len(marks)
            if place < len(marks):
                found.add((marks[place][1], name))
    return sorted(found)


def _pause_lines(name: str, workload: WorkloadSpec) -> Iterator[tuple[str, LinePattern]]:
    """Expressions that show a pause: of own patterns those that name one, and what any known script prints."""
    formats = PAUSE_LINES.values() if name == OWN else [PAUSE_LINES.get(name, {})]
    for by_name in formats:
        yield from ((pause, re.compile(pattern)) for pause, pattern in by_name.items())
    if name == OWN:
        yield from ((PAUSE, pattern) for pattern in own_patterns(workload.patterns) if PAUSE in pattern.groupindex)


def _shows_pause(pattern: LinePattern, text: str) -> bool:
    match = pattern.search(plain(text))
    return match is not None and (PAUSE not in pattern.groupindex or match[PAUSE] is not None)


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
