"""The steps of an attempt, from whichever source tells the most.

In: an attempt. Out: `StepTables`: from the probe's events if there is a step in them, else from the script's own lines, else empty
ones that say so: the run can then only be timed as a whole.
"""

from __future__ import annotations

from seatrial.collect.events import empty_pauses, empty_steps, read_events
from seatrial.collect.logs import read_logs
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.log_formats import READY
from seatrial.records.steps import StepTables


def read_steps(attempt: Attempt) -> StepTables:
    """Tables of the attempt's steps, never None."""
    tables = read_events(attempt)
    if tables is None and attempt.spec.workload.reads != "none":
        tables = read_logs(attempt)
    return tables or _whole(attempt)


def _whole(attempt: Attempt) -> StepTables:
    return StepTables(
        source="whole",
        steps=empty_steps(),
        pauses=empty_pauses(),
        world_size=attempt.spec.place.ranks,
        cautions=(Caution(kind="whole_run_only", subject=attempt.spec.run, text=_advice(attempt)),),
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
