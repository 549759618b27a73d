"""DeepSpeed, ZeRO 0 to 3. In: see engine.py. Out: an Engine.

A checkpoint is DeepSpeed's own (`mp_rank_00_model_states.pt`, `zero_pp_rank_*_optim_states.pt`; `zero_to_fp32.py` beside the checkpoints
turns one into plain weights), with two files of ours: training.pt and random_states_rank*.pt.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seatrial_workloads.common.checkpoints.saved_tensors import CheckpointError, load_tensors, save_tensors
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.compiling import first_words
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.engines.adam import make_adam
from seatrial_workloads.common.engines.deepspeed_config import choose_mixed_precision, deepspeed_config
from seatrial_workloads.common.engines.deepspeed_files import CheckpointFiles, put_in_place
from seatrial_workloads.common.engines.deepspeed_start import start_deepspeed
from seatrial_workloads.common.engines.engine import EngineOptions, trainable
from seatrial_workloads.common.engines.engine_files import (
    TRAINING,
    load_own_random_states,
    load_trained_weights,
    save_own_random_states,
)
from seatrial_workloads.common.engines.warm_up import forward_and_backward
from seatrial_workloads.common.precision import Precision

ZERO_3_IS_HOOKS = "ZeRO 3 brings weights together in hooks that torch.compile cannot follow"


class DeepSpeedEngine:
    """DeepSpeed's engine around the model."""

    name = "deepspeed"

    def __init__(self, model: nn.Module, ranks: Ranks, precision: Precision, options: EngineOptions) -> None:
        refuse_scalars(model)
        self.model = model.to(ranks.device)
        self._ranks, self._precision, self._options = ranks, precision, options
        self._updates = 0
        deepspeed = start_deepspeed(ranks, talkative=options.wall_clock_breakdown)
        parameters = trainable(self.model)
        optimizer, adam = make_adam(deepspeed, parameters, options, ranks)
        mixed = choose_mixed_precision(options.mixed_precision, options.zero_stage, precision.effective)
        self._autocasts_inside = mixed.effective == "weights"
        if self._autocasts_inside:
            self.model.forward = autocast_inside(self.model.forward, ranks.device.type, precision.dtype)
        config = deepspeed_config(options, precision.effective, mixed.effective)
        self._engine: Any = deepspeed.initialize(model=self.model, optimizer=optimizer, config=config, dist_init_required=False)[0]
        self._files = CheckpointFiles(self._engine)
        if options.zero_stage == 0:
            self._make_lean(parameters)
        self.cannot_compile = ZERO_3_IS_HOOKS if options.zero_stage == 3 else None
        self.choices = {"optimizer": adam, "mixed_precision": mixed, **without_effect(options)}

    def _make_lean(self, parameters: list[nn.Parameter]) -> None:
        """ZeRO 0 without what costs time and gives nothing: DeepSpeed's clipping takes weights one by one and waits for the GPU, and its
        all-reduce copies every gradient twice also where a rank is alone."""
        clip = functools.partial(nn.utils.clip_grad_norm_, parameters, self._options.gradient_clipping)
        put_in_place(self._engine, "clip_fp32_gradients", clip)
        put_in_place(self._engine, "enable_backward_allreduce", self._ranks.world_size > 1)

    def forward(self, **inputs: Any) -> Tensor:
        loss: Tensor = self._engine(**inputs)
        return loss

    def backward(self, loss: Tensor) -> None:
        self._engine.backward(loss)

    def step(self) -> None:
        for group in self._engine.optimizer.param_groups:
            group["lr"] = self._options.lr_at(self._updates)
        self._engine.step()
        self._updates += 1

    def warm_up(self, **inputs: Any) -> None:
        computing = contextlib.nullcontext() if self._autocasts_inside else self._precision.autocast(self._ranks.device)
        forward_and_backward(self.model, computing, inputs)

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Nothing is raised before all ranks are through: DeepSpeed has them wait for each other on the way."""
        with self._files.failing_later():
            self._engine.save_checkpoint(
                str(folder.parent), tag=folder.name, save_latest=False, exclude_frozen_parameters=self._options.exclude_frozen
            )
        if self._ranks.rank == 0:
            save_tensors(folder / TRAINING, {"updates": self._updates, "scaler": self._scaler_state(), "extra": extra})
        save_own_random_states(folder, self._ranks.rank)

    def load(self, folder: Path) -> dict[str, Any]:
        training = load_tensors(folder / TRAINING)
        self._load_deepspeeds_own(folder)
        if training["scaler"] and self._scaler is not None:
            self._scaler.load_state_dict(training["scaler"])
        self._updates = training["updates"]
        load_own_random_states(folder, self._ranks.rank)
        extra: dict[str, Any] = training["extra"]
        return extra

    def _load_deepspeeds_own(self, folder: Path) -> None:
        """Frozen weights may be left out of a checkpoint, others may not: DeepSpeed by itself knows only all or anything."""

        def load_weights(src: dict[str, Tensor], dst: nn.Module) -> None:
            load_trained_weights(dst, src, folder)

        try:
            loaded, _ = self._engine.load_checkpoint(
                str(folder.parent), tag=folder.name, load_lr_scheduler_states=False, custom_load_fn=load_weights
            )
        # It asserts that there are files, and looks into them without asking.
        except (AssertionError, KeyError) as error:
            raise CheckpointError(f"{folder} cannot be loaded ({first_words(error)}): not whole, or of another ZeRO stage") from error
        if loaded is None:
            raise CheckpointError(f"{folder} has no weights of DeepSpeed's: the checkpoint is not whole, take an older one")

    @property
    def _scaler(self) -> torch.amp.GradScaler | None:
        """That of fp16 autocast under ZeRO 0, which DeepSpeed does not save; its other scalers it does."""
        scaler: torch.amp.GradScaler | None = self._engine.torch_autocast_z0_gradscaler
        return scaler

    def _scaler_state(self) -> dict[str, Any]:
        return self._scaler.state_dict() if self._scaler is not None else {}

    def close(self) -> None:
        if self._engine is not None:
            self._engine.destroy()
        self._engine = self._files = None


def autocast_inside(forward: Callable[..., Tensor], device_type: str, dtype: torch.dtype) -> Callable[..., Tensor]:
    """Weights in 16 bits want inputs in 16 bits: autocast brings each operation's together. It stands inside, since DeepSpeed turns off
    one that stands around it."""

    @functools.wraps(forward)
    def with_autocast(*args: Any, **kwargs: Any) -> Tensor:
        with torch.autocast(device_type, dtype=dtype):
            return forward(*args, **kwargs)

    return with_autocast


def refuse_scalars(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise ValueError(f"{name} is a weight without dimensions, which DeepSpeed cannot send between ranks: give it the shape (1,)")


def without_effect(options: EngineOptions) -> dict[str, Choice]:
    """What was asked for and plays no part."""
    if options.zero_stage == 0 and options.overlap_comm:
        return {"overlap_comm": Choice(True, False, "ZeRO 0 brings gradients together after the backward pass")}
    return {}
