"""What `criteria` can name, as text for a terminal: metrics with unit and scopes, ready sets with their bounds and reasons."""

from __future__ import annotations

from seatrial.errors import UsageError, did_you_mean
from seatrial.plan.ready_criteria import READY_CRITERIA, ReadyCriteria
from seatrial.plan.reference import bound_text
from seatrial.records.criteria_catalog import METRICS, REPORTED, MetricEntry
from seatrial.records.verdict import Criterion


def criteria_listing(name: str | None = None) -> str:
    """All of it, or the one metric or ready set of that name."""
    if name is None:
        return "\n".join(
            ["Metrics, `- {metric: NAME, at_most: BOUND}`", *_all_metrics(), "", "Ready criteria, `- {ready: NAME}`", *_all_sets()]
        )
    if name in METRICS:
        return "\n".join(_metric(name, METRICS[name]))
    if name in READY_CRITERIA:
        return "\n".join(_ready(name, READY_CRITERIA[name]))
    raise UsageError(f"no metric and no ready criteria are called '{name}'; {did_you_mean(name, [*METRICS, *READY_CRITERIA])}")


def criterion_line(criterion: Criterion) -> str:
    """`speedup_pct at least 20 % (winner) against mb8, from stage1_speedup_v100`."""
    against = f" against {criterion.baseline.text}" if criterion.baseline else ""
    source = f", from {criterion.ready}" if criterion.ready else ""
    return f"{criterion.metric} {bound_text(criterion)} ({criterion.scope}){against}{source}"


def _all_metrics() -> list[str]:
    lines = [line for name, entry in METRICS.items() for line in _metric(name, entry)]
    return [*lines, f"  {REPORTED}NAME (every_run)", "      what the workload told with probe.figure(NAME, …)"]


def _all_sets() -> list[str]:
    return [line for name, ready in READY_CRITERIA.items() for line in _ready(name, ready)]


def _metric(name: str, entry: MetricEntry) -> list[str]:
    unit = f" in {entry.unit}" if entry.unit and entry.unit != "ratio" else ""
    notes = [*(["takes no bound"] if not entry.needs_bound else []), *(["needs a baseline"] if entry.compares else [])]
    more = f" [{', '.join(notes)}]" if notes else ""
    # The scope that is taken when none is written comes first.
    scopes = [entry.default_scope, *(scope for scope in entry.scopes if scope != entry.default_scope)]
    return [f"  {name}{unit} ({', '.join(scopes)}){more}", f"      {entry.meaning}"]


def _ready(name: str, ready: ReadyCriteria) -> list[str]:
    baseline = " [needs a baseline]" if ready.compares else ""
    gates = [f"      {gate.metric} {bound_text(gate)} ({gate.scope}): {gate.reason}" for gate in ready.criteria]
    return [f"  {name}{baseline}: {ready.meaning}", *gates]
