"""What fits where a group ran out of memory.

In: every measured run of a campaign. Out: one caution (`what_fits`) for each group that ended for want of memory, GPU or host, and that has
a neighbour which ended ok: along each numeric axis, all else equal, the largest value below that ended ok (where none did, the nearest
above: more sharing takes less), its peak memory, and a value between the two that could be tried. Nothing where nothing fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution, Number
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import MeasuredRun

PEAKS = {
    Cause.CUDA_OOM: ("gpu_mem_peak_mib", "GPU"),
    Cause.HOST_OOM: ("host_rss_peak_mib", "host"),
    Cause.MEMORY_LIMIT: ("host_rss_peak_mib", "host"),
}
"""Ends for want of memory → the figure that shows how much a run took, and whose memory it is."""


@dataclass
class _Group:
    """What is known of one configuration."""

    attempt: Attempt
    cause: Cause | None = None
    """Why a run of it ended for want of memory; None where none did."""
    ok: list[MeasuredRun] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        return bool(self.ok) and self.cause is None


def what_fits(runs: Sequence[MeasuredRun]) -> list[Caution]:
    """One caution for each group without enough memory, in the order in which the groups first appear."""
    groups = _groups(runs)
    cautions = (_caution(group, list(groups.values())) for group in groups.values() if group.cause is not None)
    return [caution for caution in cautions if caution is not None]


def _groups(runs: Sequence[MeasuredRun]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for run in runs:
        if not run.attempt.current or run.attempt.outcome is None:
            continue
        group = groups.setdefault(run.attempt.spec.group_key or run.attempt.spec.group, _Group(run.attempt))
        if run.outcome is Outcome.OK:
            group.ok.append(run)
        elif run.outcome is not None and run.outcome.is_failure and run.attempt.outcome.cause in PEAKS:
            group.cause = run.attempt.outcome.cause
    return groups


def _caution(group: _Group, groups: Sequence[_Group]) -> Caution | None:
    cause = group.cause or Cause.CUDA_OOM
    numbers: dict[str, Number] = {}
    told = [words for axis in _numeric_axes(group) for words in _along(axis, group, groups, numbers)]
    if not told:
        return None
    text = f"It ran out of {PEAKS[cause][1]} memory. What fits, all else equal: {'; '.join(told)}."
    return Caution(kind="what_fits", subject=group.attempt.spec.group, text=text, numbers=numbers)


def _along(axis: str, group: _Group, groups: Sequence[_Group], numbers: dict[str, Number]) -> Iterator[str]:
    """What is to be said of one axis; its numbers are put into `numbers`."""
    line = {_value(other, axis): other for other in groups if axis in _numeric_axes(other) and _rest(axis, other) == _rest(axis, group)}
    asked = _value(group, axis)
    fitting = sorted(value for value, other in line.items() if other.fits)
    below = [value for value in fitting if value < asked]
    best = below[-1] if below else next((value for value in fitting if value > asked), None)
    if best is None:
        return
    numbers[axis] = best
    words = f"{axis} {_shown(best)} ended ok ({_evidence(line[best], group.cause, axis, numbers)})"
    first_bad = min((value for value, other in line.items() if other.cause is not None and value > best), default=asked)
    between = _between(best, first_bad) if below else None
    if between is not None:
        numbers[f"{axis}_to_try"] = between
        words += f", and {_shown(between)} lies between it and {_shown(first_bad)}, untried"
    yield words


def _evidence(fitting: _Group, cause: Cause | None, axis: str, numbers: dict[str, Number]) -> str:
    """The group, its number of runs, and the most memory that one of them took, where that was sampled."""
    name, whose = PEAKS[cause or Cause.CUDA_OOM]
    cells = (run.measure.telemetry.get(name) for run in fitting.ok if run.measure)
    peaks = [float(cell) for cell in cells if isinstance(cell, (int, float)) and not isinstance(cell, bool)]
    runs = f"{fitting.attempt.spec.group}, {len(fitting.ok)} run{'s' if len(fitting.ok) > 1 else ''}"
    numbers[f"{axis}_n"] = len(fitting.ok)
    if not peaks:
        return f"{runs}; its peak memory was not sampled"
    numbers[f"{axis}_peak_mib"] = max(peaks)
    return f"{runs}, {whose} memory at most {max(peaks):,.0f} MiB"


def _numeric_axes(group: _Group) -> list[str]:
    axes = group.attempt.spec.axes
    return [name for name, value in axes.items() if isinstance(value, (int, float)) and not isinstance(value, bool)]


def _value(group: _Group, axis: str) -> float:
    value = group.attempt.spec.axes[axis]
    assert isinstance(value, (int, float))
    return value


def _rest(axis: str, group: _Group) -> tuple[object, ...]:
    """All of a group but its value on one axis."""
    spec = group.attempt.spec
    others = [{name: value for name, value in values.items() if name != axis} for values in (spec.axes, spec.settings)]
    return (spec.plan, spec.workload.name, spec.launcher.kind, spec.place.ranks, spec.place.devices, *others)


def _between(fits: float, fails: float) -> float | None:
    """A value between the two; of whole numbers a round one, as batch sizes are. None where nothing lies between."""
    if fits != int(fits) or fails != int(fails):
        return (fits + fails) / 2
    step = 1
    while 4 * step <= fails - fits and fits % (2 * step) == 0 and fails % (2 * step) == 0:
        step *= 2
    middle = int((fits + fails) / 2) // step * step
    return middle if fits < middle < fails else None


def _shown(value: float) -> str:
    return f"{value:g}"
