"""Shapes of causal language models, from a config alone: parameters, LoRA parameters, FLOPs a token. Standard library only.

The architecture is that of Llama and Mistral: grouped-query attention, a gated MLP of three matrices, RMSNorm, no biases.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a decoder."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool = False
    """Whether the output layer shares the embedding's weights."""
    head_dim: int | None = None
    """hidden / heads where the config has none."""
    model_type: str = "mistral"

    @property
    def dim_per_head(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of the matrices of a layer, by their names in transformers: what LoRA adapts."""
        attention, keys = self.heads * self.dim_per_head, self.kv_heads * self.dim_per_head
        return {
            "q_proj": (self.hidden, attention),
            "k_proj": (self.hidden, keys),
            "v_proj": (self.hidden, keys),
            "o_proj": (attention, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def layer_parameters(self) -> int:
        return sum(inputs * outputs for inputs, outputs in self.projections.values()) + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        return self.vocab * self.hidden

    @property
    def base_parameters(self) -> int:
        """All but LoRA's."""
        return self.layers * self.layer_parameters + self.embedding_parameters * (1 if self.tied else 2) + self.hidden

    def lora_parameters(self, rank: int) -> int:
        """LoRA on every projection."""
        return self.layers * rank * sum(inputs + outputs for inputs, outputs in self.projections.values())

    def attention_flops(self, context: float) -> float:
        """FLOPs a token of causal attention, forward and backward, where a token sees `context` tokens on average, itself included."""
        # Scores and their product with the values: 2 matmuls of 2 FLOPs a multiply-add forward, twice that backward.
        return 12.0 * self.layers * self.heads * self.dim_per_head * context

    def flops_per_token(self, *, lora_rank: int | None, context: float) -> float:
        """FLOPs of the model a trained token: 4 a frozen parameter (no weight gradients), 6 a trainable one, and causal attention. The
        embedding is a table lookup and counts only as the output layer. Recomputation by gradient checkpointing is not counted."""
        matrices = self.base_parameters - (0 if self.tied else self.embedding_parameters)
        if lora_rank is None:
            return 6.0 * matrices + self.attention_flops(context)
        return 4.0 * matrices + 6.0 * self.lora_parameters(lora_rank) + self.attention_flops(context)


TINY = Shape(hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, vocab=512)
MISTRAL_7B = Shape(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, vocab=32000)
RANDOM_MODELS = {
    "tiny": TINY,
    "tiny-llama": Shape(hidden=64, intermediate=128, layers=2, heads=4, kv_heads=4, vocab=512, model_type="llama"),
    "mistral-7b": MISTRAL_7B,
}
"""Models that are built with random weights, in need of no files."""
# Hub ids whose shape is known without the hub.
KNOWN = {"mistralai/Mistral-7B-v0.1": MISTRAL_7B}


class UnknownShape(ValueError):
    """The shape of a model cannot be read."""


def model_shape(model: str, cwd: Path | None = None) -> Shape:
    """Shape of a random model by its name, of a folder by its config.json, of a hub id where it is known or in the hub's cache."""
    if model in RANDOM_MODELS:
        return RANDOM_MODELS[model]
    folder = (cwd or Path()) / model
    config = folder / "config.json" if folder.is_dir() else cached_config(model)
    if config is not None:
        return read_config(config)
    if model in KNOWN:
        return KNOWN[model]
    raise UnknownShape(f"the shape of model '{model}' is not known here: give a local folder with its config.json")


def read_config(path: Path) -> Shape:
    """Shape in a config.json as transformers writes it."""
    try:
        return shape_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UnknownShape(
            f"{path} is no config of a causal language model ({what}): expected hidden_size, num_hidden_layers, …"
        ) from error


def shape_of(config: dict[str, Any]) -> Shape:
    heads = int(config["num_attention_heads"])
    return Shape(
        hidden=int(config["hidden_size"]),
        intermediate=int(config["intermediate_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        vocab=int(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", False)),
        head_dim=int(config["head_dim"]) if config.get("head_dim") else None,
        model_type=str(config.get("model_type", "mistral")),
    )


def hugging_face_home(env: Mapping[str, str] = os.environ) -> Path:
    """Folder of everything that Hugging Face's libraries keep."""
    return Path(env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface").expanduser()


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it downloaded."""
    return Path(os.environ.get("HF_HUB_CACHE") or hugging_face_home() / "hub").expanduser()


def cached_config(model: str) -> Path | None:
    """The config.json of a hub id in the hub's cache; the newest of several."""
    found = (hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots").glob("*/config.json")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)
