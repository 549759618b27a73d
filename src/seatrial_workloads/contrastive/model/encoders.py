"""The two encoders. In: a source for each. Out: transformers' models, with weights from a folder or hub id, or random ones.

`base` is the shape of wav2vec2-base and bert-base-uncased; `tiny` has the same structure and trains on a CPU in seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel, Wav2Vec2Config, Wav2Vec2Model

from seatrial.core.errors import nearest
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.errors import StartupError, first_line
from seatrial_workloads.contrastive.model.shapes import SPEECH_CONFIGS, TEXT_CONFIGS
from seatrial_workloads.contrastive.settings import CONFIG_NAMES, DEFAULT_REVISION, Settings

# The report shows a reason with this prefix as a caution.
RANDOM = {
    "base": "caution: random weights in the real shape; speed is realistic, loss is not",
    "tiny": "caution: a toy model with random weights; neither its speed nor its loss is realistic",
}
# Stricter than elsewhere: a folder or hub id may look like one of them.
LIKE_A_CONFIG = 0.6


def speech_model(source: str, attention: str, revision: str | None = None) -> Wav2Vec2Model:
    """wav2vec2 in fp32, since it is trained."""
    if source in CONFIG_NAMES:
        return Wav2Vec2Model(Wav2Vec2Config(**SPEECH_CONFIGS[source], attn_implementation=attention))
    return _loaded(Wav2Vec2Model, "speech_model", source, attention, revision)


def text_model(source: str, attention: str, vocab_size: int, revision: str | None = None) -> BertModel:
    """BERT without its pooling layer: the loss uses [CLS] directly."""
    if source in CONFIG_NAMES:
        config = BertConfig(**TEXT_CONFIGS[source], vocab_size=vocab_size, attn_implementation=attention)
        return BertModel(config, add_pooling_layer=False)
    return _loaded(BertModel, "text_model", source, attention, revision, add_pooling_layer=False)


def random_weight_cautions(settings: Settings) -> dict[str, Choice]:
    """A choice with a caution for each encoder with random weights."""
    sources = {"speech_model": settings.speech_model, "text_model": settings.text_model}
    return {name: Choice(source, source, RANDOM[source]) for name, source in sources.items() if source in CONFIG_NAMES}


def describe_source(source: str) -> str:
    """Name of a source for the log, marking random weights."""
    return f"{source} (random weights)" if source in CONFIG_NAMES else source


def revision_choices(settings: Settings, speech: Wav2Vec2Model, text: BertModel) -> dict[str, Choice]:
    """The commit that each encoder of the hub was loaded from: without a revision it is what the hub had at that moment."""
    loaded = (("speech_revision", settings.speech_model, speech), ("text_revision", settings.text_model, text))
    return {
        name: _revision(source, getattr(settings, name), getattr(model.config, "_commit_hash", None))
        for name, source, model in loaded
        if source not in CONFIG_NAMES
    }


def _revision(source: str, requested: str | None, commit: str | None) -> Choice:
    if Path(source).is_dir():
        return Choice(requested, None, "a folder on this machine has no revisions")
    return Choice(requested, commit or requested, "the commit that the hub gave" if commit else "the hub gave no commit")


def _loaded(kind: Any, setting: str, source: str, attention: str, revision: str | None, **options: Any) -> Any:
    near = nearest(source, CONFIG_NAMES, LIKE_A_CONFIG)
    if near and not Path(source).exists():
        # Asking the hub would take half a minute.
        raise StartupError(f"{setting} is '{source}', and there is no such folder: did you mean '{near}'?")
    try:
        return kind.from_pretrained(
            source, revision=revision or DEFAULT_REVISION, attn_implementation=attention, dtype=torch.float32, **options
        )
    except (OSError, ValueError) as error:
        raise StartupError(
            f"{setting} is '{source}', which is neither a local model folder nor a reachable hub id "
            f"({first_line(error)}): correct it, or use 'base' or 'tiny' for random weights"
        ) from error
