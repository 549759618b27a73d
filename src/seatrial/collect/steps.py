"""The steps of an attempt, from whichever source tells the most.

In: an attempt. Out: `StepTables`: from the probe's events if there is a step in them, else from the script's own lines, else empty
ones that say so: the run can then only be timed as a whole. With them comes whether the run was well, where its ranks ran, what of
debugging was on, what else says of itself that it is slow, and the figures that the workload told itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from seatrial.collect.debug_settings import debug_of_signs, read_debug_settings
from seatrial.collect.events.effective import read_effective
from seatrial.collect.events.places import read_places
from seatrial.collect.events.reported import read_reported
from seatrial.collect.events.startup import read_broken_startup
from seatrial.collect.events.tables import read_events
from seatrial.collect.health import read_health
from seatrial.collect.logs.tables import read_logs
from seatrial.collect.slow_signs import read_slow_signs
from seatrial.collect.step_schema import empty_pauses, empty_steps
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.log_formats import READY
from seatrial.records.steps import StepTables


def read_steps(attempt: Attempt, ahead: Mapping[Path, pl.DataFrame] | None = None) -> StepTables:
    """Tables of the attempt's steps, never None; `ahead` are tables of event files that have been read already."""
    tables = _read_tables(attempt, ahead)
    signs = read_slow_signs(attempt, tables.effective)
    debug = read_debug_settings(attempt, tables.effective)
    return replace(
        tables,
        health=read_health(attempt, tables.world_size),
        slow_signs=signs,
        debug=(*debug, *debug_of_signs(signs, debug)),
    )


def _read_tables(attempt: Attempt, ahead: Mapping[Path, pl.DataFrame] | None) -> StepTables:
    tables, cautions = read_events(attempt, ahead)
    if tables is not None:
        return tables
    if attempt.spec.workload.reads != "none":
        tables = read_logs(attempt)
    cautions = (*cautions, *_no_events(attempt), *(tables.cautions if tables else ()))
    found = _whole(attempt, cautions) if tables is None or tables.source == "whole" else replace(tables, cautions=cautions)
    return _with_rest_of_events(found, attempt)


def _with_rest_of_events(tables: StepTables, attempt: Attempt) -> StepTables:
    """Events that tell no step may still tell what the settings came to, how far the start-up came, where the ranks are, and figures of
    the workload's own."""
    sources = AttemptPaths(Path(attempt.folder)).all_events()
    if not sources:
        return tables
    return replace(
        tables,
        effective=read_effective(AttemptPaths(Path(attempt.folder)).events(0), attempt),
        startup=read_broken_startup(attempt, sources) if tables.steps.is_empty() else tables.startup,
        places=read_places(sources, attempt),
        reported=read_reported(sources, attempt),
    )


def _no_events(attempt: Attempt) -> Iterator[Caution]:
    """A rank that sends heartbeats has the probe, and with it events."""
    paths = AttemptPaths(Path(attempt.folder))
    if paths.all_heartbeats():
        found = "tell no step" if paths.all_events() else "are missing"
        yield Caution(
            kind="no_events",
            subject=attempt.spec.run,
            text=f"The workload has the probe, but its events_rank*.jsonl {found}: what is said of its steps is what launcher.log tells.",
        )


def _whole(attempt: Attempt, cautions: tuple[Caution, ...]) -> StepTables:
    return StepTables(
        source="whole",
        steps=empty_steps(),
        pauses=empty_pauses(),
        world_size=attempt.spec.place.ranks,
        cautions=(*cautions, Caution(kind="whole_run_only", subject=attempt.spec.run, text=_advice(attempt))),
    )


def _advice(attempt: Attempt) -> str:
    reads, patterns = attempt.spec.workload.reads, attempt.spec.workload.patterns
    if reads == "none" and not patterns:
        return "Only the length of the whole run is known, as the plan asks (`reads: none`)."
    if patterns:
        looked = "no growing step numbers that the plan's patterns find"
    elif reads == "auto":
        looked = f"no growing step numbers that a known format finds ({', '.join(READY)})"
    else:
        looked = f"no growing step numbers that the format '{reads}' finds"
    return (
        f"The script printed {looked}, so only the length of the whole run is known; give a pattern with a group named step "
        "(workload.patterns), or put three lines of the probe into the training loop."
    )
