"""Full sharding with torch's FSDP2, placed here: on CPUs the Trainer silently trains DDP when FSDP is requested.

One shard group a decoder layer, one for the rest. Frozen and trained parameters share a group; gradients are reduced in fp32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from seatrial_workloads.common.errors import StartupError

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)
FROM_FULL = StateDictOptions(full_state_dict=True, broadcast_from_rank0=False)


def shard(model: nn.Module, world_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Shard every parameter over all ranks, in place."""
    layers = decoder_layers(model)
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32) if dtype != torch.float32 else MixedPrecisionPolicy()
    mesh = init_device_mesh(device.type, (world_size,))
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The blocks of a decoder, with LoRA or without."""
    for name, module in model.named_modules():
        if name.endswith("layers") and isinstance(module, nn.ModuleList):
            return module
    raise StartupError(f"strategy is fsdp, and {type(model).__name__} has no list of decoder layers to shard: use strategy=ddp")


def gathered_state(model: nn.Module, *, trainable_only: bool) -> dict[str, torch.Tensor]:
    """Whole parameters on the CPU, by name; a collective call. Every rank returns them, and only rank 0 need keep them."""
    state = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad or not trainable_only:
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            state[name] = whole.detach().cpu()
    return state


def optimizer_state(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    """The whole optimiser state on rank 0, empty elsewhere; a collective call."""
    return dict(get_optimizer_state_dict(model, optimizer, options=FULL))


def load_optimizer_state(model: nn.Module, optimizer: Any, state: dict[str, Any]) -> None:
    """Each rank takes its shard of the whole state; a collective call."""
    set_optimizer_state_dict(model, optimizer, state, options=FROM_FULL)
