"""Widths of the two encoders. In: a source, as the settings name it. Out: transformers' configuration keys. Standard library only.

`base` is the shape of wav2vec2-base and bert-base-uncased; `tiny` has the same structure and trains on a CPU in seconds.
"""

from __future__ import annotations

from typing import Any

# With BERT's usual initialisation (0.02) random weights give almost the same [CLS] for every text, and nothing could be learned: these
# ranges were found by trial.
SPEECH_CONFIGS: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "conv_dim": (32,) * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "initializer_range": 0.05,
    },
}
TEXT_CONFIGS: dict[str, dict[str, Any]] = {
    "base": {"initializer_range": 0.08},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "initializer_range": 0.2},
}
# transformers' defaults for keys that a configuration leaves out.
SPEECH_DEFAULTS: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "conv_dim": (512,) * 7,
    "conv_kernel": (10, 3, 3, 3, 3, 2, 2),
    "conv_stride": (5, 2, 2, 2, 2, 2, 2),
    "conv_bias": False,
    "feat_extract_norm": "group",
    "num_conv_pos_embeddings": 128,
    "num_conv_pos_embedding_groups": 16,
    "hidden_dropout": 0.1,
    "activation_dropout": 0.1,
    "attention_dropout": 0.1,
}
TEXT_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
# Ids of the hub that have these shapes.
BASE_IDS = ("facebook/wav2vec2-base", "facebook/wav2vec2-base-960h", "bert-base-uncased", "google-bert/bert-base-uncased")


def smooth_length(least: int) -> int:
    """The next length with only the factors 2, 3 and 5, for which FFTs are fast."""
    length, rest = least - 1, 0
    while rest != 1:
        length += 1
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
    return length
