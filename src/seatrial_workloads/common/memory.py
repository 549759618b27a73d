"""Memory of a training on one GPU, counted from its configuration. Standard library only.

In: numbers of parameters, their formats and how they are sharded (`ModelState`), and what autograd keeps for the backward pass, tensor by
tensor (`Activations`). Out: a `MemoryForecast`.

A training has three high moments. When the backward pass starts, all activations exist and no gradients yet (unless micro batches are
accumulated, or DDP's buckets hold them). In the optimiser step all gradients exist and no activations. In between one grows while the other
shrinks. Before it is sharded, a model may be on every GPU as a whole. The highest of these is the peak.

    weights        every parameter in its own format; sharded by FSDP and ZeRO 3
    gradients      of trained parameters, in their format; sharded by FSDP, ZeRO 2 and 3
    optimizer      Adam's two moments, and the fp32 copy that DeepSpeed keeps of 16-bit weights; sharded by FSDP and ZeRO 1 to 3
    communication  DDP's buckets, ZeRO's reduce buckets, the layers that FSDP and ZeRO 3 have gathered
    activations    what autograd keeps
    logits         with their softmax and both gradients
    temporary      autocast's weight copies, one layer's backward pass, or the optimiser's
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.records.memory import ForecastUnknown, MemoryForecast

FORMAT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
BACKWARD = "when the backward pass starts"
OPTIMIZER_STEP = "in the optimiser step"
LOADING = "before the model is sharded"
# cuBLAS keeps this on Hopper; older cards less.
CUBLAS_WORKSPACE_BYTES = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """Bytes of one rank that do not depend on the batch."""

    weights: int
    gradients: int
    optimizer: int
    communication: int = 0
    optimizer_temporary: int = 0
    gradients_stay: bool = False
    """Gradients exist while the forward pass runs: micro batches are accumulated, or a captured graph owns them."""
    loading: int = 0
    """The whole model, where it is on the GPU before it is sharded."""


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Bytes of one rank that grow with the batch."""

    saved: Mapping[str, int]
    """Tensor → bytes, over all layers."""
    logits: int = 0
    """Logits in both formats, their softmax, and the gradients of both while the loss is differentiated."""
    layer_backward: int = 0
    """Gradients that pass through one layer, and what the layer keeps where it is recomputed."""
    weight_copies: int = 0
    """Weights that autocast cast to the format of the computation and keeps for the backward pass."""
    inputs: int = 0
    """The batch itself."""


def highest(state: ModelState, held: Activations, *, world_size: int, notes: tuple[str, ...] = ()) -> MemoryForecast:
    """The parts at the highest of the moments."""
    saved = sum(held.saved.values())
    # The logits are gone when the first layer's gradients begin to flow.
    in_loss = held.logits >= held.layer_backward
    backward = {
        "weights": state.weights,
        "gradients": state.gradients if state.gradients_stay else 0,
        "optimizer": state.optimizer,
        "communication": state.communication,
        "activations": saved + held.inputs,
        "logits": held.logits if in_loss else 0,
        "temporary": held.weight_copies + (0 if in_loss else held.layer_backward) + CUBLAS_WORKSPACE_BYTES,
    }
    step = {
        "weights": state.weights,
        "gradients": state.gradients,
        "optimizer": state.optimizer,
        "communication": state.communication,
        "temporary": state.optimizer_temporary + CUBLAS_WORKSPACE_BYTES,
    }
    moments = ((backward, BACKWARD), (step, OPTIMIZER_STEP), ({"weights": state.loading}, LOADING))
    parts, moment = max(moments, key=lambda pair: sum(pair[0].values()))
    return MemoryForecast(
        parts={name: size for name, size in parts.items() if size},
        moment=moment,
        world_size=world_size,
        notes=notes,
        saved=dict(held.saved),
    )


def logits_bytes(tokens: int, vocabulary: int, compute: int) -> int:
    """The logits, their fp32 copy's log-softmax, and the fp32 gradients of both in the cross entropy's backward pass."""
    return tokens * vocabulary * (compute + 3 * 4)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Numbers of parameters, and the bytes of one."""

    trained: int
    frozen: int = 0
    trained_bytes: int = 4
    frozen_bytes: int = 4
    layer: int = 0
    """Parameters of one transformer layer: what FSDP gathers at a time."""
    outer: int = 0
    """Parameters outside the layers, which FSDP's root group gathers for the whole step."""


