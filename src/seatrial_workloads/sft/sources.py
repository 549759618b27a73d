"""Where model and dataset come from: built in, a local path, or the hub; and what is wrong with that here. Standard library only.

Called before anything is launched: a job should not wait in a queue for a model that cannot be loaded. A login node checks
only paths that the nodes see too (`is_seen`), the job's node all of them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from seatrial.core.errors import nearest
from seatrial_workloads.sft.shapes import RANDOM_MODELS, hub_cache, hub_snapshot

GENERATED = "generated"
DATA_FILES = (".json", ".jsonl", ".parquet")
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
INDEX = ".index.json"
"""Suffix of the index of weights that are stored in shards."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json")
TRAIN, NO_SPLIT = "train", ""
SPLITS = {
    TRAIN: frozenset({"train", "training"}),
    "validation": frozenset({"validation", "valid", "val", "dev"}),
    "test": frozenset({"test", "testing", "eval", "evaluation"}),
}
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Stricter than elsewhere: a folder or hub id may look like one of them.
LIKE_A_NAME = 0.7
CONNECT_TIMEOUT_S = 3.0
INSTEAD = "use model=tiny (random weights, no network) with dataset=generated"

IsSeen = Callable[[Path], bool]
"""Whether ranks see the same files at a path as this host."""


def source_problems(
    model: str, dataset: str, *, cwd: Path, env: Mapping[str, str] = os.environ, is_seen: IsSeen = lambda path: True
) -> Iterator[tuple[str, str]]:
    """(setting, problem) of model and dataset, as far as it can be known here."""
    local = {}
    if is_seen(cwd / model):
        local["model"] = model_problem(model, cwd)
    if is_seen(cwd / dataset):
        local["dataset"] = dataset_problem(dataset, cwd)
    problems = {setting: problem for setting, problem in local.items() if problem}
    yield from problems.items()
    # A name whose path is not seen here may be a folder there.
    names = (model if "model" in local else None, dataset if "dataset" in local else None)
    if not problems and is_seen(hub_cache(env)) and (problem := hub_problem(*names, cwd=cwd, env=env)):
        yield "model", problem


def model_problem(model: str, cwd: Path) -> str | None:
    """What is wrong with a built-in name or a local folder; None for what may be a hub id."""
    path = cwd / model
    if model in RANDOM_MODELS:
        return None
    if path.is_dir():
        missing = missing_of_model(path)
        return f"the folder {model} has no {missing}: use the folder with all of the model's files" if missing else None
    return _not_a_hub_id("model", model, tuple(RANDOM_MODELS), "a local folder")


def missing_of_model(folder: Path) -> str | None:
    """The first of config, weights and tokenizer that a model's folder lacks."""
    if not (folder / "config.json").is_file():
        return "config.json"
    weights = [name for name in WEIGHTS if (folder / name).is_file()]
    indexes = [folder / f"{name}{INDEX}" for name in WEIGHTS if (folder / f"{name}{INDEX}").is_file()]
    if not weights and not indexes:
        return f"weights ({WEIGHTS[0]}, its index with every shard, or {WEIGHTS[1]})"
    if not weights and (shard := _missing_shard(indexes[0])):
        return shard
    return None if any((folder / name).is_file() for name in TOKENIZERS) else f"tokenizer ({', '.join(TOKENIZERS[:2])}, …)"


