"""The help of train.py: usage, experiments, and every key with its default. Needs no torch."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from seatrial_workloads.common.settings_file import field_texts
from seatrial_workloads.contrastive.hydra_config.checks import checked_values
from seatrial_workloads.contrastive.hydra_config.compose import CONFIGS, composed_tree
from seatrial_workloads.contrastive.hydra_config.keys import KEYS, Key
from seatrial_workloads.contrastive.settings import Settings

USAGE = """\
usage: train.py [+experiment=NAME] [KEY=VALUE ...] [--cfg job] [--help]

Train the contrastive speech–text model. Keys are written as Hydra takes them (train.seed=1, ++train.seed=1), and every key is checked.
--cfg job prints the configuration that comes of it and trains nothing. --local_rank, which launchers add, is taken and needs no key.

  deepspeed --include localhost:0,1 train.py +experiment=limit_longest_1-3_stage1_bf16 ++dataset.root_dir=data/LibriSpeech_16k_trim
  python train.py model.speech_encoder.pretrained_path=tiny model.text_encoder.pretrained_path=tiny train.max_step_iterations=20
"""


def help_text() -> str:
    return "\n".join([USAGE, "experiments (+experiment=NAME):", *_experiments(), "", "keys and their defaults:", *_keys(), ""])


def text_of(key: Key) -> str:
    """One line about a key: its own, else that of the field it fills."""
    return key.text or _texts_of_fields()[key.fields[0]]


def shown(value: Any) -> str:
    """A value as it would be typed."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


@functools.cache
def _texts_of_fields() -> dict[str, str]:
    return field_texts(Settings)


def _experiments() -> Iterator[str]:
    for file in sorted((CONFIGS / "experiment").glob("*.yaml")):
        about = next(line[2:] for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# ") and "@package" not in line)
        yield f"  {file.stem}\n      {about}"


def _keys() -> Iterator[str]:
    tree, _ = composed_tree((), {})
    for name, value in checked_values(tree).items():
        yield f"  {name}={shown(value)}\n      {text_of(KEYS[name])}"
