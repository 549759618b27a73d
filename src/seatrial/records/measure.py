"""Results of the analysis of runs and groups: figures, memory trends, stragglers, stability. Each figure has its window and n."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from seatrial.records.caution import Caution, Number, Scalar
from seatrial.records.eta import EtaPoint, EtaQuality
from seatrial.records.launch import Communicator


class MemoryVerdict(str, enum.Enum):
    """Whether memory leaks."""

    LEAK = "leak"
    PLATEAU = "plateau"
    """It stopped growing, or never grew."""
    INCONCLUSIVE = "inconclusive"
    """Too short, too few samples, or growth within the noise."""


@dataclass(frozen=True, kw_only=True)
class MemoryTrend:
    """The memory of one GPU, or of the run's whole process tree on one host, after warm-up."""

    kind: str
    """`gpu` or `host`."""
    subject: str
    """`GPU 0`, `process tree`."""
    verdict: MemoryVerdict
    reason: str
    """One sentence: the finding, or what is missing and how to get it."""
    slope_mib_per_min: float | None = None
    """Theil-Sen, after warm-up."""
    slope_low: float | None = None
    """Interval of the slope, which contained the true rate in more than nine of ten simulated leaks."""
    slope_high: float | None = None
    mib_per_1000_steps: float | None = None
    last_mib: float | None = None
    limit_mib: float | None = None
    """The memory of the GPU or the host; None where it is unknown."""
    hours_left: float | None = None
    """Until the limit is reached at this slope; only for a leak."""
    hours_low: float | None = None
    """Until the limit at the upper end of the slope's interval."""
    n: int = 0
    """Counted samples."""
    first_t: float | None = None
    last_t: float | None = None
    """Wall clock of the first and the last counted sample."""
    file: str = ""


class StragglerVerdict(str, enum.Enum):
    """Whether one rank slows the others down."""

    NAMED = "named"
    NONE = "none"
    ABSTAINED = "abstained"


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """The rank that waits least where all wait for each other."""

    verdict: StragglerVerdict
    reason: str
    """One sentence: the evidence, that no rank is slow, or why it is unknown."""
    rank: int | None = None
    score: float | None = None
    """How much longer its own work takes, relative to the others: 0.25 is a quarter longer."""
    phase: str = ""
    """The phase in which it is slow, as the probe names it."""
    host: str = ""
    gpu: str = ""
    held_up_ms: float | None = None
    """How much shorter the median step would be without it."""
    n: int = 0
    """Steps it is based on."""
    first_step: int | None = None
    last_step: int | None = None
    source: str = ""
    """`events` or `log:NAME`."""
    slow_host: str = ""
    """The host whose ranks, and no others, are all slow; empty where there is none."""
    slow_host_ranks: int = 0
    """The number of ranks of that host."""


PREFLIGHT = "preflight"
"""Kind of a cause that was seen before the runs, not in them."""


@dataclass(frozen=True, kw_only=True)
class JitterCause:
    """One reason why a run's steps are uneven or slow."""

    kind: str
    """Stable: `power_cap`, `thermal`, `throttling`, `anti_correlated_gpus`, `gpu_imbalance`, `data_wait_bursts`, `data_wait`,
    `slow_rank`, `slow_host`, `host_steal`, `host_load`, `telemetry_gaps`; `preflight` for what was seen before the first run."""
    text: str
    """The finding, with its numbers, and what to do, in one or two sentences."""
    numbers: dict[str, Number] = field(default_factory=dict)
    file: str = ""
    window: str = ""
    n: int = 0
    strength: float = 0.0
    """0 to 1, the order of causes: the share of the samples, steps or time that shows it."""


@dataclass(frozen=True, kw_only=True)
class SlowStep:
    """A step of the window far above its median; it counts."""

    step: int
    ms: float
    over_median: float


@dataclass(frozen=True, kw_only=True)
class SlowSteps:
    """The outliers among the steps of a window."""

    count: int
    time_share: float
    """Share of the window's time by which they exceed the median, less what shorter steps compensate."""
    worst: tuple[SlowStep, ...] = ()
    """The longest few, longest first."""


