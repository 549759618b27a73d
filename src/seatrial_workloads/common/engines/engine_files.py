"""What every engine keeps the same way. In: a checkpoint folder. Out: weights by name, and each rank's random numbers.

Frozen weights may be left out: loading then leaves the model's own. Any other weight that is missing or too many is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from seatrial_workloads.common.checkpoints.folder import rank_file
from seatrial_workloads.common.checkpoints.random_states import random_states, restore_random_states
from seatrial_workloads.common.checkpoints.saved_tensors import CheckpointError, load_tensors, save_tensors

# What an engine keeps besides weights; rank 0 writes it.
TRAINING = "training.pt"


def frozen_names(model: nn.Module) -> set[str]:
    """Of weights that do not train, under every name they go by."""
    return {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}


def trained_weights(model: nn.Module, *, exclude_frozen: bool) -> dict[str, Tensor]:
    """The state dict, without the frozen weights where that was asked for."""
    left_out = frozen_names(model) if exclude_frozen else set()
    return {name: value for name, value in model.state_dict().items() if name not in left_out}


def load_trained_weights(model: nn.Module, weights: dict[str, Tensor], source: Path) -> None:
    refuse_other_names(model, weights.keys(), source)
    try:
        model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise CheckpointError(f"{source} does not fit this model ({why}): resume with the settings it was saved with") from error


def refuse_other_names(model: nn.Module, names: Iterable[str], source: Path) -> None:
    """All that trains must be there, and nothing that the model has not."""
    own, found = set(model.state_dict()), set(names)
    told = [*_some("lacks", own - found - frozen_names(model)), *_some("has also", found - own)]
    if told:
        raise CheckpointError(f"{source} is of another model: it {' and '.join(told)}; resume with the settings it was saved with")


def _some(what: str, names: set[str]) -> list[str]:
    """The first name and how many more; nothing of none."""
    if not names:
        return []
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return [f"{what} {min(names)}{more}"]


def save_own_random_states(folder: Path, rank: int) -> None:
    save_tensors(rank_file(folder, rank), random_states())


def load_own_random_states(folder: Path, rank: int) -> None:
    states: dict[str, Any] = load_tensors(rank_file(folder, rank))
    restore_random_states(states)
