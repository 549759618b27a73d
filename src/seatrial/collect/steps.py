"""The step tables of an attempt: from the probe's events if they hold a step, else from the script's own lines, else empty.

In: an attempt. Out: `StepTables`, with health, effective settings, places of ranks, debug settings, signs of slowness and reported figures.
`read_ahead` reads the small files of many attempts in batches.

Times from a log are those of arrival: a script's own figures for its speed are used only where no arrivals were kept. Lines that came in
one chunk were printed before it came, so only the last of them has a time and its span covers the others. The first row of an epoch has no
time, since the number of steps since the row before is unknown.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from seatrial.collect.communicators import communicator_cautions, effective_backend, read_process_groups
from seatrial.collect.effective_settings import read_effective
from seatrial.collect.event_steps import PAUSE_SCHEMA, STEP_SCHEMA, empty_pauses, empty_steps, read_event_steps, steps_on_harness_clock
from seatrial.collect.events import (
    read_broken_startup,
    read_event_batch,
    read_rank_locations,
    read_reported_figures,
)
from seatrial.collect.logs.bounded_lines import LineIndex
from seatrial.collect.logs.launcher_log import (
    LARGEST_LOG_BYTES,
    LogText,
    Stage1Reading,
    StampedLine,
    read_log,
    read_rank_lines,
    read_stage1_lines,
)
from seatrial.collect.logs.script_header import (
    HEADER_KEYWORDS,
    RankCount,
    ScriptHeader,
    StepWork,
    count_ranks,
    read_header,
    work_cautions,
    work_of_a_step,
)
from seatrial.collect.logs.steps import OWN, PrintedStep, Reading, best_reading, count_losses
from seatrial.collect.run_health import debug_of_signs, read_debug_settings, read_health, read_slow_signs
from seatrial.collect.telemetry import GPU_READ, HOST_READ, Samples, read_sample_batch
from seatrial.core.files import open_file
from seatrial.core.log_lines import KEYWORDS, LOG_FORMATS, PAUSE, PAUSE_LINES, STEP_AND_LOSS, LinePattern, strip_colours, timed_patterns
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import MIB, count, count_were, format_bytes
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import STEPS_START_OVER, Caution
from seatrial.records.launch import ObservedRanks
from seatrial.records.plan import WorkloadSpec
from seatrial.records.stored import read_record

LARGEST_BATCHED_BYTES = MIB
"""For larger files polars' start-up time does not matter."""
BATCH_BYTES = MIB
"""Longer text is not read faster and takes more memory."""
# Beyond this share of rows with a pause, leaving them out would leave nothing to measure.
MAX_PAUSED_SHARE = 0.5
# Beyond this share of untimed lines the script's output is buffered, and single steps cannot be seen.
BUFFERED_SHARE = 0.5
Row = dict[str, float | int | None]


@dataclass(frozen=True, kw_only=True)
class ReadAhead:
    """Files that were read already, by path."""

    events: Mapping[Path, pl.DataFrame] = field(default_factory=dict)
    samples: Mapping[Path, Samples] = field(default_factory=dict)
    log_index: LineIndex | None = None
    """Index of launcher.log, if it was followed while it grew."""


NOTHING = ReadAhead()


def read_ahead(attempts: Sequence[Attempt]) -> ReadAhead:
    """Small files of attempts that are over, in batches: events of those with one rank (several ranks' files are read together anyway)
    and telemetry. polars takes a third of a millisecond per file of any size, and a campaign has thousands of small ones. A large,
    truncated or odd file is left out, if need be with its batch, and read separately."""
    over = [(attempt, AttemptPaths(Path(attempt.folder))) for attempt in attempts if attempt.outcome is not None]
    gpu = [paths.gpu_telemetry for attempt, paths in over if attempt.telemetry and attempt.telemetry.gpu]
    host = [paths.host_telemetry for attempt, paths in over if attempt.telemetry and attempt.telemetry.host]
    events = [paths.events(0) for attempt, paths in over if attempt.spec.place.ranks == 1]
    samples: dict[Path, Samples] = {}
    for files, columns in ((gpu, GPU_READ), (host, HOST_READ)):
        for texts in _batches(files):
            samples |= read_sample_batch(texts, columns)
    tables = {path: table for texts in _batches(events) for path, table in read_event_batch(texts).items()}
    return ReadAhead(events=tables, samples=samples)


