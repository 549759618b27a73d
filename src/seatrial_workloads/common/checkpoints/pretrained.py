"""A model started from somebody's weights. In: a model and a .pth. Out: the model with them, and what did not match."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from seatrial_workloads.common.checkpoints.saved_tensors import CheckpointError, load_tensors

# Names under which trainers keep a whole model inside a file.
_INSIDE = ("model", "module", "state_dict")


@dataclass(frozen=True)
class LoadedWeights:
    """What a file had too little and too much, by name."""

    missing: list[str]
    unexpected: list[str]


def load_weights(model: nn.Module, path: Path) -> LoadedWeights:
    """Start the whole model from a .pth: a plain state dict, or one under model, module or state_dict; `module.` before names is cut."""
    if not path.is_file():
        raise CheckpointError(
            f"pretrained_checkpoint (train.pretrained_model_checkpoint) is {path}, and there is no such file: give a .pth, or leave it out"
        )
    found = _state_dict(load_tensors(path), path)
    own = model.state_dict()
    matched = [name for name in own if name in found]
    if not matched:
        raise CheckpointError(
            f"{path} has no weight of this model: its first is '{next(iter(found))}', the model's is '{next(iter(own), 'nothing')}'"
        )
    if any(not found[name].numel() and own[name].numel() for name in matched):
        raise CheckpointError(
            f"{path} holds no weights, only their places: ZeRO 3 keeps them apart; make one file of the checkpoint "
            "(python zero_to_fp32.py . OUT in its `checkpoints` folder) and give OUT/pytorch_model.bin"
        )
    for name in matched:
        if found[name].shape != own[name].shape:
            raise CheckpointError(
                f"{path} has {name} of shape {list(found[name].shape)}, and the model wants {list(own[name].shape)}: "
                "give a file of the same model, or the model that the file is of"
            )
    model.load_state_dict({name: found[name] for name in matched}, strict=False)
    return LoadedWeights(missing=sorted(own.keys() - found.keys()), unexpected=sorted(found.keys() - own.keys()))


def _state_dict(content: Any, path: Path) -> dict[str, Any]:
    """Name → tensor."""
    for name in _INSIDE:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    tensors = {name: value for name, value in content.items() if hasattr(value, "shape")} if isinstance(content, dict) else {}
    if not tensors:
        raise CheckpointError(f"{path} holds no weights by name: expected a state dict, or one under {', '.join(_INSIDE)}")
    return {str(name).removeprefix("module."): value for name, value in tensors.items()}
