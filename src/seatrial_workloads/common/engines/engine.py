"""What an engine is. In: a model whose forward gives the loss, the ranks, the precision, the options. Out: an Engine.

The model's weights that require gradients are trained with AdamW, clipped and scheduled the same way by every engine; the others are
left as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.precision import Precision
from seatrial_workloads.common.schedule import lr_factor

NAMES = ("ddp", "deepspeed")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How the update is made; the fields from `zero_stage` on are DeepSpeed's alone."""

    lr: float
    """Learning rate of AdamW at the end of the warm-up."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup_steps: int = 0
    """Steps over which the learning rate rises."""
    schedule_steps: int = 100_000
    """Steps after which it has come down to its least."""
    min_lr_ratio: float = 1e-4
    """Least learning rate as a share of lr."""
    gradient_clipping: float = 1.0
    """Largest norm of the gradient; 0 for none."""
    exclude_frozen: bool = True
    """Leave weights that do not train out of checkpoints."""
    micro_batch: int = 1
    """Rows of one rank in one step."""

    zero_stage: int = 0
    """Stage of ZeRO, 0 to 3."""
    torch_adam: bool | None = None
    """True takes torch's AdamW, false insists on FusedAdam; None takes FusedAdam where it can be had."""
    overlap_comm: bool = True
    """Let communication run beside the backward pass."""
    bucket_size: int = 200_000_000
    """Elements in one communication."""
    persistence_threshold: int = 100_000
    """Weights of fewer elements stay whole on every rank under ZeRO 3."""
    wall_clock_breakdown: bool = False
    """Let DeepSpeed time its own phases and print them; it synchronises for that."""
    mixed_precision: str = "auto"
    """How bf16 and fp16 are computed: autocast (weights in fp32), weights (weights in 16 bits, fp32 copies in the optimiser), or auto:
    autocast for ZeRO 0, where it is what ddp does, and weights for the others, where it is what they save memory with."""

    def lr_at(self, step: int) -> float:
        """Learning rate of the update after step `step`, counted from 0."""
        return self.lr * lr_factor(step, warmup_steps=self.warmup_steps, schedule_steps=self.schedule_steps, min_ratio=self.min_lr_ratio)


class Engine(Protocol):
    """One rank's side of a training. All ranks make the same calls in the same order."""

    name: str
    model: nn.Module
    """The bare model: for train() and eval(), and to look at."""
    choices: dict[str, Choice]
    """What settings came to: optimizer, and those that have no effect here."""
    cannot_compile: str | None
    """Why torch.compile cannot work with it; None where it can."""

    def forward(self, **inputs: Any) -> Tensor:
        """The loss, computed in the effective precision; under torch.no_grad also for a validation."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss, brought together over all ranks."""
        ...

    def step(self) -> None:
        """Clip, update with this step's learning rate, clear the gradients."""
        ...

    def warm_up(self, **inputs: Any) -> None:
        """Forward and backward of this rank alone, as in training, without a trace in weights or gradients: what a compiler needs to see.
        A model that talks to other ranks in its forward needs all of them here."""
        ...

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Weights, optimiser, scaler, step and random numbers into a folder; every rank calls it. `extra` is the trainer's own, of plain
        values and tensors."""
        ...

    def load(self, folder: Path) -> dict[str, Any]:
        """Go on from what `save` wrote; gives back `extra`."""
        ...

    def close(self) -> None:
        """Let go of everything that uses the process group."""
        ...


def make_engine(name: str, model: nn.Module, ranks: Ranks, precision: Precision, options: EngineOptions) -> Engine:
    """The engine called `name`; only the one asked for is imported."""
    if name == "ddp":
        from seatrial_workloads.common.engines.ddp import DdpEngine

        return DdpEngine(model, ranks, precision, options)
    if name == "deepspeed":
        from seatrial_workloads.common.engines.deepspeed_engine import DeepSpeedEngine

        return DeepSpeedEngine(model, ranks, precision, options)
    raise ValueError(f"engine is '{name}'; expected one of {', '.join(NAMES)}")


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """What the optimiser is given, in the model's order."""
    found = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not found:
        raise ValueError("no weight of the model requires a gradient: there is nothing to train")
    return found
