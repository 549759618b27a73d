"""The DDP engine: DistributedDataParallel, AdamW, autocast, loss scaling, accumulation, compressed gradients, a step as a CUDA graph.
Checkpoint files:

model.pt              weights (without frozen ones if so configured); also usable as pretrained_checkpoint
training.pt           optimiser, scaler, number of updates, the trainer's extra
random_states_rank*.pt
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seatrial_workloads.common.checkpoints import load_random_states, load_tensors, save_random_states, save_tensors
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import Choice, as_requested
from seatrial_workloads.common.engines.adam import FUSED, REQUESTED, TORCH, create_torch_adam
from seatrial_workloads.common.engines.engine import (
    TRAINING,
    EngineOptions,
    forward_and_backward,
    frozen_names,
    load_trained_weights,
    trainable,
)
from seatrial_workloads.common.engines.step_graph import Inputs, StepGraph
from seatrial_workloads.common.precision import PURE, Precision, choose_mixed_precision, torch_dtype

MODEL = "model.pt"


class DdpEngine:
    """A single rank trains the bare model."""

    name = "ddp"
    cannot_compile = None

    def __init__(self, model: nn.Module, ranks: Ranks, precision: Precision, options: EngineOptions) -> None:
        self.model = model.to(ranks.device)
        self.grad_norm: Tensor | None = None
        self.ranks, self._precision, self._options = ranks, precision, options
        mixed = choose_mixed_precision(options.mixed_precision, self.name, 0, precision.effective)
        if mixed.effective == PURE:
            cast_parameters(self.model, precision.dtype)
        self._parameters = trainable(self.model)
        self._wrapped = self._wrap()
        self._calls = 0
        self._optimizer = create_torch_adam(self._parameters, options, ranks)
        self._scaler = torch.amp.GradScaler(ranks.device.type, enabled=precision.needs_scaler)
        self._updates = 0
        self._synced_once = False
        self._graph: StepGraph | None = None
        self.choices = {**ddp_choices(options, on_gpu=ranks.device.type == "cuda"), "mixed_precision": mixed}
        if options.ddp.compression != "none":
            self.choices["ddp_compression"] = self._compression()

    def _wrap(self) -> nn.Module:
        if self.ranks.world_size == 1:
            return self.model
        ddp = self._options.ddp
        bucket = {} if ddp.bucket_mb is None else {"bucket_cap_mb": ddp.bucket_mb}
        wrapped = DistributedDataParallel(
            self.model,
            device_ids=[self.ranks.device.index] if self.ranks.device.type == "cuda" else None,
            gradient_as_bucket_view=ddp.bucket_view,
            static_graph=ddp.static_graph,
            **bucket,
            **_no_buffer_sync(),
        )
        if self._compression().effective != "none":
            wrapped.register_comm_hook(None, compressed_all_reduce(torch_dtype(ddp.compression)))
        return wrapped

    def _compression(self) -> Choice:
        # Gradients have the format of their weights.
        gradient_format = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(self._parameters[0].dtype, "fp32")
        return choose_compression(self._options.ddp.compression, self.ranks.world_size, gradient_format)

    def forward(self, **inputs: Any) -> Tensor:
        with self._without_exchange(), self._precision.autocast(self.ranks.device):
            loss: Tensor = self._wrapped(**inputs)
        return loss

    def backward(self, loss: Tensor) -> None:
        # Not divided by 1: other workloads' losses stay bit-identical.
        mean = loss / self._options.accumulate if self._options.accumulate > 1 else loss
        with self._without_exchange():
            self._scaler.scale(mean).backward()
        self._calls += 1

    def _without_exchange(self) -> contextlib.AbstractContextManager[object]:
        """Keep gradients local until the last call of a step. The first backward always exchanges: it records a static graph."""
        is_last = self._calls + 1 >= self._options.accumulate
        must_exchange = self._options.ddp.static_graph and not self._synced_once
        if is_last or must_exchange or not isinstance(self._wrapped, DistributedDataParallel):
            return contextlib.nullcontext()
        no_exchange: contextlib.AbstractContextManager[object] = self._wrapped.no_sync()
        return no_exchange

    def step(self) -> None:
        self._set_lr()
        self._update()
        self._updates += 1

    def _set_lr(self) -> None:
        """Set in place where a captured step reads it."""
        lr = self._options.lr_at(self._updates)
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def _update(self) -> None:
        clipping = self._options.gradient_clipping
        if clipping or self._options.measure_grad_norm:
            self._scaler.unscale_(self._optimizer)
            self.grad_norm = nn.utils.clip_grad_norm_(self._parameters, clipping) if clipping else total_norm(self._parameters)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()
        self._calls, self._synced_once = 0, True

    @property
    def cannot_capture(self) -> str | None:
        """Why a step cannot be a CUDA graph; None where it can."""
        if self.ranks.device.type != "cuda":
            return f"{self.ranks.device.type}: CUDA graphs need CUDA"
        if self.ranks.world_size > 1:
            return f"{self.ranks.world_size} ranks: DDP's gradient all-reduce cannot be captured"
        if self._options.accumulate > 1:
            return f"{self._options.accumulate} passes a step: a graph holds one"
        if self._scaler.is_enabled():
            return "fp16: loss scaling reads from the GPU in every step"
        return None

    def capture(self, **inputs: Tensor | None) -> None:
        """Capture a whole step with inputs of these shapes for `replay`; weights and optimiser stay as they are."""
        assert self.cannot_capture is None, self.cannot_capture
        device = self.ranks.device
        for group in self._optimizer.param_groups:
            group |= {"capturable": True, "lr": torch.full((), self._options.lr_at(self._updates), device=device)}
        for state in self._optimizer.state.values():
            state["step"] = state["step"].to(device)
        try:
            self._graph = StepGraph(self._whole_step, self._optimizer, inputs)
        finally:
            # A capture that fails may end between backward and update.
            self._calls = 0

    def _whole_step(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        loss = self.forward(**inputs)
        self.backward(loss)
        self._update()
        return loss.detach(), self.grad_norm

    def replay(self, **inputs: Tensor | None) -> Tensor:
        """Replay forward, backward and step; returns the loss. It may alternate with separate calls of the three."""
        assert self._graph is not None, "capture() first"
        self._set_lr()
        loss, self.grad_norm = self._graph(inputs)
        self._updates += 1
        return loss

    def warm_up(self, **inputs: Any) -> None:
        forward_and_backward(self.model, self._precision.autocast(self.ranks.device), inputs)

    def optimizer_state_bytes(self) -> dict[str, int]:
        """Memory of this rank's optimiser state by name (`exp_avg`); empty before the first step."""
        sizes: dict[str, int] = {}
        for state in self._optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    sizes[name] = sizes.get(name, 0) + value.nbytes
        return sizes

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        if self.ranks.rank == 0:
            excluded = frozen_names(self.model) if self._options.exclude_frozen else set()
            weights = {name: value for name, value in self.model.state_dict().items() if name not in excluded}
            save_tensors(folder / MODEL, {"model": weights})
            training = {"optimizer": self._optimizer.state_dict(), "scaler": self._scaler.state_dict(), "updates": self._updates}
            save_tensors(folder / TRAINING, {**training, "extra": extra})
        save_random_states(folder, self.ranks.rank)

    def load(self, folder: Path) -> dict[str, Any]:
        load_trained_weights(self.model, load_tensors(folder / MODEL)["model"], folder / MODEL)
        training = load_tensors(folder / TRAINING)
        self._optimizer.load_state_dict(training["optimizer"])
        for group in self._optimizer.param_groups:
            # The checkpoint may be of a captured step.
            group |= {"capturable": False, "lr": self._options.lr}
        if training["scaler"] and self._scaler.is_enabled():
            self._scaler.load_state_dict(training["scaler"])
        self._updates = training["updates"]
        load_random_states(folder, self.ranks.rank)
        extra: dict[str, Any] = training["extra"]
        return extra

    def close(self) -> None:
        self._wrapped = self.model
        self._graph = None


