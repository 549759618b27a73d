"""The DeepSpeed engine, ZeRO 0 to 3: configuration, start on this rank, and safe checkpoint files."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from seatrial_workloads.common.checkpoints import CheckpointError, load_random_states, load_tensors, save_random_states, save_tensors
from seatrial_workloads.common.distributed import Ranks, ensure_process_group
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.engines.adam import TORCH, create_adam
from seatrial_workloads.common.engines.engine import (
    TRAINING,
    EngineOptions,
    Startup,
    forward_and_backward,
    load_trained_weights,
    no_startup,
    trainable,
)
from seatrial_workloads.common.errors import StartupError, summarize_error
from seatrial_workloads.common.precision import AUTOCAST, TORCH_NAMES, WEIGHTS, Precision, choose_mixed_precision


def deepspeed_config(options: EngineOptions, precision: str, mixed: str) -> dict[str, Any]:
    """DeepSpeed's configuration; `mixed` is the effective mixed precision mode: autocast or weights."""
    return {
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": options.gradient_clipping,
        "zero_optimization": _zero_section(options),
        # The optimiser is created here, and DeepSpeed lists only its own as tested.
        "zero_allow_untested_optimizer": True,
        "wall_clock_breakdown": options.wall_clock_breakdown,
        "steps_per_print": None,
        # The throughput timer synchronises with the GPU twice per step.
        "timers": {"throughput": {"enabled": False, "synchronized": False}},
        **_precision_section(precision, mixed),
    }


def _zero_section(options: EngineOptions) -> dict[str, Any]:
    if options.zero_stage == 0:
        return {"stage": 0}
    section: dict[str, Any] = {
        "stage": options.zero_stage,
        "overlap_comm": options.overlap_comm,
        "reduce_bucket_size": options.bucket_size,
        "allgather_bucket_size": options.bucket_size,
    }
    if options.zero_stage == 3:
        section["stage3_param_persistence_threshold"] = options.persistence_threshold
    else:
        # A weight of odd size shifts all behind it, and matrix products with unaligned ones take twice as long on an H200.
        section["parameter_alignment"] = options.parameter_alignment
    return section


def _precision_section(precision: str, mixed: str) -> dict[str, Any]:
    if precision == "fp32":
        return {}
    if mixed == AUTOCAST:
        return {"torch_autocast": {"enabled": True, "dtype": TORCH_NAMES[precision]}}
    if precision == "bf16":
        # bf16 has the range of fp32: an overflow check would only synchronise with the GPU, and ddp has none either.
        return {"bf16": {"enabled": True, "check_grad_overflow": False}}
    return {"fp16": {"enabled": True}}


class CheckpointFiles:
    """Replaces how DeepSpeed's engine writes and reads files: fsync, safe load, errors raised after all ranks have finished."""

    def __init__(self, engine: Any) -> None:
        self._failure: Exception | None = None
        self._copy_recovery_script = engine._copy_recovery_script
        replace_attribute(engine, "_copy_recovery_script", self.copy_recovery_script)
        replace_attribute(engine.checkpoint_engine, "save", self.save)
        replace_attribute(engine.checkpoint_engine, "load", self.load)

    def save(self, state_dict: Any, path: str) -> None:
        with self._deferring_errors():
            save_tensors(Path(path), state_dict)

    def copy_recovery_script(self, folder: str) -> None:
        """Copy zero_to_fp32.py next to the checkpoints."""
        with self._deferring_errors():
            self._copy_recovery_script(folder)

    def load(self, path: str, map_location: Any = None) -> Any:
        return load_tensors(Path(path), safe_classes=deepspeed_classes())

    @contextlib.contextmanager
    def raising_deferred(self) -> Iterator[None]:
        """Raise at the end the first error of the block's file operations."""
        self._failure = None
        yield
        if self._failure is not None:
            raise self._failure

    @contextlib.contextmanager
    def _deferring_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:
            self._failure = self._failure or error


def replace_attribute(owner: Any, name: str, value: Any) -> None:
    """Replace a private attribute of DeepSpeed; raise if it does not exist, since the patch would silently do nothing."""
    if not hasattr(owner, name):
        import deepspeed

        raise RuntimeError(f"DeepSpeed {deepspeed.__version__} has no {type(owner).__name__}.{name}: install 0.19.8, the tested version")
    setattr(owner, name, value)


