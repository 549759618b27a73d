"""A small model with everything that is difficult for engines, and batches for it.

A wav2vec2 (its positional convolution is parametrised), a frozen BERT called under no_grad, frozen weights that no forward uses, a learned
scale, a child's weight read by its parent, and dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel, Wav2Vec2Config, Wav2Vec2Model

ROWS = 4


class SmallModel(nn.Module):
    """Its forward returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.speech = Wav2Vec2Model(speech_config())
        self.speech.feature_extractor.requires_grad_(False)
        text = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=50)
        self.text = BertModel(text).requires_grad_(False).eval()
        self.unused = nn.Linear(4, 4).requires_grad_(False)
        self.project = nn.Linear(32, 32, bias=False)
        self.dropout = nn.Dropout(0.1)
        self.log_scale = nn.Parameter(torch.full((1,), 2.0))

    def forward(self, audio: Tensor, token_ids: Tensor) -> Tensor:
        speech = self.dropout(self.speech(audio).last_hidden_state.mean(dim=1))
        with torch.no_grad():
            words = self.text(token_ids).last_hidden_state[:, 0]
        speech = functional.normalize(functional.linear(speech, self.project.weight).float(), dim=-1)
        scores = self.log_scale.float().exp() * speech @ functional.normalize(words.float(), dim=-1).T
        return functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def speech_config() -> Wav2Vec2Config:
    return Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        # Of 16 channels each: a CPU with AMX computes bf16 convolutions of 8 channels a group wrongly (torch 2.13).
        num_conv_pos_embedding_groups=2,
        layerdrop=0.0,
        mask_time_prob=0.0,
    )


def new_model(seed: int = 0) -> SmallModel:
    torch.manual_seed(seed)
    return SmallModel()


def batch(step: int, rank: int) -> dict[str, Tensor]:
    own = torch.Generator().manual_seed(100 * step + rank)
    return {"audio": torch.randn(ROWS, 800, generator=own), "token_ids": torch.randint(50, (ROWS, 6), generator=own)}
