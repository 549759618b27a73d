"""The steps of an attempt, from whichever source tells the most.

In: an attempt. Out: `StepTables`: from the probe's events if there is a step in them, else from the script's own lines, else empty
ones that say so: the run can then only be timed as a whole. With them comes whether the run was well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seatrial.collect.effective import read_effective
from seatrial.collect.events import empty_pauses, empty_steps, read_events_said
from seatrial.collect.health import read_health
from seatrial.collect.logs import read_logs
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.log_formats import READY
from seatrial.records.steps import StepTables


def read_steps(attempt: Attempt) -> StepTables:
    """Tables of the attempt's steps, never None."""
    tables = _read_tables(attempt)
    return replace(tables, health=read_health(attempt, tables.world_size))


def _read_tables(attempt: Attempt) -> StepTables:
    tables, cautions = read_events_said(attempt)
    if tables is not None:
        return tables
    if attempt.spec.workload.reads != "none":
        tables = read_logs(attempt)
    cautions = (*cautions, *_no_events(attempt), *(tables.cautions if tables else ()))
    found = _whole(attempt, cautions) if tables is None or tables.source == "whole" else replace(tables, cautions=cautions)
    # Events that tell no step may still tell what the settings came to.
    return replace(found, effective=read_effective(AttemptPaths(Path(attempt.folder)).events(0), attempt))


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
