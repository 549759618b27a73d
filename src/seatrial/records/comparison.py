"""Comparison of two groups, and throughput over the number of GPUs."""

from __future__ import annotations

import enum
import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from seatrial.records.codec import to_json
from seatrial.records.measure import Estimate, GroupFacts, GroupSummary, LastSteps, LossCurve


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One run of a group with the data for a comparison."""

    run: str
    repeat: int
    started_t: float
    figures: dict[str, float]
    """By name (figures.MEASURED)."""
    steady: bool = True
    window: str = ""
    """`steps 40–199`."""
    n: int = 0
    last_steps: LastSteps | None = None
    loss: LossCurve | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """The same in every copy of the run."""
        return self.run, self.started_t, tuple(sorted(self.figures.items()))


@dataclass(frozen=True, kw_only=True)
class ComparedGroup(GroupFacts):
    """A group's counted runs, in a form that can be stored: a row of history is one of these."""

    name: str
    """For people: `mb16`, `OUT:mb16`, `history:v100-bf16`."""
    source: str
    """The folder of its campaign, as given, or the name of the history row."""
    runs: tuple[ComparedRun, ...]
    campaign: str = ""
    """Identifies the campaign, so that pairs are formed only within one: its resolved folder."""
    nodes: int = 1
    pending: tuple[str, ...] = ()
    machine: dict[str, str] = field(default_factory=dict)
    """The machine's part of the fingerprint: host, gpu_name, driver_version, power limit …"""
    code: dict[str, str] = field(default_factory=dict)
    """The code's part: commit, packages."""
    settings: dict[str, str] = field(default_factory=dict)
    """Its fixed settings, axes, and `env.NAME` of the plan, as text, secrets masked: unlike in `requested`, bundles by their names."""
    taken_t: float = 0.0
    """When its last run ended."""

    @property
    def effective(self) -> dict[str, str]:
        """What was in effect, as text."""
        return {one.name: one.effective_text for one in self.effective_settings}

    @property
    def conditions(self) -> str:
        """Machine and code."""
        return repr((sorted(self.machine.items()), sorted(self.code.items())))

    @property
    def varied(self) -> dict[str, str]:
        """Settings that may differ between groups, also of two campaigns."""
        return self.settings

    def mean_of(self, figure: str) -> float | None:
        """Geometric mean; None where not every run has the figure: it would be the mean of other runs than the rest."""
        values = [run.figures.get(figure) for run in self.runs]
        known = [value for value in values if value is not None and math.isfinite(value) and value > 0]
        return statistics.geometric_mean(known) if known and len(known) == len(values) else None


Group = GroupSummary | ComparedGroup
"""Of a ranking or of a comparison: whether two can be compared is asked of both kinds."""
# In the order of the file.
ROW_KEYS = (
    "name", "group", "source", "runs", "campaign", "world_size", "ranks_known", "nodes", "failed_runs", "may_have_failed",
    "infrastructure_failures", "pending", "machine", "code", "settings", "debug", "taken_t", "work", "typed_work", "declares_work",
    "effective_settings", "requested", "effective",
)  # fmt: skip


def group_json(group: ComparedGroup) -> dict[str, Any]:
    """A group as a row of history and `compare --json` have it: beside its fields `effective`, which other programs look up by name."""
    return {name: to_json(getattr(group, name)) for name in ROW_KEYS}


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """A reason against comparing two groups."""

    kind: str
    """`unlike_samples`, `unlike_steps`, `confounded`, `no_effect`."""
    metrics: tuple[str, ...]
    """Figures that it concerns: `samples_per_s`, `loss`; () for every figure."""
    text: str
    """`block_size (32 → 64) changes the size of a sample`, `tower_graph is on in z0 and off in z1 (…)`."""
    setting: str = ""
    """The setting and its values, of confounded groups all names; empty where what was measured shows it."""
    names: tuple[str, ...] = ()
    """Of confounded groups, the settings."""
    remedy: str = ""
    """The change after which groups are no longer confounded: `set fast_paths=equal`."""

    def concerns(self, metric: str) -> bool:
        return not self.metrics or metric in self.metrics


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """What must hold for figures of two groups to mean the same, where it is unknown."""

    metrics: tuple[str, ...]
    what: str
    """`a step` or `a sample`, whichever must be the same work."""
    settings: tuple[str, ...]
    """Names of the settings that differ and may change it."""

    def clause(self, where: str) -> str:
        """`if a step is the same work in every group`."""
        return f"if {self.what} is the same work {where}"


