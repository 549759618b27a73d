"""One forward and backward that leaves no trace. In: a model, the context it computes in, its inputs. Out: nothing.

The gradients are asked for by name and thrown away: those hooks that bring them together over ranks stand behind the weights and are
not reached, so neither DDP nor DeepSpeed hears of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from seatrial_workloads.common.engines.engine import trainable


def forward_and_backward(model: nn.Module, computing: contextlib.AbstractContextManager[object], inputs: Mapping[str, Any]) -> None:
    with computing:
        loss = model(**inputs)
    torch.autograd.grad(loss, trainable(model), allow_unused=True)
