"""Whether a training is healthy, by the figures it reports itself. In: one sample after another. Out: an `Anomaly` or None. Pure.

A sample counts once, by its step. Stalls are judged against the measured step time in `observe/stall.py`. The
harness takes the samples from heartbeats (`probe.progress`), the sparse-LM watchdog from the trainer's tables, else from heartbeats.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from seatrial.records.sparse_lm_halt import NAN_LOSS, SKIPPED_IN_A_ROW

ZERO_GRAD, FLATLINE, GATE_COLLAPSE = "zero_grad", "throughput_flatline", "gate_collapse"
# Share of the median before: a run this much slower is stuck, whatever the cause.
FLATLINE_RATIO = 0.1
# A single zero may be chance.
ZERO_GRADS_IN_A_ROW = 2
COLLAPSED_SHARE = 0.5
MIN_SPEEDS, MAX_SPEEDS = 5, 200


@dataclass(frozen=True, kw_only=True)
class HealthLimits:
    """When figures count as an anomaly."""

    flatline_n: int = 4
    """Samples in a row without throughput."""
    gate_collapse_n: int = 3
    """Samples in a row with collapsed gates."""
    gate_entropy_min: float = 0.2
    """Mean entropy of the gates below which they have collapsed; three equal branches have ln 3 = 1.0986."""
    gate_max_threshold: float = 0.9
    """Mean of the largest gate above which they have collapsed. A single confident token is not a collapse."""


@dataclass(frozen=True, kw_only=True)
class HealthSample:
    """A training's figures of one step; None if not reported."""

    step: int
    loss: float | None = None
    tokens_per_s: float | None = None
    grad_norm: float | None = None
    skipped_in_a_row: int = 0
    """Steps up to this one that a loss scaler skipped, for gradients beyond the range of fp16."""
    gates: Mapping[str, float] = field(default_factory=dict)
    """`entropy_mean`, `max_gate_mean`, `collapse_frac`, and other reported figures."""
    gates_step: int | None = None
    """The step at which the gates were measured, where that may be an earlier one."""


@dataclass(frozen=True, kw_only=True)
class Anomaly:
    """A problem, as a word for other programs and as a sentence."""

    kind: str
    text: str
    step: int | None = None
    details: Mapping[str, object] = field(default_factory=dict)


GATE_FIELDS = {
    "entropy_mean": "gate_entropy_mean",
    "entropy_min": "gate_entropy_min",
    "max_gate_mean": "gate_max_mean",
    "max_gate_max": "gate_max_max",
    "collapse_frac": "gate_collapse_frac",
}
"""Figure → field of a heartbeat and column of k_stats.csv."""


def read_sample(step: int, values: Mapping[str, Any]) -> HealthSample:
    """The sample in the fields of a heartbeat or a table's row; what is not a number is left out. `step` is that of the line; its
    figures may be those of an earlier one, `figures_step`."""
    gates = {name: value for name, field in GATE_FIELDS.items() if (value := _number(values.get(field))) is not None}
    gates_step, figures_step = _number(values.get("gate_step")), _number(values.get("figures_step"))
    skipped = _number(values.get("skipped_in_a_row"))
    return HealthSample(
        step=int(figures_step) if figures_step is not None and math.isfinite(figures_step) else step,
        loss=_number(values.get("loss")),
        tokens_per_s=_number(values.get("toks_per_s")),
        grad_norm=_number(values.get("grad_norm")),
        skipped_in_a_row=int(skipped) if skipped is not None and math.isfinite(skipped) else 0,
        gates=gates,
        gates_step=int(gates_step) if gates_step is not None and math.isfinite(gates_step) else None,
    )