def _batches(paths: Sequence[Path]) -> Iterator[dict[Path, bytes]]:
    """Small files that end with a newline, up to BATCH_BYTES at once."""
    batch: dict[Path, bytes] = {}
    size = 0
    for path in paths:
        text = _read_small(path)
        if text.endswith(b"\n"):
            batch[path] = text
            size += len(text)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = {}, 0
    if batch:
        yield batch


def _read_small(path: Path) -> bytes:
    """Empty for a large file, and for one that cannot be read."""
    with contextlib.suppress(OSError), open_file(path) as source:
        return source.read() if os.fstat(source.fileno()).st_size <= LARGEST_BATCHED_BYTES else b""
    return b""


def read_steps(attempt: Attempt, ahead: ReadAhead = NOTHING) -> StepTables:
    """The attempt's step tables, possibly empty; `ahead` is what was read already."""
    tables = _read_tables(attempt, ahead)
    groups = read_process_groups(attempt)
    communicators = groups.communicators
    tables = replace(
        tables,
        effective={**effective_backend(attempt, communicators), **tables.effective},
        cautions=(*tables.cautions, *communicator_cautions(attempt, groups, max(attempt.spec.place.ranks, tables.world_size))),
    )
    signs = read_slow_signs(attempt, tables.effective)
    debug = read_debug_settings(attempt, tables.effective)
    return replace(
        tables,
        cautions=tuple(replace(caution, subject=attempt.spec.run) for caution in tables.cautions),
        health=read_health(attempt, tables.world_size, ahead.log_index),
        communicators=communicators,
        slow_signs=signs,
        debug=(*debug, *debug_of_signs(signs, debug)),
    )


def _read_tables(attempt: Attempt, ahead: ReadAhead) -> StepTables:
    tables, cautions = read_event_steps(attempt, ahead.events)
    if tables is not None:
        return _with_printed_work(tables, attempt, ahead.log_index)
    if attempt.spec.workload.reads != "none":
        tables = read_log_steps(attempt, ahead.log_index)
    cautions = (*cautions, *_missing_events(attempt), *(tables.cautions if tables else ()))
    if tables is None or tables.source == "whole":
        advice = Caution(kind="whole_run_only", text=_no_steps_advice(attempt))
        return _with_other_events(_without_steps(attempt, (*cautions, advice)), attempt)
    return _with_other_events(replace(tables, cautions=cautions), attempt)


def _with_printed_work(tables: StepTables, attempt: Attempt, index: LineIndex | None) -> StepTables:
    """For a script whose events report neither samples nor tokens: the work that it prints about itself."""
    workload, steps = attempt.spec.workload, tables.steps
    typed = (workload.samples_per_step, workload.tokens_per_step)
    is_reported = any(steps[name].null_count() < len(steps) for name in ("samples", "tokens"))
    if workload.script is None or workload.reads == "none" or is_reported or typed != (None, None):
        return tables
    paths = AttemptPaths(Path(attempt.folder))
    header = read_header(read_log(paths.launcher_log, paths.arrivals, HEADER_KEYWORDS, index).lines)
    ranks = RankCount(size=tables.world_size)
    work = work_of_a_step(workload, ranks, header).of_line({})
    filled = steps.with_columns(*(pl.lit(value, dtype=pl.Float64).alias(name) for name, value in work.items()))
    return replace(tables, steps=filled, cautions=(*tables.cautions, *work_cautions(workload, ranks, header)))


def _with_other_events(tables: StepTables, attempt: Attempt) -> StepTables:
    """Event files without a step may still report effective settings, the start-up, places of ranks and figures."""
    paths = AttemptPaths(Path(attempt.folder))
    sources = paths.all_events()
    if not sources:
        return tables
    return replace(
        tables,
        effective=read_effective(sources, attempt),
        startup=read_broken_startup(attempt, sources) if tables.steps.is_empty() else tables.startup,
        locations=read_rank_locations(sources, attempt),
        reported=read_reported_figures(sources, attempt),
    )


def _missing_events(attempt: Attempt) -> Iterator[Caution]:
    """A rank that sends heartbeats has the probe, and with it events."""
    paths = AttemptPaths(Path(attempt.folder))
    if paths.all_heartbeats():
        found = "hold no step" if paths.all_events() else "are missing"
        yield Caution(
            kind="no_events",
            text=f"The workload has the probe, but its events_rank*.jsonl {found}: steps were read from launcher.log instead.",
        )


def _without_steps(attempt: Attempt, cautions: Sequence[Caution]) -> StepTables:
    ranks = _ranks(attempt, ScriptHeader())
    return StepTables(
        source="whole",
        steps=empty_steps(),
        pauses=empty_pauses(),
        world_size=ranks.size,
        ranks_known=ranks.is_known,
        cautions=tuple(cautions),
    )


