"""Where the two encoders come from. In: the settings' word for each. Out: transformers' models, with weights from a folder or hub id, or
built from a configuration here with random weights.

`base` is the shape of wav2vec2-base and bert-base-uncased; `tiny` has the same parts and trains on a CPU in seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel, Wav2Vec2Config, Wav2Vec2Model

from seatrial.errors import nearest
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.startup_error import StartupError
from seatrial_workloads.contrastive.settings import CONFIG_NAMES, Settings

# A reason that begins so stands as a caution in the report.
RANDOM = {
    "base": "caution: random weights in the real shape; the speed is that of a real training, the loss is not",
    "tiny": "caution: a toy with random weights, to try things out; neither its speed nor its loss says anything of a real training",
}
# Random weights of BERT's usual size (0.02) give almost the same [CLS] for every text, and there would be nothing to learn: these are
# larger, by how much was tried out.
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
# Closer than elsewhere: a folder or an id of a hub may well look like one of them.
LIKE_A_CONFIG = 0.6


def speech_model(source: str, attention: str) -> Wav2Vec2Model:
    """wav2vec2 in fp32: what is trained keeps its full precision."""
    if source in CONFIG_NAMES:
        return Wav2Vec2Model(Wav2Vec2Config(**SPEECH_CONFIGS[source], attn_implementation=attention))
    return _loaded(Wav2Vec2Model, "speech_model", source, attention)


def text_model(source: str, attention: str, vocab_size: int) -> BertModel:
    """BERT without its pooling layer: the loss takes [CLS] as it is."""
    if source in CONFIG_NAMES:
        config = BertConfig(**TEXT_CONFIGS[source], vocab_size=vocab_size, attn_implementation=attention)
        return BertModel(config, add_pooling_layer=False)
    return _loaded(BertModel, "text_model", source, attention, add_pooling_layer=False)


def told_of_sources(settings: Settings) -> dict[str, Choice]:
    """For the record, with a word of caution where weights are random."""
    sources = {"speech_model": settings.speech_model, "text_model": settings.text_model}
    return {name: Choice(source, source, RANDOM[source]) for name, source in sources.items() if source in CONFIG_NAMES}


def described(source: str) -> str:
    """For people: a toy with random weights must not pass for the real thing."""
    return f"{source} (random weights)" if source in CONFIG_NAMES else source


def _loaded(kind: Any, setting: str, source: str, attention: str, **options: Any) -> Any:
    near = nearest(source, CONFIG_NAMES, LIKE_A_CONFIG)
    if near and not Path(source).exists():
        # Asking a hub for it would take half a minute.
        raise StartupError(f"{setting} is '{source}', and there is no such folder: did you mean '{near}'?")
    try:
        return kind.from_pretrained(source, attn_implementation=attention, dtype=torch.float32, **options)
    except (OSError, ValueError) as error:
        raise StartupError(
            f"{setting} is '{source}', which is neither a folder with a model here nor a hub id that can be reached "
            f"({str(error).splitlines()[0]}): correct it, or use 'base' or 'tiny' for random weights"
        ) from error