def deepspeed_classes() -> list[type]:
    """Classes in DeepSpeed's files besides tensors and plain values; all are plain data."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]


_DEPRECATION_WARNING = r"`torch\.distributed\.(all_gather_into_tensor|reduce_scatter_tensor)` is deprecated"


def start_deepspeed(ranks: Ranks, *, verbose: bool) -> ModuleType:
    """Import DeepSpeed and give it the process group; `verbose` lets it print its measurements."""
    if ranks.device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    # DeepSpeed needs these for a single process started by hand too.
    for name, value in (("RANK", ranks.rank), ("LOCAL_RANK", ranks.local_rank), ("WORLD_SIZE", ranks.world_size)):
        os.environ.setdefault(name, str(value))
    deepspeed = _import_deepspeed()
    _check_accelerator(deepspeed, ranks)
    if ranks.device.type == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.utils.logger.setLevel(logging.INFO if verbose else logging.WARNING)
    # DeepSpeed 0.19 uses deprecated names, and torch 2.13 warns on every call.
    warnings.filterwarnings("ignore", message=_DEPRECATION_WARNING, category=FutureWarning)
    ensure_process_group(ranks)
    deepspeed.init_distributed(dist_init_required=False)
    return deepspeed


def _import_deepspeed() -> ModuleType:
    try:
        import deepspeed
    except ModuleNotFoundError as error:
        if error.name != "deepspeed":
            raise
        raise RuntimeError("engine is deepspeed, but the deepspeed package is not installed: install it, or use engine=ddp") from error
    return deepspeed


def _check_accelerator(deepspeed: ModuleType, ranks: Ranks) -> None:
    chosen = deepspeed.get_accelerator().device_name().split(":")[0]
    if chosen != ranks.device.type:
        raise RuntimeError(
            f"DeepSpeed was started for {chosen}, and this rank is on {ranks.device.type}: "
            f"set DS_ACCELERATOR={ranks.device.type}, or unset it"
        )


# Stages whose flat buffers can align each weight, and the key in training.pt that records it; earlier versions had neither.
ALIGNED_STAGES = (1, 2)
ALIGNMENT = "parameter_alignment"
ALIGNED_BYTES = 16


def saved_with_alignment(folder: Path) -> bool:
    """Whether the weights of a checkpoint of ZeRO 1 or 2 are aligned, as those of the engine that loads it must be."""
    return bool(load_tensors(folder / TRAINING).get(ALIGNMENT, False))


def odd_sizes_last(parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    """In one flat 16-bit buffer a weight of odd size shifts all behind it away from the alignment that fast matrix products need."""
    return sorted(parameters, key=lambda parameter: parameter.numel() * 2 % ALIGNED_BYTES != 0)


ZERO_3_CANNOT_COMPILE = "ZeRO 3 gathers weights in hooks that torch.compile cannot trace"


class DeepSpeedEngine:
    """The model wrapped by DeepSpeed."""

    name = "deepspeed"

    def __init__(self, model: nn.Module, ranks: Ranks, precision: Precision, options: EngineOptions, startup: Startup = no_startup) -> None:
        check_no_scalars(model)
        if options.accumulate > 1:
            raise StartupError(f"accumulate is {options.accumulate}, which only the ddp engine has here: use engine=ddp, or accumulate=1")
        self.model = model.to(ranks.device)
        self.grad_norm: Tensor | None = None
        self._ranks, self._precision, self._options = ranks, precision, options
        self._updates = 0
        deepspeed = start_deepspeed(ranks, verbose=options.wall_clock_breakdown)
        mixed = choose_mixed_precision(options.mixed_precision, self.name, options.zero_stage, precision.effective)
        self._autocasts_inside = mixed.effective == WEIGHTS
        has_flat_weights = options.zero_stage == 0 and self._autocasts_inside
        parameters = odd_sizes_last(trainable(self.model)) if has_flat_weights else trainable(self.model)
        optimizer, adam = create_adam(deepspeed, parameters, options, ranks, startup)
        if self._autocasts_inside:
            self.model.forward = autocast_inside(self.model.forward, ranks.device.type, precision.dtype)
        config = deepspeed_config(options, precision.effective, mixed.effective)
        self._engine: Any = deepspeed.initialize(model=self.model, optimizer=optimizer, config=config, dist_init_required=False)[0]
        self._files = CheckpointFiles(self._engine)
        if options.zero_stage == 0:
            self._drop_zero_0_overhead(parameters)
        elif options.zero_stage in ALIGNED_STAGES:
            # As under ZeRO 0: otherwise stages would differ by more than what they shard.
            replace_attribute(self._engine.optimizer, "get_grad_norm_direct", functools.partial(gradient_norm, self._engine.optimizer))
        if has_flat_weights:
            _forget_steps(optimizer)
        self.cannot_compile = ZERO_3_CANNOT_COMPILE if options.zero_stage == 3 else None
        self.choices = {
            "optimizer": adam,
            "torch_adam": Choice(options.torch_adam, adam.effective == TORCH, adam.reason),
            "mixed_precision": mixed,
        }
        if options.zero_stage == 0:
            self.choices["bucket_size"] = Choice(options.bucket_size, None, "ZeRO 0 has DeepSpeed's own")
        if options.zero_stage == 0 and options.overlap_comm:
            self.choices["overlap_comm"] = Choice(True, False, "ZeRO 0 reduces gradients after the backward pass")
        if options.zero_stage in ALIGNED_STAGES and not options.parameter_alignment:
            self.choices["parameter_alignment"] = Choice(True, False, "the checkpoint was saved without")

    def _drop_zero_0_overhead(self, parameters: list[nn.Parameter]) -> None:
        """DeepSpeed's clipping handles weights one by one and synchronises with the GPU, and its all-reduce copies every gradient twice
        even on a single rank."""
        clip = functools.partial(nn.utils.clip_grad_norm_, parameters, self._options.gradient_clipping)
        replace_attribute(self._engine, "clip_fp32_gradients", clip)
        replace_attribute(self._engine, "enable_backward_allreduce", self._ranks.world_size > 1)

    def forward(self, **inputs: Any) -> Tensor:
        loss: Tensor = self._engine(**inputs)
        return loss

    def backward(self, loss: Tensor) -> None:
        scale = self._unapplied_scale
        self._engine.backward(loss if scale == 1.0 else loss * scale)

    @property
    def _unapplied_scale(self) -> float:
        """The loss scale of fp16 weights under ZeRO 0: DeepSpeed 0.19 divides the gradients by it without having multiplied the loss."""
        config = getattr(self._engine.optimizer, "loss_scale_config", None)
        return float(config.cur_scale) if config is not None else 1.0

    def step(self) -> None:
        for group in self._engine.optimizer.param_groups:
            group["lr"] = self._options.lr_at(self._updates)
        self._engine.step()
        self._updates += 1

    def warm_up(self, **inputs: Any) -> None:
        autocast = contextlib.nullcontext() if self._autocasts_inside else self._precision.autocast(self._ranks.device)
        forward_and_backward(self.model, autocast, inputs)

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Errors are raised after DeepSpeed's collective save, since it has barriers inside."""
        with self._files.raising_deferred():
            self._engine.save_checkpoint(
                str(folder.parent), tag=folder.name, save_latest=False, exclude_frozen_parameters=self._options.exclude_frozen
            )
        if self._ranks.rank == 0:
            scaler = self._scaler.state_dict() if self._scaler is not None else {}
            training = {"updates": self._updates, "scaler": scaler, ALIGNMENT: self._options.parameter_alignment}
            save_tensors(folder / TRAINING, {**training, "extra": extra})
        save_random_states(folder, self._ranks.rank)

    def load(self, folder: Path) -> dict[str, Any]:
        training = load_tensors(folder / TRAINING)
        self._load_engine(folder)
        if training["scaler"] and self._scaler is not None:
            self._scaler.load_state_dict(training["scaler"])
        self._updates = training["updates"]
        load_random_states(folder, self._ranks.rank)
        extra: dict[str, Any] = training["extra"]
        return extra

    def _load_engine(self, folder: Path) -> None:
        """Only frozen weights may be missing from a checkpoint; DeepSpeed itself allows either none or any."""
        try:
            loaded, _ = self._engine.load_checkpoint(
                str(folder.parent),
                tag=folder.name,
                load_lr_scheduler_states=False,
                custom_load_fn=lambda src, dst: load_trained_weights(dst, src, folder),
            )
        # DeepSpeed asserts that the files exist and reads keys unchecked.
        except (AssertionError, KeyError) as error:
            raise CheckpointError(f"{folder} cannot be loaded ({summarize_error(error)}): incomplete, or of another ZeRO stage") from error
        if loaded is None:
            raise CheckpointError(f"{folder} has no DeepSpeed weights: the checkpoint is incomplete, use an older one")

    @property
    def _scaler(self) -> torch.amp.GradScaler | None:
        """Scaler of fp16 autocast under ZeRO 0, the only one that DeepSpeed does not save."""
        scaler: torch.amp.GradScaler | None = self._engine.torch_autocast_z0_gradscaler
        return scaler

    def close(self) -> None:
        if self._engine is not None:
            self._engine.destroy()
        self._engine = self._files = None