def _ranks(attempt: Attempt, header: ScriptHeader) -> RankCount:
    observed, _ = read_record(ObservedRanks, AttemptPaths(Path(attempt.folder)).observed_ranks)
    return count_ranks(attempt.spec, observed, header)


def _no_steps_advice(attempt: Attempt) -> str:
    reads, patterns = attempt.spec.workload.reads, attempt.spec.workload.patterns
    if reads == "none" and not patterns:
        return "Only the length of the whole run is known, as the plan asks (`reads: none`)."
    if patterns:
        by = "by the plan's patterns"
    elif reads == "auto":
        by = f"by any known format ({', '.join(LOG_FORMATS)})"
    else:
        by = f"by the format '{reads}'"
    return (
        f"No increasing step numbers were found in the output {by}, so only the length of the whole run is known. Give a pattern with a "
        "group named step (workload.patterns), or add three lines of the probe to the training loop."
    )


def read_log_steps(attempt: Attempt, index: LineIndex | None = None) -> StepTables | None:
    """Steps from the attempt's output, source `log:NAME`; None where it holds fewer than two and there is nothing to report."""
    paths, spec = AttemptPaths(Path(attempt.folder)), attempt.spec
    text = read_log(paths.launcher_log, paths.arrivals, () if spec.workload.patterns else KEYWORDS, index)
    lines = text.lines
    found, cautions = best_reading(lines, spec.workload, spec.steps)
    cautions = [*log_file_cautions(text), *cautions]
    if found is None:
        if spec.workload.reads in ("auto", "hf_trainer"):
            cautions += unplaced_loss_cautions(count_losses(lines))
        return _without_steps(attempt, cautions) if cautions else None
    stage1 = read_stage1_lines(lines) if found.name == "seed" else read_rank_lines(lines)
    header = read_header(lines) if found.name != "seed" else ScriptHeader()
    ranks = _ranks(attempt, header)
    rows = _rows(found.printed, work_of_a_step(spec.workload, ranks, header))
    if found.printed is not found.numbered.series[0]:
        # The first line of a later series is not the end of the start-up.
        rows[0]["t"] = None
    pauses = _pauses(found, rows, lines, spec.workload)
    timed = {row["step"] for row in rows if row["iter_ms"] is not None}
    too_many_pauses = len({step for step, _ in pauses} & timed) > MAX_PAUSED_SHARE * len(timed)
    tables = [_rank0_table(rows, stage1.phases.get(0, {})), *_other_ranks(stage1, {row["step"] for row in rows})]
    return StepTables(
        source=f"log:{found.name}",
        # Lines arrive by the clock of node 0, and rows are rank 0's.
        steps=steps_on_harness_clock(pl.concat(tables), attempt.nodes),
        # Their lengths are unknown: only the time of the whole row is known.
        pauses=pl.DataFrame([] if too_many_pauses else [(0, step, name, None) for step, name in pauses], schema=PAUSE_SCHEMA, orient="row"),
        world_size=ranks.size,
        ranks_known=ranks.is_known,
        timing_points=stage1.points,
        eta_points=stage1.eta_points,
        cautions=(
            *cautions,
            *work_cautions(spec.workload, ranks, header),
            *reading_cautions(found),
            *log_time_cautions(rows, restarts=found.numbered.restarts, pauses_count=too_many_pauses),
        ),
    )


def _rows(printed: list[PrintedStep], work: StepWork) -> list[Row]:
    """Rows of the step table, without rank and phases."""
    rows: list[Row] = []
    # The step that the next time is counted from; None before the first chunk and across the end of an epoch.
    base: PrintedStep | None = None
    last = printed[0]
    for each, later in zip(printed, [*printed[1:], None], strict=True):
        came_with_later = later is not None and math.isfinite(each.line.m) and later.line.m == each.line.m
        base = None if each.restarts or each.line.part != last.line.part else base
        iter_ms = _iter_ms(base, each) if base and not came_with_later else None
        rows.append(
            {
                "step": each.step,
                "span": each.step - base.step if base and iter_ms is not None else max(each.step - last.step, 1),
                "t": each.line.t if math.isfinite(each.line.t) else None,
                "m": each.line.m if math.isfinite(each.line.m) else None,
                "iter_ms": iter_ms,
                **work.of_line(each.values),
                "loss": each.values.get("loss"),
            }
        )
        last = each
        base = base if came_with_later else each
    return rows


