"""The out-of-memory boundary: which neighbours of a group that ran out of memory fit.

In: every measured run of a campaign. Out: one caution (`what_fits`) for each group that ran out of GPU or host memory and has a neighbour
that ended ok: along each numeric setting, all else equal, the largest smaller value that ended ok (else the nearest larger one: more
sharing takes less), its peak memory, and a value in between to try. A setting is an axis or a member of a bundle. Without such a neighbour
it reports how far the demand exceeded the memory, from the sizes in torch's message, if there are any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seatrial.core.text import count
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution, Number, Scalar
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import RunSpec
from seatrial.records.results import MeasuredRun

PEAKS = {
    Cause.CUDA_OOM: ("gpu_mem_peak_mib", "GPU"),
    Cause.HOST_OOM: ("host_rss_peak_mib", "host"),
    Cause.MEMORY_LIMIT: ("host_rss_peak_mib", "host"),
}
"""Out-of-memory causes → the figure of peak memory, and whose memory it is."""
MIB_PER_UNIT = {"bytes": 2**-20, "KiB": 2**-10, "MiB": 1.0, "GiB": 1024.0, "TiB": 1048576.0}
_SIZE = r"(\d{1,9}(?:\.\d{1,6})?) (bytes|KiB|MiB|GiB|TiB)"
# Each in the newer wording, then in the older.
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free\b")
_HELD = re.compile(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated")
_SPARE = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
OTHERS_MIB = 512.0
"""Contexts and the driver take up to this much."""


@dataclass
class _Group:
    """The runs of one configuration."""

    attempt: Attempt
    point: dict[str, Scalar]
    """Its settings by name, including those of axes and bundles."""
    cause: Cause | None = None
    """The cause of a run that ran out of memory; None where none did."""
    detail: str = ""
    """The line of the log that shows it."""
    ok: list[MeasuredRun] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        return bool(self.ok) and self.cause is None


@dataclass(frozen=True, kw_only=True)
class OomSizes:
    """Memory of one GPU at the moment of the failure."""

    tried_mib: float
    free_mib: float
    held_mib: float
    """Held by tensors."""
    spare_mib: float
    """Reserved by torch's allocator and unused."""
    total_mib: float
    others_mib: float
    """Taken by other processes; 0 where that is unknown."""

    @property
    def factor(self) -> float:
        """Total demand over the available memory."""
        return (self.held_mib + self.tried_mib) / (self.held_mib + self.free_mib + self.spare_mib)

    @property
    def text(self) -> str:
        tried = f"It tried to allocate {_mib_text(self.tried_mib)} with {_mib_text(self.free_mib)} free of {_mib_text(self.total_mib)}"
        demand = f"{tried} and {_mib_text(self.held_mib)} in use"
        others = f" Other processes hold {_mib_text(self.others_mib)} of this GPU." if self.others_mib > OTHERS_MIB else ""
        if self.factor <= 1:
            return (
                f"{demand}; {_mib_text(self.spare_mib)} more are reserved but fragmented: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
                f"may be enough.{others}"
            )
        return f"{demand}: at least {self.factor:.2f} times the available memory, perhaps more.{others}"


def oom_boundaries(runs: Sequence[MeasuredRun]) -> list[Caution]:
    """A caution for each group that ran out of memory, in the order in which the groups first appear."""
    groups = list(_groups(runs).values())
    # In the order of the plan.
    numeric = dict.fromkeys(name for group in groups for name in group.point if _is_number(group, name))
    varied = [name for name in numeric if len({group.point.get(name) for group in groups}) > 1]
    cautions = (_caution(group, groups, varied) for group in groups if group.cause is not None)
    return [caution for caution in cautions if caution is not None]


