"""What is found in one run beside its speed: memory that grows, a rank that holds the others up, why its steps are uneven, and what was
switched on that makes its figures other than those of a plain run. Every value names its file, its window and its n."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from seatrial.records.caution import Number


class MemoryVerdict(str, enum.Enum):
    """What a course of memory comes to."""

    LEAK = "leak"
    PLATEAU = "plateau"
    """It grew and stopped growing, or never grew."""
    INCONCLUSIVE = "inconclusive"
    """Too short, too few samples, or growth that cannot be told from noise."""


@dataclass(frozen=True, kw_only=True)
class MemoryCourse:
    """The memory of one GPU, or of the run's whole process tree on one host, after warm-up."""

    kind: str
    """`gpu` or `host`."""
    subject: str
    """`GPU 0`, `process tree`."""
    verdict: MemoryVerdict
    reason: str
    """One sentence: what was seen, or what is missing and how to get it."""
    slope_mib_per_min: float | None = None
    """Theil-Sen, after warm-up."""
    slope_low: float | None = None
    """Interval of the slope, which holds the true rate in more than nine of ten simulated leaks."""
    slope_high: float | None = None
    mib_per_1000_steps: float | None = None
    last_mib: float | None = None
    limit_mib: float | None = None
    """What the GPU or the host has; None where it is not known."""
    hours_left: float | None = None
    """Until the limit at this slope; only for a leak."""
    hours_low: float | None = None
    """Likewise at the upper end of the slope's interval."""
    n: int = 0
    """Samples that count."""
    first_t: float | None = None
    last_t: float | None = None
    """Wall clock of the first and the last sample that count."""
    file: str = ""


class StragglerVerdict(str, enum.Enum):
    """Whether one rank holds the others up."""

    NAMED = "named"
    NONE = "none"
    ABSTAINED = "abstained"


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """The rank that waits least where all wait for one another."""

    verdict: StragglerVerdict
    reason: str
    """One sentence: how it was found, that there is none, or why nothing can be said."""
    rank: int | None = None
    score: float | None = None
    """By how much its own work is longer than that of the others, as a share of theirs: 0.25 is a quarter longer."""
    phase: str = ""
    """The phase its time goes into, in the probe's words."""
    host: str = ""
    gpu: str = ""
    held_up_ms: float | None = None
    """What a step would be shorter by without it, in the median."""
    n: int = 0
    """Steps it was judged on."""
    first_step: int | None = None
    last_step: int | None = None
    source: str = ""
    """`events` or `log:NAME`."""
    slow_host: str = ""
    """The host all of whose ranks are slow together while no other's are; empty where it is not so."""
    slow_host_ranks: int = 0
    """How many ranks that host has."""


@dataclass(frozen=True, kw_only=True)
class UnevenCause:
    """One reason why a run's steps are uneven or slower than they could be."""

    kind: str
    """A stable word: `power_cap`, `thermal`, `throttling`, `anti_correlated_gpus`, `gpu_imbalance`, `data_wait_bursts`, `data_wait`,
    `slow_rank`, `slow_host`, `host_steal`, `host_load`, `telemetry_gaps`."""
    text: str
    """What was seen, with its numbers, and what to do, in one or two sentences."""
    numbers: dict[str, Number] = field(default_factory=dict)
    file: str = ""
    window: str = ""
    n: int = 0
    strength: float = 0.0
    """0 to 1, what causes are ordered by: of the samples, the steps or the time that were looked at, the share that shows it."""


@dataclass(frozen=True, kw_only=True)
class SlowStep:
    """One step of the window far above its median. It counts all the same."""

    step: int
    ms: float
    over_median: float


@dataclass(frozen=True, kw_only=True)
class SlowSteps:
    """The steps of a window that stand out."""

    count: int
    time_share: float
    """Of the window's time, what they took beyond the median and shorter steps did not make up for."""
    worst: tuple[SlowStep, ...] = ()
    """The longest few, longest first."""


@dataclass(frozen=True, kw_only=True)
class DebugSetting:
    """Something switched on that slows a run down or changes its timing: for finding faults, not for measuring."""

    name: str
    """`NCCL_DEBUG`, `timing.sync`, `anomaly_detection`."""
    value: str
    source: str
    """Where it was found: `environment.json`, `spec.json`, `launcher.log:12`."""
    why: str
    """What it does to a measurement."""
    varied: bool = False
    """An axis or a bundle of the plan sets it: it is what is tried out, so runs with and without it may be compared."""


@dataclass(frozen=True, kw_only=True)
class SlowSign:
    """An entry of the registry of signatures that tells why a run may be slow, and where it was seen."""

    id: str
    action: str
    detail: str
    """The line, or the numbers."""
    file: str = ""
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class LossCourse:
    """Rank 0's losses, thinned to at most 200 by means over equal parts, for comparison with another run's."""

    steps: tuple[int, ...]
    """The last step of each part."""
    losses: tuple[float, ...]
    n: int
    """Losses it was made of."""
    noise: float
    """Robust standard deviation of a single loss about its course."""
    broken_step: int | None = None
    """The first step whose loss is no number; the course ends before it, and is empty where that was the first."""
    last_step: int | None = None
    """The run's, whether it told a loss or not; None in courses kept by versions that did not write it."""


@dataclass(frozen=True, kw_only=True)
class LastSteps:
    """The seeds' rule of thumb: mean and standard deviation over the last 50 counted steps."""

    n: int
    mean_ms: float
    stdev_ms: float
    per_s: float
    """Samples (else tokens, else steps) a second over them, all ranks together."""


@dataclass(frozen=True, kw_only=True)
class ReportedFigure:
    """A figure that the workload itself reported, `probe.figure(name, value)`; the last one told counts."""

    value: float
    unit: str = ""
    n: int | None = None
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """Where a rank ran, by its start event."""

    rank: int
    host: str = ""
    gpu: str = ""
    """The GPU's id as CUDA_VISIBLE_DEVICES shows it to the rank, else its local rank; empty on CPU."""