def _missing_shard(index: Path) -> str | None:
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return next((f"{shard}, which {index.name} names" for shard in sorted(shards) if not (index.parent / shard).is_file()), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"readable {index.name}"


def dataset_problem(dataset: str, cwd: Path) -> str | None:
    """What is wrong with a built-in name or a local path; None for what may be a hub id."""
    path = cwd / dataset
    if dataset == GENERATED or path.is_file():
        return None if dataset == GENERATED or path.suffix in DATA_FILES else f"{dataset} is not a {', '.join(DATA_FILES)} file"
    if path.is_dir():
        if data_files(path):
            return None
        if splits := ", ".join(split or "no split" for split in sorted(_files_by_split(path))):
            return f"the folder {dataset} has files of {splits} and none of train: name what to train on train.*"
        return f"the folder {dataset} has neither a saved dataset nor {', '.join(DATA_FILES)} files"
    return _not_a_hub_id("dataset", dataset, (GENERATED,), "a local folder or file")


def _not_a_hub_id(setting: str, name: str, built_in: tuple[str, ...], local: str) -> str | None:
    near = nearest(name, built_in, LIKE_A_NAME)
    if near:
        return f"{setting} is '{name}', and there is no such folder: did you mean '{near}'?"
    if not _HUB_ID.fullmatch(name) or Path(name).suffix in DATA_FILES:
        return f"{setting} is '{name}', and there is no such path: give {local}, a hub id, or {' or '.join(built_in)}"
    return None


def data_files(folder: Path) -> list[Path]:
    """Files that hold a local dataset: those of `save_to_disk`, else JSON and Parquet files, of several splits those to train on."""
    if is_saved_dataset(folder):
        return sorted(path for path in folder.rglob("*") if path.suffix in (".arrow", ".json"))
    by_split = _files_by_split(folder)
    # Without any split name, all files are for training.
    return by_split.get(NO_SPLIT if set(by_split) == {NO_SPLIT} else TRAIN, [])


def is_saved_dataset(folder: Path) -> bool:
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def split_note(dataset: str, cwd: Path) -> str | None:
    """Which files of a folder are read, where some are left out."""
    folder = cwd / dataset
    if not folder.is_dir() or is_saved_dataset(folder):
        return None
    read = data_files(folder)
    others = [path for paths in _files_by_split(folder).values() for path in paths if path not in read]
    names = [", ".join(str(path.relative_to(folder)) for path in paths) for paths in (read, sorted(others))]
    return f"dataset {dataset}: the train split is {names[0]}; left out: {names[1]}" if others else None


def _files_by_split(folder: Path) -> dict[str, list[Path]]:
    """Files by split, by the hub's convention: a split's name is a word of the path, `train-00000-of-00002.parquet` or `test/a.jsonl`."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in DATA_FILES and not path.name.startswith("."):
            words = re.split(r"[^a-z]+", str(path.relative_to(folder).with_suffix("")).lower())
            split = next((split for split, names in SPLITS.items() if not names.isdisjoint(words)), NO_SPLIT)
            found.setdefault(split, []).append(path)
    return found


def hub_problem(model: str | None, dataset: str | None, *, cwd: Path, env: Mapping[str, str] = os.environ) -> str | None:
    """One sentence where the hub is needed and cannot be reached; None otherwise. A model or dataset of None is not checked."""
    wanted = []
    if model is not None and model not in RANDOM_MODELS and not (cwd / model).exists():
        folder = hub_snapshot("models", model, env)
        missing = missing_of_model(folder) if folder is not None else None
        if folder is None or missing:
            wanted.append(f"model '{model}'{f' (the cache has no {missing})' if missing else ''}")
    if dataset is not None and dataset != GENERATED and not (cwd / dataset).exists() and hub_snapshot("datasets", dataset, env) is None:
        wanted.append(f"dataset '{dataset}'")
    why = _unreachable(env) if wanted else None
    if why is None:
        return None
    what = "fill HF_HOME where it can be (hf download), give a local folder"
    return f"{' and '.join(wanted)} must be downloaded, and {why}: {what}, or {INSTEAD}"


def _unreachable(env: Mapping[str, str]) -> str | None:
    """Why the hub cannot be reached; None where it answers."""
    if env.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return "HF_HUB_OFFLINE is set"
    endpoint = urllib.parse.urlsplit(env.get("HF_ENDPOINT") or "https://huggingface.co")
    proxy = env.get("HTTPS_PROXY") or env.get("https_proxy")
    via = urllib.parse.urlsplit(proxy) if proxy else endpoint
    host, port = via.hostname or "huggingface.co", via.port or (443 if via.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return f"{host}:{port} cannot be reached ({error.strerror or error})"
    return None
