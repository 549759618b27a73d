"""The engine interface: gradients, optimiser and checkpoint files of a training, by DDP or DeepSpeed.

In: a model whose forward returns the loss, the ranks, the precision, the options. Every engine trains the weights that require gradients
with AdamW and the same clipping and schedule.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from seatrial.core.text import join_names
from seatrial_workloads.common.checkpoints import CheckpointError
from seatrial_workloads.common.effective_settings import Choice

MAX_NAMED = 3

Startup = Callable[[str], contextlib.AbstractContextManager[object]]
"""Times a named part of the start-up."""


def no_startup(name: str) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext()


SCHEDULES = ("log_cosine", "linear_cosine", "linear_constant")


@dataclass(frozen=True, kw_only=True)
class DdpOptions:
    """How DistributedDataParallel exchanges gradients; without effect on a single rank."""

    bucket_mb: float | None = None
    """MiB of gradients per all-reduce; None is torch's own, 25."""
    static_graph: bool = False
    """Every step uses the same weights: off where one that only some batches use would then be missed."""
    bucket_view: bool = True
    """Gradients are views into the buckets, which saves a copy of them."""
    compression: str = "none"
    """Format in which gradients are exchanged: none (their own), bf16 or fp16."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Optimiser, schedule and checkpoint options; those of `ddp`, `accumulate`, `fused_adam` and `measure_grad_norm` apply to DDP only, the
    fields from `zero_stage` on to DeepSpeed only."""

    lr: float
    """Learning rate of AdamW at the end of the warm-up."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup_steps: int = 0
    """Steps over which the learning rate rises."""
    schedule_steps: int = 100_000
    """Steps until it reaches its minimum."""
    min_lr_ratio: float = 1e-4
    """Minimum learning rate as a share of lr."""
    schedule: str = "log_cosine"
    """Warm-up (logarithmic, as DeepSpeed's, or linear) and what follows: cosine decay or a constant rate."""
    gradient_clipping: float = 1.0
    """Maximum gradient norm; 0 for no clipping."""
    measure_grad_norm: bool = False
    """Compute the norm where nothing is clipped, too; ddp only."""
    exclude_frozen: bool = True
    """Leave frozen weights out of checkpoints."""
    micro_batch: int = 1
    """Rows of one rank in one step."""
    mixed_precision: str = "auto"
    """How 16-bit formats are used: auto, autocast, weights, by_precision, or pure (ddp only: no fp32 weights)."""
    accumulate: int = 1
    """Calls of `backward` per `step`; gradients are exchanged in the last."""
    fused_adam: bool | None = None
    """torch's fused AdamW; None uses it on a GPU."""
    ddp: DdpOptions = DdpOptions()

    zero_stage: int = 0
    """Stage of ZeRO, 0 to 3."""
    torch_adam: bool | None = None
    """True uses torch's AdamW, false requires FusedAdam; None uses FusedAdam where it is available."""
    overlap_comm: bool = True
    """Overlap communication with the backward pass."""
    bucket_size: int = 200_000_000
    """Elements per collective."""
    parameter_alignment: bool = True
    """Align each weight to 16 bytes in the flat buffers of ZeRO 1 and 2; false for checkpoints that were saved without."""
    persistence_threshold: int = 100_000
    """Weights with fewer elements are not sharded under ZeRO 3."""
    wall_clock_breakdown: bool = False
    """Let DeepSpeed time its own phases and print them; it synchronises for that."""

    def __post_init__(self) -> None:
        assert self.schedule in SCHEDULES, self.schedule

    def lr_at(self, step: int) -> float:
        """Learning rate of step `step`, counted from 0."""
        if self.schedule != "log_cosine":
            return self.lr * self._linear_factor(step)
        # log(1) is 0: as in DeepSpeed, the shortest warm-up is two steps.
        warmup_steps = max(2, self.warmup_steps) if self.warmup_steps else 0
        if step < warmup_steps:
            return self.lr * (math.log(step + 1) / math.log(warmup_steps))
        decay_steps = max(1, self.schedule_steps - warmup_steps)
        progress = min(1.0, (step - warmup_steps + 1) / decay_steps)
        return self.lr * (self.min_lr_ratio + (1 - self.min_lr_ratio) * (1 + math.cos(math.pi * progress)) / 2)

    def _linear_factor(self, step: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "linear_constant":
            return 1.0
        progress = min(1.0, (step - self.warmup_steps) / max(1, self.schedule_steps - self.warmup_steps))
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * (1 + math.cos(math.pi * progress)) / 2


class Engine(Protocol):
    """One rank's engine. All ranks make the same calls in the same order."""

    name: str
    model: nn.Module
    """The unwrapped model."""
    choices: dict[str, Choice]
    """Effective settings: the optimiser, and those without effect."""
    cannot_compile: str | None
    """Why torch.compile cannot work with it; None where it can."""
    grad_norm: Tensor | None
    """Norm of the last step's gradients before clipping, on the device; None where it was not computed. Under loss
    scaling it is not finite in a step that the scaler skipped."""

    def forward(self, **inputs: Any) -> Tensor:
        """The loss in the effective precision; also used for validation, under torch.no_grad."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss, reduced over all ranks; with `accumulate`, their mean over so many calls, reduced in the last."""
        ...

    def step(self) -> None:
        """Clip, update with this step's learning rate, zero the gradients."""
        ...

    def warm_up(self, **inputs: Any) -> None:
        """Local forward and backward as in training, leaving weights and gradients unchanged, to trigger compilation. A model with
        collectives in its forward needs all ranks here."""
        ...

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Write weights, optimiser, scaler, step and random states into a folder; called by every rank. `extra` is the trainer's, of
        plain values and tensors."""
        ...

    def load(self, folder: Path) -> dict[str, Any]:
        """Restore what `save` wrote; returns `extra`."""
        ...

    def close(self) -> None:
        """Release everything that uses the process group."""
        ...


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Trainable parameters, in the model's order."""
    found = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not found:
        raise ValueError("no weight of the model requires a gradient: nothing to train")
    return found


# Engine state besides weights; written by rank 0.
TRAINING = "training.pt"


def frozen_names(model: nn.Module) -> set[str]:
    """Names of frozen weights, including every alias of shared ones."""
    return {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}


def load_trained_weights(model: nn.Module, weights: dict[str, Tensor], source: Path) -> None:
    """Load weights; a CheckpointError where a trainable one is missing or one is unknown."""
    own = model.state_dict().keys()
    differences = {"lacks": own - weights.keys() - frozen_names(model), "has also": weights.keys() - own}
    named = [f"{what} {join_names(sorted(names), MAX_NAMED)}" for what, names in differences.items() if names]
    if named:
        raise CheckpointError(f"{source} is of another model: it {', and '.join(named)}; resume with the settings it was saved with")
    try:
        model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise CheckpointError(f"{source} does not fit this model ({why}): resume with the settings it was saved with") from error


def forward_and_backward(model: nn.Module, autocast: contextlib.AbstractContextManager[object], inputs: Mapping[str, Any]) -> None:
    """Compute gradients without storing them."""
    with autocast:
        loss = model(**inputs)
    torch.autograd.grad(loss, trainable(model), allow_unused=True)