def replicated_state(
    parameters: Parameters, world_size: int, *, bucket_view: bool, foreach: bool = False, stay: bool = False
) -> ModelState:
    """One rank alone, or DDP: everything on every rank; the buckets are a second copy of the gradients unless these are views of them.
    `foreach`: torch's Adam over lists of tensors, which needs a list as large as the weights; the fused one needs none."""
    trained = parameters.trained * parameters.trained_bytes
    buckets = trained if world_size > 1 else 0
    return ModelState(
        weights=trained + parameters.frozen * parameters.frozen_bytes,
        gradients=0 if buckets and bucket_view else trained,
        optimizer=2 * trained,
        communication=buckets,
        optimizer_temporary=trained if foreach else 0,
        gradients_stay=stay,
    )


def fsdp_state(parameters: Parameters, world_size: int, *, compute: int, foreach: bool = False, stay: bool = False) -> ModelState:
    """Full shard: 1/N of everything; gathered, in the format of the computation, are what is outside the layers, the layer in use and the
    next. The gradients of a layer are whole until they are reduced, in fp32. The model is loaded whole on every rank."""
    trained = _share(parameters.trained * parameters.trained_bytes, world_size)
    gathered = (parameters.outer + 2 * parameters.layer) * compute
    return ModelState(
        weights=trained + _share(parameters.frozen * parameters.frozen_bytes, world_size),
        gradients=trained,
        optimizer=2 * trained,
        communication=gathered + parameters.layer * (compute + 4),
        optimizer_temporary=trained if foreach else 0,
        gradients_stay=stay,
        loading=parameters.trained * parameters.trained_bytes + parameters.frozen * parameters.frozen_bytes,
    )


def zero_state(parameters: Parameters, world_size: int, *, stage: int, bucket_elements: int, overlap: bool) -> ModelState:
    """DeepSpeed's ZeRO 1 to 3 with Adam. The fp32 copy of the weights that it updates is sharded, also where the weights are fp32. A reduce
    bucket has its full size whatever the model's, and there are two where communication overlaps the backward pass."""
    trained = parameters.trained * parameters.trained_bytes
    frozen = parameters.frozen * parameters.frozen_bytes
    bucket = bucket_elements * parameters.trained_bytes * (2 if overlap else 1)
    gathered = min(trained + frozen, bucket_elements * parameters.trained_bytes) if stage == 3 else 0
    return ModelState(
        weights=_share(trained + frozen, world_size) if stage == 3 else trained + frozen,
        gradients=trained if stage == 1 else _share(trained, world_size),
        optimizer=_share(parameters.trained * 12, world_size),
        communication=bucket + gathered,
        optimizer_temporary=_share(parameters.trained * 4, world_size),
    )


def _share(size: int, world_size: int) -> int:
    return -(-size // world_size)


@dataclass(frozen=True, kw_only=True)
class Formats:
    """Bytes of one element while computing; a CPU keeps other things than a GPU, and tests count there."""

    compute: int
    """In matrix products: bf16 and fp16 2, fp32 4."""
    norm: int = 4
    """What a layer norm returns: autocast on CUDA computes it in fp32, on a CPU in the format of its input."""
    mask: int = 1
    """Dropout's mask: a bool on CUDA, a factor in the input's format on a CPU."""
    fused_rms_norm: bool = True
    """CUDA's RMSNorm keeps its input; the plain one also its normalised output."""

    @property
    def autocast(self) -> bool:
        """Whether fp32 tensors are cast for matrix products; each product keeps a copy of its own."""
        return self.compute < 4


def model_config(source: str, cwd: Path, setting: str) -> dict[str, Any]:
    """config.json of a model folder, or of a hub id that is in the cache; nothing is downloaded."""
    found = [folder / "config.json" for folder in (cwd / source, *_cached(source)) if (folder / "config.json").is_file()]
    if not found:
        raise ForecastUnknown(f"{setting} is '{source}': neither a folder with a config.json nor in the hub's cache here")
    try:
        config = json.loads(found[0].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ForecastUnknown(f"{found[0]} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ForecastUnknown(f"{found[0]} does not hold a JSON object")
    return config


def _cached(source: str) -> list[Path]:
    """Snapshots of a hub id, newest last as the hub's own library lays them out."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    return sorted((cache / f"models--{source.replace('/', '--')}" / "snapshots").glob("*"))


@dataclass
class Counted:
    """Adds tensors by name."""

    tensors: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, size: float, times: int = 1) -> None:
        self.tensors[name] = self.tensors.get(name, 0) + round(size) * times
