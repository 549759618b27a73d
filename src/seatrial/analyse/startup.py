"""Where the time before the first result went.

In: an attempt and its step tables. Out: seconds by part (records.events.STARTUP_PARTS), of the rank whose first step ended last. They
add up to `startup_s`, launch to the end of that step:

    launch        the harness's start of the launcher → this rank's process
    import        process → its probe: Python, imports, whatever the script does before it makes one
    process_group, model, data, tokenise, compile     as the workload names them
    first_step    the first step's own time
    other         what none of these explains
"""

from __future__ import annotations

import numpy as np

from seatrial.records.attempt import Attempt
from seatrial.records.events import SPANS, STARTUP_PARTS
from seatrial.records.steps import StartupFacts, StepTables

CLOCK_SLACK_S = 1.0
"""By how much a part of the run may seem longer than the run, as two clocks tell it."""


def startup_split(attempt: Attempt, tables: StepTables) -> dict[str, float]:
    """The parts; {} where the workload has no probe, told no step, or the clock was set. A part that is not known is not there."""
    facts, outcome = tables.startup, attempt.outcome
    if facts is None or tables.steps.is_empty() or outcome is None or not outcome.started_t:
        return {}
    at = int(np.argmax(tables.steps["rank"].to_numpy() == facts.rank))
    first = {name: tables.steps[name][at] for name in ("t", "m", "iter_ms")}
    if first["t"] is None or first["m"] is None or not 0 <= first["t"] - outcome.started_t <= outcome.duration_s + CLOCK_SLACK_S:
        return {}
    begin_m = first["m"] - (first["iter_ms"] or 0.0) / 1000.0
    parts = {"first_step": max(0.0, first["m"] - begin_m - _inside(facts, begin_m)), **_spans(facts)}
    if facts.process_t is not None:
        parts |= {"import": facts.start_t - facts.process_t, "launch": facts.process_t - outcome.started_t}
    return _within(parts, first["t"] - outcome.started_t)


def _spans(facts: StartupFacts) -> dict[str, float]:
    told = {name for name, _, _ in facts.spans}
    return {part: sum(span_s for name, span_s, _ in facts.spans if name == part) for part in SPANS if part in told}


def _inside(facts: StartupFacts, begin_m: float) -> float:
    """Time of named parts that lie in the first step itself, where a compiler runs at the first call: it is theirs."""
    return sum(min(span_s, max(0.0, end_m - begin_m)) for name, span_s, end_m in facts.spans if end_m > begin_m)


def _within(parts: dict[str, float], total_s: float) -> dict[str, float]:
    """The parts in their order, none negative, and `other` as the rest of `total_s`.

    Steps and spans are timed on one monotonic clock and come first; launch and import are differences of wall clocks, which may be
    corrected in between, and are cut to what is left.
    """
    left_s, kept = total_s, {}
    for part, value_s in parts.items():
        kept[part] = min(max(0.0, value_s), left_s)
        left_s -= kept[part]
    kept["other"] = left_s
    return {part: round(kept[part], 6) for part in STARTUP_PARTS if part in kept}
