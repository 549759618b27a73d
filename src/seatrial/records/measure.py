"""What analysis says of runs and groups. Every figure has its window and n beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.caution import Caution
from seatrial.records.eta import EtaPoint, EtaQuality
from seatrial.records.health import (
    DebugSetting,
    LastSteps,
    LossCourse,
    MemoryCourse,
    ReportedFigure,
    SlowSign,
    SlowSteps,
    Straggler,
    UnevenCause,
)
from seatrial.records.run_spec import Scalar
from seatrial.records.stability import GroupStability

Cell = str | int | float | bool | None
CONFIDENCE = 0.95
"""Of the intervals of single figures."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Which steps count for a number."""

    first_step: int
    last_step: int
    n: int
    """Steps counted: those of the window less the ones that held a pause."""
    warmup_steps: int
    """Steps before the window."""
    excluded_steps: int = 0
    """Steps inside the window left out by name: checkpoint, eval, compile."""
    steady: bool = True
    """False when no steady state was found; `reason` says why."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class TimingPoint:
    """One row of timing_points.csv: percentiles over the rolling window that ends at `step`."""

    index: int
    step: int
    values: dict[str, float | None]
    """`data_wait_ms_p50`, `data_wait_ms_p90`, … `iter_ms_p90`."""


@dataclass(frozen=True, kw_only=True)
class HarmlessCount:
    """One kind of warning that means nothing, and how often a run printed it."""

    id: str
    meaning: str
    lines: int


@dataclass(frozen=True, kw_only=True)
class RunHealth:
    """Whether a run was well, beside its figures."""

    ranks: int
    """Ranks that were started."""
    ranks_ended_well: int | None = None
    """None where nothing tells: of a failed run whose script has no probe and whose launcher does not speak of single ranks."""
    tracebacks: int = 0
    """In its output, those too that a script caught and printed."""
    harmless: tuple[HarmlessCount, ...] = ()
    halted: bool = False
    """Ranks ended because a halt file asked for it."""


@dataclass(frozen=True, kw_only=True)
class HostMeasure:
    """What one of many hosts did in the measured window; None where it was not sampled."""

    host: str
    gpus: int = 0
    """Of which there are samples."""
    cpu_busy_mean_pct: float | None = None
    rss_peak_mib: float | None = None
    net_rx_mean_mib_per_s: float | None = None
    """By all interfaces of the host, whoever it was for."""
    net_tx_mean_mib_per_s: float | None = None
    gpu_util_mean_pct: float | None = None
    n: int = 0
    """Samples of the host."""


@dataclass(frozen=True, kw_only=True)
class RunMeasure:
    """One attempt, measured."""

    source: str
    """`events`, `log:NAME`, or `whole` when only the length of the run is known."""
    window: Window | None = None
    window_s: float | None = None
    """Wall-clock time of the window's counted steps."""
    world_size: int = 1
    hosts: int = 1
    """Hosts that its ranks ran on, as far as they tell."""
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    """All ranks together, by wall clock over the window."""
    tokens_per_s: float | None = None
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
    """None when there are too few losses to say, or when they neither fall nor rise beyond their noise."""
    loss_finite: bool | None = None
    """False when a loss of any rank is nan or infinite; None when none was told."""
    loss_ranks: int | None = None
    """Ranks that told a loss."""
    loss_fall_pct: float | None = None
    """By how much the mean of rank 0's last quarter of losses is below that of the first, of the first; None below 8 losses."""
    steps_done: int | None = None
    """Steps that rank 0 did, by the numbers of those it told."""
    duration_s: float | None = None
    effective: dict[str, tuple[Scalar, Scalar, str]] = field(default_factory=dict)
    """Setting → requested, effective, reason."""
    seed: dict[str, Cell] = field(default_factory=dict)
    """The seeds' per-run columns that come from timing, by column name."""
    timing_points: tuple[TimingPoint, ...] = ()
    startup: dict[str, float] = field(default_factory=dict)
    """Parts of `startup_s` in seconds (STARTUP_PARTS), of the rank that was ready last; empty where the workload does not say."""
    eta_points: tuple[EtaPoint, ...] = ()
    eta_quality: EtaQuality | None = None
    """Of the points of the mode the plan asks for."""
    telemetry: dict[str, Cell] = field(default_factory=dict)
    """Figures of the machine over the window, by column name (TELEMETRY_FIGURES)."""
    by_host: tuple[HostMeasure, ...] = ()
    """Of a run on many hosts, by node rank."""
    first_step_t: float | None = None
    """Wall clock, by the harness's, at which the slowest rank's first step ended."""
    last_step_t: float | None = None
    """Likewise of the last step."""
    loop_s: float | None = None
    """From the end of rank 0's first step to that of its last."""
    health: RunHealth | None = None
    """None where nobody looked."""
    slow_steps: SlowSteps | None = None
    last_steps: LastSteps | None = None
    loss_course: LossCourse | None = None
    memory: tuple[MemoryCourse, ...] = ()
    straggler: Straggler | None = None
    """None for a single rank."""
    uneven: tuple[UnevenCause, ...] = ()
    """Why its steps are uneven, or slower than they could be; the strongest first."""
    debug: tuple[DebugSetting, ...] = ()
    slow_signs: tuple[SlowSign, ...] = ()
    reported: dict[str, ReportedFigure] = field(default_factory=dict)
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with its 95 % interval, both taken on logs; no interval below two values."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int = 1