@dataclass(frozen=True, kw_only=True)
class DebugSetting:
    """A debug or tracing setting that slows a run down or changes its timing."""

    name: str
    """`NCCL_DEBUG`, `timing.sync`, `anomaly_detection`."""
    value: str
    source: str
    """Where it was found: `environment.json`, `spec.json`, `launcher.log:12`."""
    why: str
    """Its effect on the measurement."""
    varied: bool = False
    """An axis or a bundle of the plan sets it: runs with and without it may be compared."""

    @property
    def file(self) -> str:
        return self.source.partition(":")[0]

    @property
    def line(self) -> str:
        """Its number; empty where it was not found in a log."""
        return self.source.partition(":")[2]


@dataclass(frozen=True, kw_only=True)
class SlowSign:
    """An entry of the registry of signatures for slow runs, and where it was seen."""

    id: str
    action: str
    detail: str
    """The line, or the numbers."""
    file: str = ""
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """Rank 0's losses, averaged to at most 200 points, for comparison with another run's."""

    steps: tuple[int, ...]
    """The last step of each point."""
    losses: tuple[float, ...]
    n: int
    """Losses it is based on."""
    noise: float
    """Robust standard deviation of a single loss about the curve."""
    broken_step: int | None = None
    """The first step whose loss is not finite; the curve ends before it."""
    last_step: int | None = None
    """The run's last step, with or without a loss; None in curves of older versions."""


@dataclass(frozen=True, kw_only=True)
class LastSteps:
    """Stage 1's rule of thumb: mean and standard deviation over the last 50 counted steps."""

    n: int
    mean_ms: float
    stdev_ms: float
    per_s: float
    """Samples (else tokens, else steps) per second, all ranks together."""


@dataclass(frozen=True, kw_only=True)
class ReportedFigure:
    """A figure that the workload itself reported, `probe.figure(name, value)`; the last one counts."""

    value: float
    unit: str = ""
    n: int | None = None
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class RankLocation:
    """Where a rank ran, from its start event."""

    rank: int
    host: str = ""
    gpu: str = ""
    """The GPU's id in CUDA_VISIBLE_DEVICES of the rank, else its local rank; empty on CPU."""


WORLD_SIZE = "world_size"
"""The number of ranks in what a group requested: effective settings that depend on it follow this name."""
WORKLOAD_CAUTION = "caution: "
"""Prefix of the reason of an effective setting that reports must show."""


MIXED_RANKS = "mixed: "
"""Prefix of an effective value on which a run's ranks disagree: `mixed: fused on 3 of 4 ranks`."""
_TRUTH = {"true": "True", "false": "False"}
# A number in another spelling than Python's: 1.0 for 1, 1e-4 for 0.0001. 2.10 may be a version and stays.
_RESPELLED_NUMBER = re.compile(r"[+-]?(\d+\.0+|(\d+\.?\d*|\.\d+)[eE][+-]?\d{1,3})")


