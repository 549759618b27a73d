"""Whether a run will fit into the memory of its GPUs. In: a run's spec and the memory of a GPU. Out: a `Fit`, with the changes that would
make it fit.

The forecast is the workload's own (`seatrial_workloads/<name>/memory.py`): a function of settings and ranks, without torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from seatrial.core.errors import UsageError, did_you_mean
from seatrial.records.caution import Scalar
from seatrial.records.memory import ForecastUnknown, MemoryForecast, Remedy
from seatrial.records.plan import RunSpec

GIB = 2**30
MAX_REMEDIES = 4
FITS, WILL_NOT, MAY_NOT, UNKNOWN = "fits", "will not fit", "may not fit", "unknown"
# As CUDA reports it, which is less than the name suggests: 80 GB are 74.5 GiB, and vendors round.
KNOWN_GPUS_GIB = {
    "T4-16GB": 14.5,
    "V100-16GB": 15.7,
    "V100-32GB": 31.7,
    "RTX4090-24GB": 23.5,
    "L4-24GB": 22.0,
    "A10G-24GB": 22.0,
    "A100-40GB": 39.4,
    "L40S-48GB": 44.4,
    "A100-80GB": 79.1,
    "H100-80GB": 79.2,
    "H200-141GB": 139.7,
    "B200-192GB": 178.3,
}


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """Memory of the smallest GPU that a run uses."""

    size_bytes: int
    source: str
    """Description of its source."""


@dataclass(frozen=True, kw_only=True)
class TriedRemedy:
    """A change with which the run would fit."""

    settings: dict[str, Scalar]
    world_size: int
    total_bytes: int
    changes_ranks: bool = False

    @property
    def text(self) -> str:
        """`use_lora=true: 18.6 GiB`."""
        changes = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in self.settings.items()]
        ranks = (
            f" over {self.world_size} ranks" if self.changes_ranks or "strategy" in self.settings or "zero_stage" in self.settings else ""
        )
        return f"{' with '.join(changes)}{ranks} ({gib(self.total_bytes)} GiB)"


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Whether one configuration fits."""

    spec: RunSpec
    forecast: MemoryForecast | None = None
    reason: str = ""
    """Why there is no forecast."""
    memory: GpuMemory | None = None
    remedies: tuple[TriedRemedy, ...] = ()
    tried: int = 0
    """Changes that were computed, of which `remedies` fit."""

    @property
    def verdict(self) -> str:
        """WILL_NOT where the least that is counted exceeds the memory, MAY_NOT where only the most or the allowances do."""
        if self.forecast is None or (self.memory is None and self.forecast.parts):
            return UNKNOWN
        if self.memory is None or self.forecast.total_bytes <= self.memory.size_bytes:
            return FITS
        least = self.forecast.least_allocated_bytes
        return WILL_NOT if (self.forecast.allocated_bytes if least is None else least) > self.memory.size_bytes else MAY_NOT

    @property
    def memory_bytes(self) -> int:
        """The GPU's memory; 0 if unknown."""
        return self.memory.size_bytes if self.memory else 0

    @property
    def text(self) -> str:
        """One line: parts, total, verdict, remedies."""
        if self.forecast is None:
            return f"{UNKNOWN}: {self.reason}"
        if not self.forecast.parts:
            return "; ".join(self.forecast.notes)
        parts = " + ".join(f"{name} {gib(size)}" for name, size in self.forecast.parts.items())
        least = self.forecast.least_allocated_bytes
        at_least = "" if least is None else f" (at least {gib(least)})"
        return f"{parts} = {gib(self.forecast.allocated_bytes)} GiB{at_least} {self.forecast.moment}; {self.conclusion}"

    @property
    def conclusion(self) -> str:
        """Total against memory, and remedies."""
        assert self.forecast is not None
        total = gib(self.forecast.total_bytes)
        if self.memory is None:
            return f"with allowances {total} GiB; GPU memory unknown: give --gpu or --gpu-memory"
        against = f"{total} of {gib(self.memory.size_bytes)} GiB ({self.memory.source})"
        if self.verdict == FITS:
            return f"{FITS}: {against} with allowances"
        return f"{self.verdict}: {against} with allowances; {self.advice}"

    @property
    def advice(self) -> str:
        if self.remedies:
            return f"try {', or '.join(remedy.text for remedy in self.remedies)}"
        return f"none of the {self.tried} changes that were tried fits" if self.tried else "use GPUs with more memory"


def gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f}" if size_bytes >= 0.05 * GIB or not size_bytes else f"{size_bytes / GIB:.2f}"


def named_gpu(name: str) -> GpuMemory:
    """A GPU of the table; a UsageError that names the nearest."""
    known = {key.lower(): key for key in KNOWN_GPUS_GIB}
    if name.lower() not in known:
        raise UsageError(f"no GPU '{name}' in the table; {did_you_mean(name, KNOWN_GPUS_GIB)}")
    key = known[name.lower()]
    return GpuMemory(size_bytes=round(KNOWN_GPUS_GIB[key] * GIB), source=key)


def forecast_of(spec: RunSpec, settings: dict[str, Scalar] | None = None, world_size: int | None = None) -> MemoryForecast:
    """The forecast for a run, or for other settings and ranks of it; ForecastUnknown where its workload gives none."""
    module, values = _memory_module(spec), spec.settings if settings is None else settings
    built = importlib.import_module(f"{module.__package__}.settings").Settings(**values)
    found: MemoryForecast = module.forecast(built, world_size=world_size or spec.place.ranks, cwd=Path(spec.cwd))
    return found


def forecast_or_none(spec: RunSpec) -> MemoryForecast | None:
    """The forecast of a finished run; None, for instance, for settings of an earlier version or a model that is missing here."""
    try:
        found = forecast_of(spec)
    except (ValueError, TypeError, ImportError):
        return None
    return found if found.parts and spec.settings.get("device") != "cpu" else None


def judge_fit(spec: RunSpec, memory: GpuMemory | None) -> Fit:
    """Forecast, verdict, and where it does not fit, the changes that help."""
    if spec.settings.get("device") == "cpu":
        return Fit(spec=spec, forecast=MemoryForecast(parts={}, moment="", notes=("runs on the CPU: nothing on a GPU",)))
    try:
        fit = Fit(spec=spec, forecast=forecast_of(spec), memory=memory)
    except ForecastUnknown as error:
        return Fit(spec=spec, reason=str(error), memory=memory)
    if memory is None or fit.verdict == FITS:
        return fit
    tried = list(_try_remedies(spec))
    fitting = [remedy for remedy in tried if remedy.total_bytes <= memory.size_bytes]
    return Fit(spec=spec, forecast=fit.forecast, memory=memory, remedies=tuple(_smallest_changes(fitting)[:MAX_REMEDIES]), tried=len(tried))


def _try_remedies(spec: RunSpec) -> Iterator[TriedRemedy]:
    module, ranks = _memory_module(spec), spec.place.ranks
    if not hasattr(module, "remedies"):
        return
    built = importlib.import_module(f"{module.__package__}.settings").Settings(**spec.settings)
    remedy: Remedy
    for remedy in module.remedies(built, world_size=ranks):
        world_size = remedy.world_size or ranks
        try:
            total = forecast_of(spec, {**spec.settings, **remedy.settings}, world_size).total_bytes
        except ValueError:
            # Settings that the workload refuses together, or cannot forecast.
            continue
        yield TriedRemedy(
            settings=dict(remedy.settings), world_size=world_size, total_bytes=total, changes_ranks=remedy.world_size is not None
        )


def _smallest_changes(fitting: list[TriedRemedy]) -> list[TriedRemedy]:
    """The changes, without those that change more settings than another, or the same ones further."""
    kept: list[TriedRemedy] = []
    for remedy in fitting:
        keys = {*remedy.settings, *(["ranks"] if remedy.changes_ranks else [])}
        if not any({*other.settings, *(["ranks"] if other.changes_ranks else [])} <= keys for other in kept):
            kept.append(remedy)
    return kept


def _memory_module(spec: RunSpec) -> ModuleType:
    if spec.workload.module is None:
        raise ForecastUnknown(f"{spec.workload.name} is a script of your own: only bundled workloads are forecast")
    package = spec.workload.module.rpartition(".")[0]
    if importlib.util.find_spec(f"{package}.memory") is None:
        raise ForecastUnknown(f"{spec.workload.name} has no memory.py: it does not forecast its memory")
    return importlib.import_module(f"{package}.memory")
