"""Shapes of causal language models, from a config alone: parameters, LoRA parameters, FLOPs a token. Standard library only.

The architecture is that of Llama and Mistral: grouped-query attention, a gated MLP of three matrices, RMSNorm, no biases. Any other is
unknown even where its config has the same keys: experts, fused projections or a second norm would be left out of every count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial_workloads.sft.fast import MODEL_TYPES


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
    activation: str = "silu"
    window: int | None = None
    """Tokens that a token attends to at most; None for all before it."""

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
        """Parameters without LoRA's."""
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


TINY = Shape(hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, vocab=512, window=4096)
MISTRAL_7B = Shape(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, vocab=32000, window=4096)
RANDOM_MODELS = {
    "tiny": TINY,
    "tiny-llama": Shape(hidden=64, intermediate=128, layers=2, heads=4, kv_heads=4, vocab=512, model_type="llama"),
    "mistral-7b": MISTRAL_7B,
}
"""Models that are built with random weights and need no files."""
# Keys of such a config that add parameters, or store them in another format.
NOT_COUNTED = ("attention_bias", "mlp_bias", "quantization_config")
# For Mistral's configs that do not name one.
DEFAULT_WINDOW = 4096
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
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise UnknownShape("it is not a JSON object")
        return shape_of(config)
    except (OSError, ValueError) as error:
        raise UnknownShape(f"the shape in {path} is not known: {error}") from error


def shape_of(config: Mapping[str, Any]) -> Shape:
    """UnknownShape for another architecture, and for sizes that no model has."""
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise UnknownShape(f"model_type is {model_type!r}, and only {' and '.join(MODEL_TYPES)} are counted")
    for name in NOT_COUNTED:
        if config.get(name):
            raise UnknownShape(f"{name} is set, which is not counted")
    heads = _size(config, "num_attention_heads")
    # Only older configs of Llama leave it out: every head then has its own keys.
    kv_heads = heads if model_type == "llama" and config.get("num_key_value_heads") is None else _size(config, "num_key_value_heads")
    hidden = _size(config, "hidden_size")
    head_dim = _size(config, "head_dim") if config.get("head_dim") is not None else None
    if heads % kv_heads or (head_dim is None and hidden % heads):
        raise UnknownShape(f"hidden_size {hidden}, num_attention_heads {heads} and num_key_value_heads {kv_heads} do not divide evenly")
    window = config.get("sliding_window", DEFAULT_WINDOW if model_type == "mistral" else None)
    return Shape(
        hidden=hidden,
        intermediate=_size(config, "intermediate_size"),
        layers=_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        vocab=_size(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", False)),
        head_dim=head_dim,
        model_type=str(model_type),
        activation=str(config.get("hidden_act", "silu")),
        window=window if isinstance(window, int) else None,
    )


def _size(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnknownShape(f"{name} is {value!r}; expected a whole number of at least 1" if name in config else f"it has no {name}")
    return value


def hugging_face_home(env: Mapping[str, str] = os.environ) -> Path:
    """Cache folder of Hugging Face's libraries."""
    return Path(env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface").expanduser()


def hub_cache(env: Mapping[str, str] = os.environ) -> Path:
    """Where huggingface_hub keeps what it downloaded."""
    return Path(env.get("HF_HUB_CACHE") or hugging_face_home(env) / "hub").expanduser()


def hub_snapshot(kind: str, name: str, env: Mapping[str, str] = os.environ) -> Path | None:
    """The folder in the hub's cache that `name` stands for without a network: the commit that its branch main had."""
    repository = hub_cache(env) / f"{kind}--{name.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    folder = repository / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def cached_config(model: str) -> Path | None:
    """The config.json of a hub id in the hub's cache."""
    folder = hub_snapshot("models", model)
    return folder / "config.json" if folder is not None and (folder / "config.json").is_file() else None
