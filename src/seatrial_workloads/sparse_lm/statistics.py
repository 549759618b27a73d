"""Health of the gates and of the selection, computed on the device: nothing here waits for it."""

from __future__ import annotations

import torch
from torch import Tensor

from seatrial_workloads.sparse_lm.shape import ModelShape

# A gate counts as collapsed below this entropy (nats; three equal shares have ln 3 = 1.0986) and above this share of one branch.
COLLAPSED_ENTROPY, COLLAPSED_SHARE = 0.1, 0.95
STATISTICS = (
    "gate_entropy_mean",
    "gate_entropy_min",
    "gate_max_mean",
    "gate_max_max",
    "gate_share_cmp",
    "gate_share_sel",
    "gate_share_win",
    "gate_collapse_frac",
    "sel_k_mean",
    "sel_k_max",
    "sel_rows",
    "sel_pct_at_max",
)
"""In the order of the tensor that `gate_and_selection_statistics` returns."""


@torch.no_grad()
def gate_and_selection_statistics(gates: Tensor, ranges: Tensor, shape: ModelShape, starts: Tensor | None = None) -> Tensor:
    """One fp32 value per name in STATISTICS. Rows are queries × groups; k is the tokens that a row selects, and a row is at the maximum
    with n_sel whole blocks. `sel_pct_at_max` is a share from 0 to 1."""
    gates = gates.float()
    entropy, largest = -(gates * (gates + 1e-8).log()).sum(dim=-1), gates.amax(dim=-1)
    collapsed = ((entropy < COLLAPSED_ENTROPY) & (largest > COLLAPSED_SHARE)).float()
    first = ranges[..., 0] if starts is None else torch.maximum(ranges[..., 0], starts[..., None, None])
    tokens = (ranges[..., 1] - first).clamp(min=0).sum(dim=-1).float()
    rows = torch.full_like(tokens.amax(), tokens.numel())
    gate = (entropy.mean(), entropy.amin(), largest.mean(), largest.amax(), *gates.flatten(0, -2).mean(dim=0).unbind(), collapsed.mean())
    at_max = (tokens >= shape.n_sel * shape.sel_block).float().mean()
    return torch.stack((*gate, tokens.mean(), tokens.amax(), rows, at_max))