def _no_buffer_sync() -> dict[str, bool]:
    """Do not broadcast buffers at every forward, since none changes; the argument was renamed in torch 2.13."""
    names = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers": False}


def cast_parameters(model: nn.Module, dtype: torch.dtype) -> None:
    """Cast weights only: tables in buffers, such as rotary angles, keep their precision."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def total_norm(parameters: list[nn.Parameter]) -> Tensor:
    """Norm of all gradients together."""
    return nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])


def compressed_all_reduce(dtype: torch.dtype) -> Callable[[object, Any], torch.futures.Future[Tensor]]:
    """A hook for DDP that averages gradients in `dtype`. Our own: torch refuses its hooks on gloo, which has these formats too."""

    # Without annotations: here they would be text, which DDP refuses.
    def average(state, bucket):  # type: ignore[no-untyped-def]
        buffer = bucket.buffer()
        compressed = buffer.to(dtype).div_(dist.get_world_size())
        future = dist.all_reduce(compressed, async_op=True).get_future()
        return future.then(lambda done: buffer.copy_(done.value()[0]))

    return average


def choose_compression(requested: str, world_size: int, gradient_format: str) -> Choice:
    """Whether gradients are exchanged in the requested format."""
    if requested != "none" and world_size == 1:
        return Choice(requested, "none", "caution: a single rank exchanges no gradients")
    if requested != "none" and requested == gradient_format:
        return Choice(requested, "none", f"the gradients are {gradient_format} already")
    return as_requested(requested)


def ddp_choices(options: EngineOptions, *, on_gpu: bool) -> dict[str, Choice]:
    """The optimiser, and requested settings that only DeepSpeed has."""
    kind = f"{TORCH}, fused" if (on_gpu if options.fused_adam is None else options.fused_adam) else TORCH
    reason = f"ddp uses torch's {TORCH}; {FUSED} needs DeepSpeed" if options.torch_adam is False else "torch's"
    choices = {
        "optimizer": Choice(REQUESTED[options.torch_adam], kind, reason),
        "torch_adam": Choice(options.torch_adam, True, reason),
        "bucket_size": Choice(options.bucket_size, None, "only DeepSpeed's ZeRO has such buckets"),
    }
    if options.wall_clock_breakdown:
        choices["wall_clock_breakdown"] = Choice(True, False, "only DeepSpeed times its own phases")
    return choices