@lru_cache(maxsize=4096, typed=True)
def setting_text(value: Scalar) -> str:
    """A setting's value in one spelling, so that equal values compare equal: True and "true", 1 and 1.0 and "1.0", but not True and 1."""
    if isinstance(value, str):
        if _RESPELLED_NUMBER.fullmatch(value):
            value = float(value)
        else:
            return _TRUTH.get(value.lower(), value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class EffectiveSetting:
    """A setting as it was requested and as it was in effect: of a run as its workload reported it, of a group with values as text, secrets
    masked."""

    name: str
    requested: Scalar
    effective: Scalar
    reason: str = ""
    follows: tuple[str, ...] = ()
    """Settings that it may follow, as the run itself declared (`probe.effective(…, follows=…)`), for a group as its workload declares too:
    two groups that differ in one of them may differ in it too; with `=VALUE|VALUE` only where one of the two has such a value in effect."""
    alike_by: str = ""
    """The setting that makes it the same in two groups, and its values in the order in which to try them, as the workload declares:
    `fast_paths=equal|{common}`."""

    @property
    def requested_text(self) -> str:
        return setting_text(self.requested)

    @property
    def effective_text(self) -> str:
        return setting_text(self.effective)


@dataclass(frozen=True, kw_only=True)
class WorkSetting:
    """A setting that changes the work of a sample or a step, and its value."""

    name: str
    value: str
    unit: str
    """`tokens`, `audio_s` or `pixels` where it changes the size of a sample, `samples` where it changes only their number."""
    set_by_shell: str = ""
    """Where only the shell knows its value, the axes on which that may depend: `cfg=a`."""


Effective = dict[str, EffectiveSetting]
"""Effective settings by name."""


MIN_REPEATS = 3
"""With fewer, stage 1's gates give no verdict: the interval of two runs is wide, and one has no spread."""
ROUNDING_RATIO = 1e-9
"""Tolerance of floating-point rounding."""


class StabilityVerdict(str, enum.Enum):
    """Whether the figures of a group are reproducible."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, kw_only=True)
class GroupStability:
    """Stability by stage 1's gates: median and highest p90/p50 of the runs, spread over the repeats, share of unstable runs."""

    verdict: StabilityVerdict
    reason: str
    runs: int
    ratio_median: float | None = None
    """Median over the runs of iter p90/p50 (the last timing window, as stage 1 takes it)."""
    ratio_max: float | None = None
    cv_pct: float | None = None
    """Coefficient of variation of the throughput over the repeats; None below two runs."""
    unstable_run_ratio: float | None = None
    causes: tuple[JitterCause, ...] = ()
    """Causes found in its runs: each kind once, with the strongest evidence."""


@dataclass(frozen=True, kw_only=True)
class SentinelDrift:
    """Drift of the platform, seen in one configuration that was repeated throughout the campaign."""

    verdict: StabilityVerdict
    reason: str
    group: str
    runs: int
    metric: str = ""
    drift_pct: float | None = None
    """From the first sentinel to the last, by a line through the logs; negative where the platform became slower."""
    drift_low: float | None = None
    """95 % interval."""
    drift_high: float | None = None
    level_change_pct: float | None = None
    """Change of level between two sentinels, where there was one; negative where it became slower."""
    spread_pct: float | None = None
    """Highest over lowest, less 1."""
    first_t: float | None = None
    last_t: float | None = None


def exceeds(value: float, most: float) -> bool:
    """Whether `value` is above `most`, beyond rounding."""
    return value > most and not math.isclose(value, most, rel_tol=ROUNDING_RATIO)


ANTI_CORRELATION_MIN_SAMPLES = 20
"""Samples of each GPU; with fewer, a correlation is chance."""
ANTI_CORRELATION_MIN_SWING_PCT = 30.0
"""Between the 10th and the 90th percentile of a GPU's utilisation: less is noise about a level."""
ANTI_CORRELATION_MAX_COEFFICIENT = -0.5
"""Spearman's coefficient of two GPUs' utilisation; above this, other causes dominate."""
ANTI_CORRELATION_MIN_SIGMAS = 4.0
"""Standard deviations of chance: over the 28 pairs of eight GPUs, fewer than 1 in 1,000 healthy runs gets this far."""
IDLE_PCT = 10.0
"""A GPU at or below this utilisation idles."""
ANTI_CORRELATED_GPUS = "anti_correlated_gpus"
"""Kind of the cause."""
JITTER_RATIO = 2.0
"""Stage 1's bound for iter p90/p50: persistently above it, the platform jitters."""
JITTER_SHARE = 0.5
"""Share of a run's timing windows from which it is persistent."""
MIN_WINDOWS = 3


def jitters_persistently(ratios: Sequence[float]) -> bool | None:
    """Whether p90/p50 is above JITTER_RATIO in half of the windows or more; None for too few windows."""
    if len(ratios) < MIN_WINDOWS:
        return None
    return sum(exceeds(ratio, JITTER_RATIO) for ratio in ratios) >= JITTER_SHARE * len(ratios)


CONFIDENCE = 0.95
"""Confidence of the interval of a single figure."""
AUDIO_PER_SAMPLE = "audio_s_per_sample"
"""The figure by which a workload reports the mean length of its samples, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steps that count for a figure."""

    first_step: int
    last_step: int
    n: int
    """Steps counted: those of the window without a pause."""
    warmup_steps: int
    """Steps before the window."""
    excluded_steps: int = 0
    """Steps inside the window left out because of a named pause: checkpoint, eval, compile."""
    steady: bool = True
    """False where no steady state was found; `reason` states why."""
    reason: str = ""

    @property
    def text(self) -> str:
        return f"steps {self.first_step}–{self.last_step}"


@dataclass(frozen=True, kw_only=True)
class TimingPoint:
    """One row of timing_points.csv: percentiles over the rolling window that ends at `step`."""

    index: int
    step: int
    values: dict[str, float | None]
    """`data_wait_ms_p50`, `data_wait_ms_p90`, … `iter_ms_p90`."""

    @property
    def iter_ratio(self) -> float | None:
        """iter p90/p50; None where either is unknown."""
        p50, p90 = self.values.get("iter_ms_p50"), self.values.get("iter_ms_p90")
        return p90 / p50 if p50 and p90 and math.isfinite(p90 / p50) else None


def iter_ratios(points: Sequence[TimingPoint], window: int) -> list[float]:
    """iter p90/p50 of each timing window of `window` steps that does not contain step 0, which is cold."""
    return [ratio for point in points if point.step >= window and (ratio := point.iter_ratio) is not None]


@dataclass(frozen=True, kw_only=True)
class HarmlessCount:
    """A kind of harmless warning and how often a run printed it."""

    id: str
    meaning: str
    lines: int


@dataclass(frozen=True, kw_only=True)
class RunHealth:
    """Whether a run ended well."""

    ranks: int
    """Ranks that were started."""
    ranks_ended_well: int | None = None
    """None where it is unknown: a failed run without the probe, whose launcher does not report single ranks."""
    tracebacks: int = 0
    """Tracebacks in its output, including those that a script caught and printed."""
    harmless: tuple[HarmlessCount, ...] = ()
    halted: bool = False
    """Ranks stopped because of a halt file."""


@dataclass(frozen=True, kw_only=True)
class HostMeasure:
    """Figures of one of many hosts in the measured window; None where it was not sampled."""

    host: str
    gpus: int = 0
    """GPUs that were sampled."""
    cpu_busy_mean_pct: float | None = None
    rss_peak_mib: float | None = None
    net_rx_mean_mib_per_s: float | None = None
    """All interfaces and processes of the host."""
    net_tx_mean_mib_per_s: float | None = None
    gpu_util_mean_pct: float | None = None
    n: int = 0
    """Samples of the host."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What an attempt's files show beside its steps: read with its tables and passed on unchanged in its measure."""

    source: str
    """Where its steps come from: `events`, `log:NAME`, or `whole` where only the length of the run is known."""
    world_size: int = 1
    ranks_known: bool = True
    """False where `world_size` is only the plan's and the run shows that it cannot be relied on."""
    effective: Effective = field(default_factory=dict)
    """As all ranks report them; `mixed: …` where they disagree."""
    health: RunHealth | None = None
    """None where it was not examined."""
    communicators: tuple[Communicator, ...] = ()
    """The process group of each rank, as far as known."""
    debug: tuple[DebugSetting, ...] = ()
    slow_signs: tuple[SlowSign, ...] = ()
    reported: dict[str, ReportedFigure] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunMeasure(RunFacts):
    """The measurements of one attempt."""

    window: Window | None = None
    window_s: float | None = None
    """Wall-clock time of the window's counted steps."""
    hosts: int = 1
    """Hosts that its ranks ran on, as far as they report them."""
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    """All ranks together, by wall clock over the window."""
    tokens_per_s: float | None = None
    audio_s_per_s: float | None = None
    """Seconds of audio, where the workload reports how many a sample has (AUDIO_PER_SAMPLE)."""
    wall_p50_ms: float | None = None
    wall_p90_ms: float | None = None
    wall_p99_ms: float | None = None
    wall_p90_over_p50: float | None = None
    last_step: int | None = None
    startup_s: float | None = None
    """Launch to the end of the first step."""
    first_loss: float | None = None
    last_loss: float | None = None
    loss_falls: bool | None = None
    """None for too few losses, and where they neither fall nor rise beyond their noise."""
    loss_finite: bool | None = None
    """False where a loss of any rank is nan or infinite; None without losses."""
    loss_ranks: int | None = None
    """Ranks that reported a loss."""
    loss_fall_pct: float | None = None
    """How far the mean of rank 0's last quarter of losses is below that of the first, in % of the latter; None below 8 losses."""
    steps_done: int | None = None
    """Steps of rank 0, by the step numbers it reported."""
    duration_s: float | None = None
    stage1: dict[str, Scalar] = field(default_factory=dict)
    """Stage 1's per-run columns that come from timing, by column name."""
    timing_points: tuple[TimingPoint, ...] = ()
    startup: dict[str, float] = field(default_factory=dict)
    """Parts of `startup_s` in seconds (STARTUP_PARTS), of the rank that was ready last; empty without the probe."""
    eta_points: tuple[EtaPoint, ...] = ()
    eta_quality: EtaQuality | None = None
    """Quality of the points of the plan's `timing.eta_mode`."""
    telemetry: dict[str, Scalar] = field(default_factory=dict)
    """Telemetry figures over the window, by column name (TELEMETRY_FIGURES)."""
    by_host: tuple[HostMeasure, ...] = ()
    """Hosts of a run on many, by node rank."""
    first_step_t: float | None = None
    """End of the slowest rank's first step on the harness's wall clock."""
    last_step_t: float | None = None
    """End of its last step."""
    loop_s: float | None = None
    """From the end of rank 0's first step to the end of its last."""
    slow_steps: SlowSteps | None = None
    last_steps: LastSteps | None = None
    loss_course: LossCurve | None = None
    memory: tuple[MemoryTrend, ...] = ()
    straggler: Straggler | None = None
    """None for a single rank."""
    jitter_causes: tuple[JitterCause, ...] = ()
    """Why its steps are uneven or slow, the strongest evidence first."""
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A geometric mean with its 95 % interval on logs; no interval below two values."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int = 1


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """What the summary of a campaign's group and a row of history both have."""

    group: str
    """Unique in the campaign: `~abcd` of the key is added where two configurations have the same name."""
    world_size: int = 1
    """The number of ranks of its newest run."""
    ranks_known: bool = True
    """False where `world_size` cannot be relied on, because it was not seen or the runs disagree: nothing is divided by it."""
    failed_runs: int = 0
    """Current runs that did not end ok, without interrupted ones and failures of the platform."""
    infrastructure_failures: tuple[str, ...] = ()
    """Current runs that failed because of the platform, each with its cause, `mb16_r2 (io_error)`: they do not count against the group, and
    need a re-run."""
    may_have_failed: int = 0
    """Counted runs that exited with 0 after a traceback or after too few steps: such a group cannot win."""
    debug: tuple[str, ...] = ()
    """Debug and tracing settings that any of its counted runs had: `NCCL_DEBUG=INFO`."""
    work: tuple[WorkSetting, ...] = ()
    """Settings that change the work of a sample or a step, with their values."""
    typed_work: dict[str, float] = field(default_factory=dict)
    """`samples_per_step` and `tokens_per_step`, where the plan gives them."""
    declares_work: bool = True
    """Whether its workload declares which settings change the work: of a script's own, those of an unknown name may."""
    effective_settings: tuple[EffectiveSetting, ...] = ()
    """Of its counted runs, as the workload reported them: groups are compared by these."""
    requested: dict[str, str] = field(default_factory=dict)
    """What the plan requests, as text, secrets masked: settings, axes, options of a script, `env.NAME`. A bundle's settings, not its
    name."""


@dataclass(frozen=True, kw_only=True)
class GroupSummary(GroupFacts):
    """All runs of one configuration on one kind of machine."""

    group_key: str
    mode: str
    lane: bool
    axes: dict[str, Scalar]
    runs: int
    """Runs that count: ok, and of the newest fingerprint."""
    failed_attempts: int = 0
    """Earlier attempts of these runs that failed before one ended ok."""
    set_aside_runs: int = 0
    """Runs that ended ok under other conditions (driver, GPU, commit, effective settings) and are not averaged."""
    broken_losses: int = 0
    """Counted runs with a loss that is not finite: such a group cannot win."""
    unsteady_runs: int = 0
    """Counted runs without a steady state."""
    counted: tuple[str, ...] = ()
    """Names of the counted runs."""
    fingerprint: str = ""
    """The machine and code of the counted runs."""
    figures: dict[str, Estimate] = field(default_factory=dict)
    """By name (figures.MEASURED)."""
    window_n: int = 0
    """Steps counted over all runs."""
    stage1: dict[str, Scalar] = field(default_factory=dict)
    """Stage 1's group columns, by column name."""
    stability: GroupStability | None = None
    cautions: tuple[Caution, ...] = ()

    @property
    def name(self) -> str:
        return self.group

    @property
    def campaign(self) -> str:
        """Empty: groups that are compared as summaries are of one campaign."""
        return ""

    @property
    def conditions(self) -> str:
        """Machine and code."""
        return self.fingerprint

    @property
    def varied(self) -> dict[str, str]:
        """Settings that may differ between groups, as text: the axes, bundles by their names."""
        return {name: "" if value is None else str(value) for name, value in self.axes.items()}

    def mean_of(self, figure: str) -> float | None:
        """None where not every run has the figure."""
        return self.figures[figure].mean if figure in self.figures else None