def _groups(runs: Sequence[MeasuredRun]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for run in runs:
        if not run.attempt.current or run.attempt.outcome is None:
            continue
        spec = run.attempt.spec
        # The name of a bundle represents its members and is not a setting.
        axes = {name: value for name, value in spec.axes.items() if name not in _bundled(spec)}
        group = groups.setdefault(spec.key, _Group(run.attempt, {**spec.settings, **axes}))
        if run.outcome is Outcome.OK:
            group.ok.append(run)
        elif run.outcome is not None and run.outcome.is_failure and run.attempt.outcome.cause in PEAKS:
            group.cause, group.detail = run.attempt.outcome.cause, run.attempt.outcome.detail
    return groups


def _bundled(spec: RunSpec) -> set[str]:
    """The axes that are bundles: their names alone are in the groups' names."""
    return {name for name, label in spec.labels.items() if not label}


def _caution(group: _Group, groups: Sequence[_Group], varied: Sequence[str]) -> Caution | None:
    cause = group.cause or Cause.CUDA_OOM
    numbers: dict[str, Number] = {}
    fitting = [text for name in varied if _is_number(group, name) for text in _along(name, group, groups, numbers)]
    text = f"What fits, all else equal: {'; '.join(fitting)}." if fitting else _by_sizes(group, numbers)
    if not text:
        return None
    text = f"It ran out of {PEAKS[cause][1]} memory. {text}"
    return Caution(kind="what_fits", subject=group.attempt.spec.group, text=text, numbers=numbers)


def _by_sizes(group: _Group, numbers: dict[str, Number]) -> str:
    """The text from the sizes in the message, where no neighbour fits; adds to `numbers`."""
    sizes = oom_sizes(group.detail) if group.cause is Cause.CUDA_OOM else None
    if sizes is None:
        return ""
    for name in ("tried_mib", "free_mib", "held_mib", "total_mib"):
        numbers[name] = getattr(sizes, name)
    numbers["demand_ratio"] = sizes.factor
    return f"No group that differs in one number only fits. {sizes.text}"


def _along(setting: str, group: _Group, groups: Sequence[_Group], numbers: dict[str, Number]) -> Iterator[str]:
    """What fits along one setting; adds to `numbers`."""
    rest = _rest(setting, group)
    line = {_value(other, setting): other for other in groups if _is_number(other, setting) and _rest(setting, other) == rest}
    own = _value(group, setting)
    fitting = sorted(value for value, other in line.items() if other.fits)
    below = [value for value in fitting if value < own]
    best = below[-1] if below else next((value for value in fitting if value > own), None)
    if best is None:
        return
    numbers[setting] = best
    text = f"{setting} {best:g} ended ok ({_evidence(line[best], group.cause, setting, numbers)})"
    first_bad = min((value for value, other in line.items() if other.cause is not None and value > best), default=own)
    between = _between(best, first_bad) if below else None
    if between is not None:
        numbers[f"{setting}_to_try"] = between
        text += f"; try {between:g}, between it and {first_bad:g}"
    yield text


def _evidence(fitting: _Group, cause: Cause | None, setting: str, numbers: dict[str, Number]) -> str:
    """The group, its number of runs, and their peak memory where it was sampled."""
    name, memory = PEAKS[cause or Cause.CUDA_OOM]
    cells = (run.measure.telemetry.get(name) for run in fitting.ok if run.measure)
    peaks = [float(cell) for cell in cells if isinstance(cell, (int, float)) and not isinstance(cell, bool)]
    runs = f"{fitting.attempt.spec.group}, {count(len(fitting.ok), 'run')}"
    numbers[f"{setting}_n"] = len(fitting.ok)
    if not peaks:
        return f"{runs}, peak memory not sampled"
    numbers[f"{setting}_peak_mib"] = max(peaks)
    return f"{runs}, peak {memory} memory {max(peaks):,.0f} MiB"


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
    # A bundle may set variables that are not settings.
    env = spec.env if _bundled(spec) else {}
    return (spec.plan, spec.workload.name, spec.launcher.kind, spec.place.ranks, spec.place.devices, env, others)


def _between(fits: float, fails: float) -> float | None:
    """A value between the two; of whole numbers a round one, as batch sizes are. None where there is none."""
    if fits != int(fits) or fails != int(fails):
        return (fits + fails) / 2
    step = 1
    while 4 * step <= fails - fits and fits % (2 * step) == 0 and fails % (2 * step) == 0:
        step *= 2
    middle = int((fits + fails) / 2) // step * step
    return middle if fits < middle < fails else None


def oom_sizes(line: str) -> OomSizes | None:
    """The sizes in a line of torch's out-of-memory error, where all that the factor needs are there; NCCL's has none."""
    tried, free, held, total = (_mib(pattern, line) for pattern in (_TRIED, _FREE, _HELD, _TOTAL))
    if tried is None or free is None or held is None or total is None or held + free <= 0:
        return None
    own = _mib(_OWN, line)
    others = 0.0 if own is None else max(0.0, total - own - free)
    return OomSizes(tried_mib=tried, free_mib=free, held_mib=held, spare_mib=_mib(_SPARE, line) or 0.0, total_mib=total, others_mib=others)


def _mib(pattern: re.Pattern[str], line: str) -> float | None:
    match = pattern.search(line)
    if match is None:
        return None
    number, unit = (part for part in match.groups() if part is not None)
    return float(number) * MIB_PER_UNIT[unit]


def _mib_text(mib: float) -> str:
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.2f} GiB"