def _iter_ms(before: PrintedStep, each: PrintedStep) -> float | None:
    if math.isfinite(each.line.m) and math.isfinite(before.line.m):
        return (each.line.m - before.line.m) * 1000 / (each.step - before.step)
    if "iter_ms" in each.values:
        return each.values["iter_ms"]
    return each.values["iter_s"] * 1000 if "iter_s" in each.values else None


def _pauses(reading: Reading, rows: list[Row], lines: Sequence[StampedLine], workload: WorkloadSpec) -> list[tuple[int, str]]:
    """Steps in whose time the script did something else (evaluation, checkpoint), and what."""
    # A pause between two epochs falls to the new one's first row, which has no time.
    ends = [(each.at, each.step) for each, row in zip(reading.printed, rows, strict=True) if row["iter_ms"] is not None or each.restarts]
    first = reading.printed[0].at
    found: set[tuple[int, str]] = set()
    for name, pattern in _pause_patterns(reading.name, workload):
        for number, line in enumerate(lines[first:], start=first):
            index = bisect.bisect_right(ends, (number, math.inf)) if _shows_pause(pattern, line.text) else len(ends)
            if index < len(ends):
                found.add((ends[index][1], name))
    return sorted(found)


def _pause_patterns(name: str, workload: WorkloadSpec) -> Iterator[tuple[str, LinePattern]]:
    """The format's pause patterns (those of all formats for an unknown one) and the plan's that name a pause."""
    formats = PAUSE_LINES.values() if name in (OWN, STEP_AND_LOSS.name) else [PAUSE_LINES.get(name, {})]
    for by_name in formats:
        yield from ((pause, re.compile(pattern)) for pause, pattern in by_name.items())
    if name == OWN:
        yield from ((PAUSE, pattern) for pattern in timed_patterns(workload.patterns) if PAUSE in pattern.groupindex)


def _shows_pause(pattern: LinePattern, text: str) -> bool:
    match = pattern.search(strip_colours(text))
    return match is not None and (PAUSE not in pattern.groupindex or match[PAUSE] is not None)


def _rank0_table(rows: list[Row], phases: dict[int, dict[str, float]]) -> pl.DataFrame:
    """Rank 0's rows, with the phases stage 1's lines give for some of them."""
    full = [{**row, "rank": 0, **phases.get(int(row["step"] or 0), {})} for row in rows]
    return pl.DataFrame(full, schema=STEP_SCHEMA)


def _other_ranks(stage1: Stage1Reading, steps: set[float | int | None]) -> list[pl.DataFrame]:
    """Rows with phases only: the wall time of the other ranks is unknown."""
    rows = [
        {"rank": rank, "step": step, "span": 1, **values}
        for rank, by_step in sorted(stage1.phases.items())
        if rank != 0
        for step, values in sorted(by_step.items())
        if step in steps
    ]
    return [pl.DataFrame(rows, schema=STEP_SCHEMA)] if rows else []


