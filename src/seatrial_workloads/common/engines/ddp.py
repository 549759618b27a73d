"""The DDP engine: DistributedDataParallel, AdamW, autocast and loss scaling. Checkpoint files:

model.pt              weights (without frozen ones if so configured); also usable as pretrained_checkpoint
training.pt           optimiser, scaler, number of updates, the trainer's extra
random_states_rank*.pt
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seatrial_workloads.common.checkpoints import load_random_states, load_tensors, save_random_states, save_tensors
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective import Choice
from seatrial_workloads.common.engines.adam import FUSED, REQUESTED, TORCH, create_torch_adam
from seatrial_workloads.common.engines.engine import (
    TRAINING,
    EngineOptions,
    forward_and_backward,
    frozen_names,
    load_trained_weights,
    trainable,
)
from seatrial_workloads.common.precision import Precision, choose_mixed_precision

MODEL = "model.pt"


class DdpEngine:
    """A single rank trains the bare model."""

    name = "ddp"
    cannot_compile = None

    def __init__(self, model: nn.Module, ranks: Ranks, precision: Precision, options: EngineOptions) -> None:
        self.model = model.to(ranks.device)
        self._ranks, self._precision, self._options = ranks, precision, options
        self._parameters = trainable(self.model)
        self._wrapped = self._wrap()
        self._optimizer = create_torch_adam(self._parameters, options, ranks)
        self._scaler = torch.amp.GradScaler(ranks.device.type, enabled=precision.needs_scaler)
        self._updates = 0
        mixed = choose_mixed_precision(options.mixed_precision, self.name, 0, precision.effective)
        self.choices = {**ddp_choices(options, on_gpu=ranks.device.type == "cuda"), "mixed_precision": mixed}

    def _wrap(self) -> nn.Module:
        if self._ranks.world_size == 1:
            return self.model
        # No static graph: it would expect a weight that only some batches use in every step after the first.
        return DistributedDataParallel(
            self.model,
            device_ids=[self._ranks.device.index] if self._ranks.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            **_no_buffer_sync(),
        )

    def forward(self, **inputs: Any) -> Tensor:
        with self._precision.autocast(self._ranks.device):
            loss: Tensor = self._wrapped(**inputs)
        return loss

    def backward(self, loss: Tensor) -> None:
        self._scaler.scale(loss).backward()

    def step(self) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self._options.lr_at(self._updates)
        if self._options.gradient_clipping:
            self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self._parameters, self._options.gradient_clipping)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()
        self._updates += 1

    def warm_up(self, **inputs: Any) -> None:
        forward_and_backward(self.model, self._precision.autocast(self._ranks.device), inputs)

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        if self._ranks.rank == 0:
            excluded = frozen_names(self.model) if self._options.exclude_frozen else set()
            weights = {name: value for name, value in self.model.state_dict().items() if name not in excluded}
            save_tensors(folder / MODEL, {"model": weights})
            training = {"optimizer": self._optimizer.state_dict(), "scaler": self._scaler.state_dict(), "updates": self._updates}
            save_tensors(folder / TRAINING, {**training, "extra": extra})
        save_random_states(folder, self._ranks.rank)

    def load(self, folder: Path) -> dict[str, Any]:
        load_trained_weights(self.model, load_tensors(folder / MODEL)["model"], folder / MODEL)
        training = load_tensors(folder / TRAINING)
        self._optimizer.load_state_dict(training["optimizer"])
        if training["scaler"] and self._scaler.is_enabled():
            self._scaler.load_state_dict(training["scaler"])
        self._updates = training["updates"]
        load_random_states(folder, self._ranks.rank)
        extra: dict[str, Any] = training["extra"]
        return extra

    def close(self) -> None:
        self._wrapped = self.model


def _no_buffer_sync() -> dict[str, bool]:
    """Do not broadcast buffers at every forward, since none changes; the argument was renamed in torch 2.13."""
    names = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers": False}


def ddp_choices(options: EngineOptions, *, on_gpu: bool) -> dict[str, Choice]:
    """The optimiser, and requested settings that only DeepSpeed has."""
    kind = f"{TORCH}, fused" if on_gpu else TORCH
    reason = f"ddp uses torch's; {FUSED} is DeepSpeed's" if options.torch_adam is False else "torch's"
    choices = {
        "optimizer": Choice(REQUESTED[options.torch_adam], kind, reason),
        "torch_adam": Choice(options.torch_adam, True, reason),
        "bucket_size": Choice(options.bucket_size, None, "it is ZeRO's"),
    }
    if options.wall_clock_breakdown:
        choices["wall_clock_breakdown"] = Choice(True, False, "only DeepSpeed times its own phases")
    return choices