@dataclass(frozen=True, kw_only=True)
class GroupSummary:
    """All runs of one configuration on one kind of machine."""

    group: str
    """Unique in the campaign: a `~abcd` of the key is added where two configurations carry one name."""
    group_key: str
    mode: str
    lane: bool
    axes: dict[str, Scalar]
    runs: int
    """Runs that count: ok, and of the newest fingerprint."""
    failed_runs: int
    """Current runs that did not end ok, interrupted ones and those that the platform failed not counted."""
    infrastructure_failures: tuple[str, ...] = ()
    """Current runs that the platform failed, each with its cause: they do not weigh on the group, and ask for a re-run."""
    failed_attempts: int = 0
    """Earlier attempts of these runs that failed before one ended ok."""
    set_aside_runs: int = 0
    """Runs that ended ok under other conditions (driver, GPU, commit, effective settings) and were not averaged."""
    broken_losses: int = 0
    """Counted runs in which a loss was no number: such a group cannot win."""
    unsteady_runs: int = 0
    """Counted runs in which no steady state was found."""
    counted: tuple[str, ...] = ()
    """Names of the runs that the figures are made of."""
    fingerprint: str = ""
    """Of the machine and code the counted runs ran on."""
    figures: dict[str, Estimate] = field(default_factory=dict)
    """By metric: samples_per_s, tokens_per_s, steps_per_s, wall_p50_ms, wall_p90_over_p50, startup_s, duration_s."""
    window_n: int = 0
    """Steps counted over all runs."""
    seed: dict[str, Cell] = field(default_factory=dict)
    """The seeds' group columns, by column name."""
    stability: GroupStability | None = None
    debug: tuple[str, ...] = ()
    """Debug and tracing settings that any of its counted runs had: `NCCL_DEBUG=INFO`."""
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RankedGroup:
    """A group's place in the order."""

    rank: int
    group: str
    value: float | None
    """The figure ranked by, geometric mean over the runs."""
    ratio: Estimate | None = None
    """This group over the one with the best mean, with its Welch interval on logs; None for that one and where it cannot be had."""
    tied: bool = False
    """Not told apart from that one by the data."""
    can_win: bool = True
    reason: str = ""
    """Why it cannot win, or why it is tied."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The order of all groups of the main lane, and of those off it."""

    metric: str
    unit: str
    higher_is_better: bool
    groups: tuple[RankedGroup, ...]
    off_lane: tuple[RankedGroup, ...] = ()
    winner: str | None = None
    """The first in order; among tied ones the one with the lower p90/p50."""
    latency_winner: str | None = None
    """The seeds' best: lowest mean tail iter p50."""
    decided: bool = False
    """True when the winner's runs are steady and it is told apart from every other group that can win, on one kind of machine."""
    reason: str = ""
    """One sentence: how the winner won, or why there is none."""
    cautions: tuple[Caution, ...] = ()