def _number(value: object) -> float | None:
    """A number, also one that is not finite or is written as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


FIGURES: dict[str, Callable[[HealthSample], object]] = {
    "loss": lambda sample: sample.loss is not None,
    "gradient norm": lambda sample: sample.grad_norm is not None,
    "throughput": lambda sample: sample.tokens_per_s is not None,
    "gates": lambda sample: sample.gates,
}
"""Judged figure → whether a sample has it."""


class HealthJudge:
    """Judges the samples of one run."""

    def __init__(self, limits: HealthLimits | None = None) -> None:
        self._limits = limits or HealthLimits()
        self._step = -1
        self.unseen = list(FIGURES)
        """Figures that no sample has had so far: they cannot be judged."""
        self._speeds: deque[float] = deque(maxlen=MAX_SPEEDS)
        self._slow = self._zero = 0
        self._collapsed: list[HealthSample] = []
        self._gates_step: int | None = None

    def check(self, sample: HealthSample) -> Anomaly | None:
        """The first anomaly that the sample completes; None for a step that was judged before."""
        if sample.step <= self._step:
            return None
        self._step = sample.step
        self.unseen = [name for name in self.unseen if not FIGURES[name](sample)]
        # All are evaluated, since each counts samples.
        found = [self._nan(sample), self._zero_grad(sample), self._flatline(sample), self._gate_collapse(sample)]
        return next((anomaly for anomaly in found if anomaly is not None), None)

    def _nan(self, sample: HealthSample) -> Anomaly | None:
        for name, value in (("loss", sample.loss), ("gradient norm", sample.grad_norm)):
            if value is not None and not math.isfinite(value):
                return Anomaly(kind=NAN_LOSS, text=f"the {name} is {value} at step {sample.step}", step=sample.step)
        if sample.skipped_in_a_row >= SKIPPED_IN_A_ROW:
            text = f"{sample.skipped_in_a_row} steps in a row, up to step {sample.step}, were skipped: their gradients overflow fp16"
            return Anomaly(kind=NAN_LOSS, text=text, step=sample.step)
        return None

    def _zero_grad(self, sample: HealthSample) -> Anomaly | None:
        if sample.grad_norm is None:
            return None
        self._zero = self._zero + 1 if sample.grad_norm == 0 else 0
        if self._zero != ZERO_GRADS_IN_A_ROW:
            return None
        text = f"the gradient norm is 0 on {self._zero} samples in a row, up to step {sample.step}"
        return Anomaly(kind=ZERO_GRAD, text=text, step=sample.step)

    def _flatline(self, sample: HealthSample) -> Anomaly | None:
        speed = sample.tokens_per_s
        if speed is None:
            return None
        usual = median(self._speeds) if len(self._speeds) >= MIN_SPEEDS else None
        is_slow = speed <= 0 or (usual is not None and speed < FLATLINE_RATIO * usual)
        self._slow = self._slow + 1 if is_slow else 0
        if not is_slow:
            self._speeds.append(speed)
        if self._slow != self._limits.flatline_n:
            return None
        against = "" if usual is None else f" (median before: {usual:,.0f})"
        text = f"{speed:,.0f} tokens/s{against} on {self._slow} samples in a row, up to step {sample.step}"
        return Anomaly(kind=FLATLINE, text=text, step=sample.step)

    def _gate_collapse(self, sample: HealthSample) -> Anomaly | None:
        measured = sample.step if sample.gates_step is None else sample.gates_step
        if not sample.gates or measured == self._gates_step:
            return None
        self._gates_step = measured
        why = self._why_collapsed(sample.gates)
        self._collapsed = [*self._collapsed, sample] if why else []
        if len(self._collapsed) != self._limits.gate_collapse_n:
            return None
        details = {
            "limits": {name: getattr(self._limits, name) for name in ("gate_entropy_min", "gate_max_threshold", "gate_collapse_n")},
            "samples": [{"step": one.step, **one.gates} for one in self._collapsed],
        }
        text = f"{why} on {len(self._collapsed)} samples in a row, up to step {sample.step}"
        return Anomaly(kind=GATE_COLLAPSE, text=text, step=sample.step, details=details)

    def _why_collapsed(self, gates: Mapping[str, float]) -> str:
        limits = self._limits
        entropy, largest = gates.get("entropy_mean", math.inf), gates.get("max_gate_mean", 0.0)
        share = gates.get("collapse_frac", 0.0)
        if entropy < limits.gate_entropy_min:
            return f"mean gate entropy {entropy:.3f}, below {limits.gate_entropy_min}"
        if largest > limits.gate_max_threshold:
            return f"mean of the largest gate {largest:.3f}, above {limits.gate_max_threshold}"
        return f"{100 * share:.0f} % of the gates collapsed" if share > COLLAPSED_SHARE else ""