@dataclass(frozen=True, kw_only=True)
class Comparability:
    """Which figures of two groups can be compared: all without a mismatch, some of them only under an assumption."""

    mismatches: tuple[Mismatch, ...] = ()
    assumed: tuple[Assumed, ...] = ()

    def why_not(self, metric: str) -> str:
        """The reason against comparing by this figure; empty where there is none."""
        return next((each.text for each in self.mismatches if each.concerns(metric)), "")

    def assumption(self, metric: str) -> Assumed | None:
        """What a comparison by this figure assumes; None where it assumes nothing or is impossible."""
        return None if self.why_not(metric) else next((each for each in self.assumed if metric in each.metrics), None)

    def of_kind(self, kind: str) -> Mismatch | None:
        return next((each for each in self.mismatches if each.kind == kind), None)

    def without(self, kind: str) -> Comparability:
        """The same without reasons of this kind."""
        return Comparability(mismatches=tuple(each for each in self.mismatches if each.kind != kind), assumed=self.assumed)

    @property
    def text(self) -> str:
        """The first reason, for whatever figure; empty where there is none."""
        return self.mismatches[0].text if self.mismatches else ""


class Relation(str, enum.Enum):
    """How B compares with A."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    """The whole interval is within the margin that does not matter."""
    AMBIGUOUS = "AMBIGUOUS"


class LossVerdict(str, enum.Enum):
    """How B's loss compares with A's."""

    COMPARABLE = "comparable"
    WORSE = "worse"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class LossParity:
    """Whether a speed-up harms the training, with the means that were compared."""

    verdict: LossVerdict
    reason: str
    difference: float | None = None
    """B's loss minus A's over the last quarter of the steps that both have."""
    allowed: float | None = None
    loss_a: float | None = None
    loss_b: float | None = None
    """The means that are compared."""
    last_step: int | None = None
    n: int = 0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """B against A. The interval on logs decides; the bootstrap is shown beside it."""

    a: str
    b: str
    metric: str
    unit: str
    """`samples/s`; `samples/s per GPU` (`per rank` without GPUs) where the two ran on different numbers of ranks."""
    higher_is_better: bool
    relation: Relation
    reason: str
    """One sentence, complete by itself."""
    method: str = ""
    """`paired t on logs, 5 pairs`, `Welch on logs, 5 and 5 runs`, between preset and correction; empty without an interval."""
    value_a: Estimate | None = None
    value_b: Estimate | None = None
    ratio: Estimate | None = None
    """B over A with its interval, widened for multiple comparisons."""
    confidence: float = 0.95
    """Confidence of that interval alone: above 0.95 where several comparisons must hold together with 0.95."""
    bootstrap_low: float | None = None
    bootstrap_high: float | None = None
    chance: float | None = None
    """Two-sided p-value, corrected for multiple comparisons (Holm)."""
    comparisons: int = 1
    """Number of comparisons it was corrected for."""
    detectable_pct: float | None = None
    """The smallest difference that these runs would detect with a power of 80 %; None with too few runs to tell."""
    margin_pct: float = 1.0
    loss: LossParity | None = None
    blocked: str = ""
    """Why the code cannot be judged: failures of the platform that need a re-run."""
    differs: tuple[str, ...] = ()
    """Settings in effect, code and packages in which the two differ: the purpose of an A/B, so it is not refused for them."""
    settings_apart: tuple[str, ...] = ()
    """Names of the settings that were requested differently and differed in effect, as far as known."""
    condition: str = ""
    """What must hold for the result to mean anything, where that is unknown: `if a step is the same work in both`."""
    cautions: tuple[str, ...] = ()
    confounded: str = ""
    """What confounds them, where they were compared anyway (`--allow-confounded`) or in a list with others."""


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """Throughput at one number of GPUs (ranks where there are none)."""

    gpus: int
    nodes: int
    group: str
    source: str
    value: Estimate
    """The total of all ranks."""
    per_gpu: Estimate
    efficiency: Estimate
    """Throughput per GPU over that of the smallest number, with its interval."""
    step_ms: float
    runs: int
    weak: bool = True
    """Whether the work of one GPU is constant (weak scaling); False where the total is (strong scaling)."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """The fit's prediction for a number of GPUs that was not run."""

    gpus: int
    value: float
    low: float
    high: float
    efficiency: float
    bound_by: str
    """`compute`, `bandwidth`, `latency`: the largest part of the step there."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """How throughput grows with the number of GPUs, measured and by a fit of compute, bandwidth and latency."""

    metric: str
    unit: str
    points: tuple[ScalingPoint, ...]
    compute_ms: float | None = None
    """The part of a step that does not depend on the number of GPUs."""
    bandwidth_ms: float | None = None
    """Time of a ring over N GPUs for their data, times (N - 1) / N."""
    latency_ms: float | None = None
    """Added by each doubling."""
    projections: tuple[Projection, ...] = ()
    reason: str = ""
    """One sentence: what limits it, or why there is no fit."""
    cautions: tuple[str, ...] = ()
    family: str = ""
    """What distinguishes its groups from other configurations, `micro_batch=8`; empty where there are none."""
    worker: str = "GPU"
    """The unit of scaling: `GPU`, or `rank` where the machines have none."""

    @property
    def is_measured(self) -> bool:
        """Whether two numbers of GPUs or more were run."""
        return len({point.gpus for point in self.points}) > 1
