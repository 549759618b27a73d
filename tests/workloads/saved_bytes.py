"""Bytes that autograd keeps for a backward pass: the plain reference for the forecasts of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def saved_bytes(compute: Callable[[], object], without: Iterable[Tensor]) -> int:
    """Of all storages that `compute` saves, each counted once; those of `without` (weights, inputs) are left out."""
    known = {tensor.untyped_storage().data_ptr() for tensor in without}
    found: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            # Held, so that no later tensor gets its address.
            found[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compute()
    assert result is not None
    return sum(storage.nbytes() for storage in found.values())


def without_dropout(model: nn.Module) -> nn.Module:
    """A CPU keeps dropout's masks as factors, which no GPU does."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    return model


def autocast(bytes_of_an_element: int) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=bytes_of_an_element == 2)
