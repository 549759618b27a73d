"""The working folder of the procedures: what a user has after cloning and downloading, with small synthetic data.

In: an empty folder. Out: the same with

    scripts train.py            links to runbooks/stage1
    data/LibriSpeech/LibriSpeech              a synthetic tree, not yet prepared: the procedure does that
    data/weights/wav2vec2-base                toy encoders in folders as the hub lays them out
    data/weights/bert-base-uncased
    data/weights/csa/ckpt_epoch_8.pth         weights of the whole model
    hostfile                                  this machine, two slots
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.harness import LIGHT_DEEPSPEED
from tests.runbooks.blocks import ROOT, RUNBOOK

STAND_INS = Path(__file__).parent / "stand_ins"
CONDA_ENV = "csref_2"
"""The environment that the seeds' commands name."""
# Two ranks with batches of 160, the largest that is not rewritten, need 320 to train on.
NUM_UTTERANCES = 420
# Short ones: batches of 128 and 160 are decoded by two cores.
MEAN_S = 1.5
# Smaller than `tiny`: batches of 128 and 160 in half a second.
SPEECH = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (8,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "initializer_range": 0.2}
LINKED = ("scripts", "train.py")
# Variables of the caller that a procedure must not see.
FOREIGN = ("SEATRIAL_", "SWEEP_", "AB_", "DATASET_", "PYTEST_")


def lay_out(folder: Path) -> Path:
    """Create everything that the procedures expect; returns the folder."""
    for name in LINKED:
        (folder / name).symlink_to(RUNBOOK / name)
    # As in the repository: the runbook's commands refer to `../../plans/stage1`.
    (folder.parent.parent / "plans").symlink_to(ROOT / "plans")
    (folder / "hostfile").write_text("localhost slots=2\n")
    _make_speech(folder / "data" / "LibriSpeech" / "LibriSpeech")
    _make_weights(folder / "data" / "weights")
    return folder


def environment(folder: Path) -> dict[str, str]:
    """A user's shell there: the stub of conda first, then our programs; one thread per rank."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {
        **inherited,
        "PATH": f"{STAND_INS}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STAND_IN_CONDA_ENVS": CONDA_ENV,
        "SEATRIAL_FALLBACK_DIR": str(folder / "fallback"),
        "PYTHONPATH": str(LIGHT_DEEPSPEED),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        # A missing weight folder must be an error, not half a minute of requests to a hub.
        "HF_HUB_OFFLINE": "1",
    }


def _make_speech(root: Path) -> None:
    from seatrial_workloads.librispeech.synthetic import write_tree

    # A download has no manifest.
    write_tree(root, NUM_UTTERANCES, seed=1, mean_s=MEAN_S).unlink()


def _make_weights(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel, Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2Model

    from seatrial_workloads.contrastive.loading.tokens import small_tokenizer
    from seatrial_workloads.contrastive.model.speech_text import SpeechTextModel

    torch.manual_seed(0)
    tokenizer = small_tokenizer()
    speech = Wav2Vec2Model(Wav2Vec2Config(**SPEECH))
    text = BertModel(BertConfig(**TEXT, vocab_size=len(tokenizer)), add_pooling_layer=False)
    speech.save_pretrained(folder / "wav2vec2-base")
    Wav2Vec2FeatureExtractor().save_pretrained(folder / "wav2vec2-base")
    text.save_pretrained(folder / "bert-base-uncased")
    tokenizer.save_pretrained(folder / "bert-base-uncased")
    (folder / "csa").mkdir()
    torch.save({"model": SpeechTextModel(speech, text).state_dict()}, folder / "csa" / "ckpt_epoch_8.pth")
