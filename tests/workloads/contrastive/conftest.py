"""A small tree of speech, shared by the tests of this folder. torch is imported only where a test needs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NUM_UTTERANCES = 40


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with its manifest; read only."""
    from seatrial_workloads.librispeech.synthetic import write_tree

    root = tmp_path_factory.mktemp("speech") / "LibriSpeech"
    write_tree(root, NUM_UTTERANCES, seed=3, mean_s=4.0)
    return root


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """The built-in one; read only."""
    from seatrial_workloads.contrastive.loading.tokens import load_tokenizer

    return load_tokenizer("tiny")


@pytest.fixture
def own_tree(tree: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return shutil.copytree(tree, tmp_path / "tree")


@pytest.fixture
def speech_settings(tree: Path) -> Callable[..., Any]:
    """Settings that train on the tree, by its manifest unless changed."""
    from seatrial_workloads.contrastive.settings import Settings

    def make(root: Path = tree, **changes: Any) -> Settings:
        where = {"dataset_root": str(root), "dataset_manifest_path": str(root / "manifest.tsv")}
        return Settings(**{**where, "device": "cpu", "num_workers": 0, **changes})

    return make
