"""What fits where a group ran out of memory.

In: every measured run of a campaign. Out: one caution (`what_fits`) for each group that ended for want of memory, GPU or host, and that has
a neighbour which ended ok: along each numeric setting, all else equal, the largest value below that ended ok (where none did, the nearest
above: more sharing takes less), its peak memory, and a value between the two that could be tried. A setting is an axis or a member of a
bundle. Without such a neighbour it says how far the demand was too large, where the message tells sizes; else nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seatrial.analyse.oom_sizes import oom_sizes
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution, Number
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec, Scalar

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
    point: dict[str, Scalar]
    """Its settings by name, those of axes and of bundles."""
    cause: Cause | None = None
    """Why a run of it ended for want of memory; None where none did."""
    detail: str = ""
    """The line that told it."""
    ok: list[MeasuredRun] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        return bool(self.ok) and self.cause is None


def what_fits(runs: Sequence[MeasuredRun]) -> list[Caution]:
    """One caution for each group without enough memory, in the order in which the groups first appear."""
    groups = list(_groups(runs).values())
    varied = [name for name in _numeric(groups) if len({group.point.get(name) for group in groups}) > 1]
    cautions = (_caution(group, groups, varied) for group in groups if group.cause is not None)
    return [caution for caution in cautions if caution is not None]


def _groups(runs: Sequence[MeasuredRun]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for run in runs:
        if not run.attempt.current or run.attempt.outcome is None:
            continue
        group = groups.setdefault(run.attempt.spec.key, _Group(run.attempt, _point(run.attempt.spec)))
        if run.outcome is Outcome.OK:
            group.ok.append(run)
        elif run.outcome is not None and run.outcome.is_failure and run.attempt.outcome.cause in PEAKS:
            group.cause, group.detail = run.attempt.outcome.cause, run.attempt.outcome.detail
    return groups


def _point(spec: RunSpec) -> dict[str, Scalar]:
    """The name of a bundle stands for its members, and is no setting of its own."""
    return {**spec.settings, **{name: value for name, value in spec.axes.items() if name not in _bundled(spec)}}


def _bundled(spec: RunSpec) -> set[str]:
    """The axes that are bundles: their groups are named by the bundle alone."""
    return {name for name, label in spec.labels.items() if not label}


def _caution(group: _Group, groups: Sequence[_Group], varied: Sequence[str]) -> Caution | None:
    cause = group.cause or Cause.CUDA_OOM
    numbers: dict[str, Number] = {}
    told = [words for name in varied if _is_number(group, name) for words in _along(name, group, groups, numbers)]
    text = f"What fits, all else equal: {'; '.join(told)}." if told else _by_sizes(group, numbers)
    if not text:
        return None
    text = f"It ran out of {PEAKS[cause][1]} memory. {text}"
    return Caution(kind="what_fits", subject=group.attempt.spec.group, text=text, numbers=numbers)


def _by_sizes(group: _Group, numbers: dict[str, Number]) -> str:
    """What the message itself allows to say where no neighbour fits; its numbers are put into `numbers`."""
    sizes = oom_sizes(group.detail) if group.cause is Cause.CUDA_OOM else None
    if sizes is None:
        return ""
    for name in ("tried_mib", "free_mib", "held_mib", "total_mib"):
        numbers[name] = getattr(sizes, name)
    numbers["demand_ratio"] = sizes.factor
    return f"No group that differs in one number alone ended ok. {sizes.words}"


def _along(setting: str, group: _Group, groups: Sequence[_Group], numbers: dict[str, Number]) -> Iterator[str]:
    """What is to be said of one setting; its numbers are put into `numbers`."""
    rest = _rest(setting, group)
    line = {_value(other, setting): other for other in groups if _is_number(other, setting) and _rest(setting, other) == rest}
    asked = _value(group, setting)
    fitting = sorted(value for value, other in line.items() if other.fits)
    below = [value for value in fitting if value < asked]
    best = below[-1] if below else next((value for value in fitting if value > asked), None)
    if best is None:
        return
    numbers[setting] = best
    words = f"{setting} {_shown(best)} ended ok ({_evidence(line[best], group.cause, setting, numbers)})"
    first_bad = min((value for value, other in line.items() if other.cause is not None and value > best), default=asked)
    between = _between(best, first_bad) if below else None
    if between is not None:
        numbers[f"{setting}_to_try"] = between
        words += f", and {_shown(between)} lies between it and {_shown(first_bad)}, untried"
    yield words


def _evidence(fitting: _Group, cause: Cause | None, setting: str, numbers: dict[str, Number]) -> str:
    """The group, its number of runs, and the most memory that one of them took, where that was sampled."""
    name, whose = PEAKS[cause or Cause.CUDA_OOM]
    cells = (run.measure.telemetry.get(name) for run in fitting.ok if run.measure)
    peaks = [float(cell) for cell in cells if isinstance(cell, (int, float)) and not isinstance(cell, bool)]
    runs = f"{fitting.attempt.spec.group}, {len(fitting.ok)} run{'s' if len(fitting.ok) > 1 else ''}"
    numbers[f"{setting}_n"] = len(fitting.ok)
    if not peaks:
        return f"{runs}; its peak memory was not sampled"
    numbers[f"{setting}_peak_mib"] = max(peaks)
    return f"{runs}, {whose} memory at most {max(peaks):,.0f} MiB"


def _numeric(groups: Sequence[_Group]) -> list[str]:
    """Settings that are a number in some group, in the order of the plan."""
    return list(dict.fromkeys(name for group in groups for name in group.point if _is_number(group, name)))


def _is_number(group: _Group, name: str) -> bool:
    value = group.point.get(name)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _value(group: _Group, name: str) -> float:
    value = group.point[name]
    assert isinstance(value, (int, float))
    return value


def _rest(name: str, group: _Group) -> tuple[object, ...]:
    """All of a group but its value of one setting."""
    spec = group.attempt.spec
    others = {other: value for other, value in group.point.items() if other != name}
    # A bundle may set variables that no setting tells of.
    env = spec.env if _bundled(spec) else {}
    return (spec.plan, spec.workload.name, spec.launcher.kind, spec.place.ranks, spec.place.devices, env, others)


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