def log_time_cautions(rows: Sequence[Row], *, restarts: int = 0, pauses_count: bool = False) -> Iterator[Caution]:
    """Limits of the times in rows that were read from a log."""
    timed = [row for row in rows if row["iter_ms"] is not None]
    spans = sorted(int(row["span"] or 1) for row in timed)
    # By printed numbers: where lines came together, a time spans several of them too.
    grown = [later - one for one, later in itertools.pairwise(int(row["step"] or 0) for row in rows) if later > one]
    interval = statistics.median_low(grown) if grown else 1
    may_be_timed = len(rows) - 1 - restarts
    if rows[0]["m"] is None:
        text = "No arrival times were kept for this output, so step times are those the script printed, if any."
        yield Caution(kind="times_from_text", text=text)
    elif may_be_timed - len(timed) > BUFFERED_SHARE * may_be_timed:
        yield Caution(
            kind="buffered_output",
            numbers={"lines": len(rows), "timed": len(timed)},
            text="Most step lines came together with later ones, so single steps cannot be seen. If the script buffers its output, print "
            "with flush=True; if it does not, the host is too busy to pass lines on one by one.",
        )
    if spans and interval > 1:
        yield Caution(
            kind="steps_between_lines",
            numbers={"median_span": spans[len(spans) // 2], "longest_span": spans[-1]},
            text="The script does not print every step, so each time is an average over the steps between two lines, and p90 is that of "
            "averages. Print every step or use the probe to see single steps.",
        )
    if pauses_count:
        yield Caution(
            kind="pauses_counted",
            text="The script evaluates or saves between most of its step lines, so that time is in the step times. Print more often than "
            "it evaluates, or name the pauses with the probe.",
        )


def unplaced_loss_cautions(num_losses: int) -> Iterator[Caution]:
    """Losses of a Trainer without its bar whose last line is missing: numbering them would make up steps."""
    if num_losses:
        lines = "1 line has a loss" if num_losses == 1 else f"{num_losses} lines have a loss"
        yield Caution(
            kind="losses_without_steps",
            numbers={"lines": num_losses},
            text=f"{lines} but no step, and the Trainer's last line ('train_runtime') is missing, so neither steps nor losses were read. "
            "Leave its progress bar on (disable_tqdm=False), or add the probe's callback.",
        )


def log_file_cautions(text: LogText) -> Iterator[Caution]:
    """Parts of launcher.log and its arrival times that could not be read."""
    if text.problem:
        yield Caution(kind="unreadable_file", text=f"launcher.log could not be read ({text.problem}) and was skipped.")
    if text.arrivals.problem:
        unread = f"launcher_arrivals.csv could not be read ({text.arrivals.problem}), so arrival times are unknown."
        yield Caution(kind="unreadable_file", text=unread)
    if text.arrivals.num_skipped:
        yield Caution(
            kind="bad_rows",
            numbers={"rows": text.arrivals.num_skipped},
            text=f"In launcher_arrivals.csv {count_were(text.arrivals.num_skipped, 'row')} skipped: damaged, duplicate, or in "
            "conflict with others.",
        )
    if text.left_out_bytes:
        size = format_bytes(LARGEST_LOG_BYTES + text.left_out_bytes)
        yield Caution(
            kind="large_log",
            numbers={"left_out_bytes": text.left_out_bytes},
            text=f"launcher.log has {size}; only the first and the last {format_bytes(LARGEST_LOG_BYTES // 2)} were read. Steps printed in "
            "between are not counted: print less, or use the probe.",
        )


def reading_cautions(reading: Reading) -> Iterator[Caution]:
    """What was left out of the lines, and what their step numbers do not show."""
    numbered = reading.numbered
    if reading.spread_over is not None:
        yield Caution(
            kind="steps_spread",
            numbers={"steps": reading.spread_over, "lines": len(numbered.printed)},
            text=f"The Trainer's lines have no step, and its epochs are rounded to more than a step: its {reading.spread_over} steps were "
            "spread evenly over them, so which loss belongs to which step is approximate. Leave its progress bar on (disable_tqdm=False), "
            "or add the probe's callback.",
        )
    if reading.bar is not None and reading.bar.left_out:
        left_out = ", ".join("?" if total is None else str(total) for total in reading.bar.left_out)
        read = "?" if reading.bar.total is None else str(reading.bar.total)
        yield Caution(
            kind="other_bars",
            numbers={"read": read, "left_out": left_out},
            text=f"The output has several progress bars: the one of {read} was read as the training, others (of {left_out}) were left out. "
            "If that is the wrong one, give a pattern that matches the training's lines only (workload.patterns).",
        )
    if numbered.num_late:
        late = f"{count(numbered.num_late, 'line')} with an earlier step number {'was' if numbered.num_late == 1 else 'were'}"
        kept = " As they are many, only increasing numbers were kept: later epochs, if any, are not read." * numbered.increasing_only
        yield Caution(
            kind="steps_out_of_order",
            numbers={"passed_over": numbered.num_late, "lines": numbered.lines},
            text=f"{late} skipped; several processes seem to print without a rank prefix: print from rank 0 only, or start through "
            f"torchrun.{kept}",
        )
    if numbered.num_started_over:
        times = "once" if numbered.num_started_over == 1 else f"{numbered.num_started_over} times"
        counted = numbered.printed
        yield Caution(
            kind=STEPS_START_OVER,
            numbers={"started_over": numbered.num_started_over, "first": counted[0].number, "last": counted[-1].number},
            text=f"The script's step numbers start over {times}, and no line names an epoch: whether that is the next epoch or the same "
            f"training again is not known. Only the longest series counts, {counted[0].number:,} to {counted[-1].number:,}. Print the "
            "epoch, or a number that goes on.",
        )
    if numbered.restarts:
        times = "once" if numbered.restarts == 1 else f"{numbered.restarts} times"
        yield Caution(
            kind="steps_restart",
            numbers={"restarts": numbered.restarts},
            text=f"The script's step numbers restart {times}, as with a new epoch: steps are counted on, and the first line of each new "
            "epoch has no time, since the steps before it are unknown.",
        )