def gradient_norm(optimizer: Any, gradients: list[Tensor], parameters: list[nn.Parameter], norm_type: float = 2) -> Tensor:
    """Norm of the gradients of all shards, -1 where it is not finite. DeepSpeed's own takes the norm of one gradient after the other, in
    double precision, which is two kernels for each."""
    assert norm_type == 2
    own = [gradient for gradient in gradients if not getattr(gradient, "_zero_padding", False)]
    norms = torch._foreach_norm(own, dtype=torch.float32) if own else [torch.zeros((), device=optimizer.device)]
    squared = torch.stack(norms).square().sum()
    torch.distributed.all_reduce(squared, group=optimizer.dp_process_group)
    return torch.where(squared.isfinite(), squared.sqrt(), -1.0)


def _forget_steps(adam: torch.optim.Optimizer) -> None:
    """DeepSpeed allocates Adam's states for 16-bit weights under ZeRO 0 by a step without gradients; counted, it would shorten the first
    real ones by a tenth."""
    adam.state.clear()
    for group in adam.param_groups:
        group.pop("step", None)


def autocast_inside(forward: Callable[..., Tensor], device_type: str, dtype: torch.dtype) -> Callable[..., Tensor]:
    """Wrap `forward` in autocast, since 16-bit weights need 16-bit inputs. Inside the forward, because DeepSpeed disables autocast
    around it."""

    @functools.wraps(forward)
    def with_autocast(*args: Any, **kwargs: Any) -> Tensor:
        with torch.autocast(device_type, dtype=dtype):
            return forward(*args, **kwargs)

    return with_autocast


def check_no_scalars(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise ValueError(f"{name} is a scalar weight, which DeepSpeed cannot communicate: give it the shape (1,)")
