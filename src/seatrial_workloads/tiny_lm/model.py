"""A small GPT. In: token ids (batch, sequence). Out: logits (batch, sequence, vocabulary)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from seatrial_workloads.tiny_lm.settings import Settings

INIT_STD = 0.02


class TinyLM(nn.Module):
    """Token and position embeddings, pre-norm blocks, a head that shares the token embedding."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        d_model = settings.d_model
        self.tokens = nn.Embedding(settings.vocab_size, d_model)
        self.positions = nn.Embedding(settings.seq_len, d_model)
        self.blocks = nn.ModuleList(Block(d_model, settings.n_heads) for _ in range(settings.n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.apply(_initialise)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.tokens.weight)

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


class Block(nn.Module):
    """Pre-norm attention and feed-forward layer with residuals."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = CausalAttention(d_model, n_heads)
        self.mlp_norm = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.mlp(self.mlp_norm(hidden))


class CausalAttention(nn.Module):
    """Multi-head causal self-attention."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query_key_value = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, seq_len, d_model = hidden.shape
        query, key, value = self.query_key_value(hidden).view(batch, seq_len, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, seq_len, d_model))


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy, always in fp32."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
