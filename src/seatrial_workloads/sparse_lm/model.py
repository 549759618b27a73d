"""The sparse language model. In: token ids (batch, S). Out: the mean cross entropy in fp32 where targets are given, else logits.

    model = SparseLM(ModelShape(), gradient_checkpointing=False)
    loss = model(tokens, targets, documents)

Embedding, pre-norm blocks (attention; MLP of 4 × dim with SiLU), RMSNorm, a head of its own. `documents` (batch, S) has an id per token: a
token sees no token of another run of equal ids, in any branch. Positions and blocks stay those of the row. The rotary embedding is
relative, so a document that begins at a multiple of sel_block is computed as if it stood alone.

It also computes the health of gates and selection on the device, without waiting for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.sparse_lm.attention import Observed, SparseAttention
from seatrial_workloads.sparse_lm.ops.attention_paths import AttentionPaths, choose_fla, choose_paths
from seatrial_workloads.sparse_lm.ops.layout import Layout, create_layout
from seatrial_workloads.sparse_lm.ops.sequential import LayerCache
from seatrial_workloads.sparse_lm.ops.shape import ModelShape

INIT_STD = 0.02
# Logits held at once by default: 64 MiB in fp32.
LOGITS_HELD = 2**24
IGNORED = -100
# Nothing here is random, and the state of the random generator cannot be read in a CUDA graph's capture.
RECOMPUTED = {"use_reentrant": False, "preserve_rng_state": False}


class SparseLM(nn.Module):
    """Training needs only `forward`; `choices` and `statistics` describe the model."""

    def __init__(
        self,
        shape: ModelShape,
        *,
        paths: AttentionPaths | None = None,
        gradient_checkpointing: bool = False,
        loss_chunk: int | None = None,
    ) -> None:
        """`loss_chunk`: tokens whose logits are held at once; None for 64 MiB of them."""
        super().__init__()
        self.shape, self.paths = shape, paths or AttentionPaths()
        self.gradient_checkpointing = gradient_checkpointing
        self.loss_chunk = loss_chunk or max(1, LOGITS_HELD // shape.vocab_size)
        self.embedding = nn.Embedding(shape.vocab_size, shape.dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.norm = nn.RMSNorm(shape.dim)
        self.head = nn.Linear(shape.dim, shape.vocab_size, bias=False)
        self.apply(_initialise)
        self.collects_statistics = False
        # In place, so that a captured CUDA graph writes where `statistics` reads.
        self.register_buffer("latest_statistics", torch.zeros(len(STATISTICS)), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        paths = choose_paths(self.paths, device=tokens.device.type, seq_len=tokens.shape[1])
        layout = create_layout(self.shape, paths, tokens.shape[1], tokens.device, documents)
        hidden = self.embedding(tokens)
        for layer, block in enumerate(self.blocks):
            if self.gradient_checkpointing and self.training:
                hidden, observed = checkpoint(block, hidden, layout, **RECOMPUTED)
            else:
                hidden, observed = block(hidden, layout)
            if layer == 0 and self.collects_statistics:
                self.latest_statistics.copy_(gate_and_selection_statistics(observed.gates, observed.ranges, self.shape, layout.starts))
        hidden = self.norm(hidden)
        return self.head(hidden) if targets is None else chunked_loss(hidden, targets, self.head, self.loss_chunk)

    def compile_blocks(self, **options: Any) -> None:
        """Compile one block with `options`, once for all layers: seconds where the whole model takes minutes."""
        for block in self.blocks:
            block.compile(**options)

    @torch.no_grad()
    def decode(self, tokens: Tensor, cache: list[LayerCache]) -> Tensor:
        """Logits of `tokens` (batch, n) after those in the cache: first the whole prompt, then one token at a time."""
        before, length = cache[0].length, cache[0].length + tokens.shape[1]
        if before and tokens.shape[1] != 1:
            raise ValueError(f"{tokens.shape[1]} tokens after a prompt of {before}: decode takes them one at a time")
        paths = choose_paths(self.paths, device=tokens.device.type, seq_len=length)
        layout = create_layout(self.shape, paths, length, tokens.device, first_query=before)
        hidden = self.embedding(tokens)
        for block, layer_cache in zip(self.blocks, cache, strict=True):
            hidden, _ = block(hidden, layout, layer_cache)
        return self.head(self.norm(hidden))

    def create_cache(self, max_len: int) -> list[LayerCache]:
        """An empty cache for `decode`, for prompts and continuations of up to `max_len` tokens."""
        return [LayerCache(self.shape, max_len) for _ in self.blocks]

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def choices(self, seq_len: int) -> dict[str, Choice]:
        """The path of each part of each layer, for sequences of `seq_len` tokens on the model's device."""
        device = self.embedding.weight.device.type
        fla = choose_fla(self.paths.fla, device=device, heads_per_group=self.shape.heads_per_group)
        parts = {**vars(choose_paths(self.paths, device=device, seq_len=seq_len)), "fla": fla}
        return {f"layers.{layer}.{part}": choice for layer in range(self.shape.n_layers) for part, choice in parts.items()}

    def collect_statistics(self, enabled: bool) -> None:
        """Whether to compute layer 0's statistics from now on; outside the blocks, whose compiled code stays the same."""
        self.collects_statistics = enabled

    def statistics(self) -> dict[str, Tensor]:
        """0-d tensors of the last step that collected them, by the names in STATISTICS; reading one waits for the device."""
        return dict(zip(STATISTICS, self.latest_statistics.unbind(), strict=True))


class Block(nn.Module):
    """Pre-norm attention and MLP with residuals."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.dim)
        self.attention = SparseAttention(shape)
        self.mlp_norm = nn.RMSNorm(shape.dim)
        self.mlp = nn.Sequential(
            nn.Linear(shape.dim, 4 * shape.dim, bias=False), nn.SiLU(), nn.Linear(4 * shape.dim, shape.dim, bias=False)
        )

    def forward(self, hidden: Tensor, layout: Layout, cache: LayerCache | None = None) -> tuple[Tensor, Observed]:
        mixed, observed = self.attention(self.attention_norm(hidden), layout, cache)
        hidden = hidden + mixed
        return hidden + self.mlp(self.mlp_norm(hidden)), observed


def chunked_loss(hidden: Tensor, targets: Tensor, head: nn.Linear, chunk: int) -> Tensor:
    """Mean cross entropy over targets other than -100, in fp32. Logits of one chunk exist at a time: backward recomputes them."""
    hidden, targets = hidden.flatten(0, 1), targets.flatten()
    parts = [
        checkpoint(_summed_loss, part, target, head.weight, **RECOMPUTED)
        if hidden.shape[0] > chunk
        else _summed_loss(part, target, head.weight)
        for part, target in zip(hidden.split(chunk), targets.split(chunk), strict=True)
    ]
    return sum(parts[1:], parts[0]) / (targets != IGNORED).sum().clamp(min=1)


def _summed_loss(hidden: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(hidden, weight).float(), targets, ignore_index=IGNORED, reduction="sum")


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


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
"""Names in the order of the values of `gate_and_selection_statistics`."""


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
