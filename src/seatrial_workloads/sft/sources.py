"""Where model and dataset come from: built in, a local path, or the hub; and what is wrong with that here. Standard library only.

Called before anything is launched: a job that waited in a queue for a model that cannot be loaded has wasted its turn.
"""

from __future__ import annotations

import os
import re
import socket
import urllib.parse
from pathlib import Path

from seatrial.core.errors import nearest
from seatrial_workloads.sft.shapes import RANDOM_MODELS, hub_cache

GENERATED = "generated"
DATA_FILES = (".json", ".jsonl", ".parquet")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Stricter than elsewhere: a folder or hub id may look like one of them.
LIKE_A_NAME = 0.7
CONNECT_TIMEOUT_S = 3.0
INSTEAD = "use model=tiny (random weights, no network) with dataset=generated"


def model_problem(model: str, cwd: Path) -> str | None:
    """What is wrong with a built-in name or a local folder; None for what may be a hub id."""
    path = cwd / model
    if model in RANDOM_MODELS:
        return None
    if path.is_dir():
        return None if (path / "config.json").is_file() else f"the folder {model} has no config.json: use the folder with the model's files"
    return _not_a_hub_id("model", model, tuple(RANDOM_MODELS), "a local folder")


def dataset_problem(dataset: str, cwd: Path) -> str | None:
    """What is wrong with a built-in name or a local path; None for what may be a hub id."""
    path = cwd / dataset
    if dataset == GENERATED or path.is_file():
        return None if dataset == GENERATED or path.suffix in DATA_FILES else f"{dataset} is no {', '.join(DATA_FILES)} file"
    if path.is_dir():
        return None if data_files(path) else f"the folder {dataset} has neither a saved dataset nor {', '.join(DATA_FILES)} files"
    return _not_a_hub_id("dataset", dataset, (GENERATED,), "a local folder or file")


def _not_a_hub_id(setting: str, name: str, built_in: tuple[str, ...], local: str) -> str | None:
    near = nearest(name, built_in, LIKE_A_NAME)
    if near:
        return f"{setting} is '{name}', and there is no such folder: did you mean '{near}'?"
    if not _HUB_ID.fullmatch(name) or Path(name).suffix in DATA_FILES:
        return f"{setting} is '{name}', and there is no such path: give {local}, a hub id, or {' or '.join(built_in)}"
    return None


def data_files(folder: Path) -> list[Path]:
    """Files that hold a local dataset: those of `save_to_disk`, else JSON and Parquet files."""
    if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
        return sorted(path for path in folder.rglob("*") if path.suffix in (".arrow", ".json"))
    return sorted(path for path in folder.rglob("*") if path.suffix in DATA_FILES and not path.name.startswith("."))


def is_hub_id(name: str, built_in: object, cwd: Path) -> bool:
    return name not in built_in and not (cwd / name).exists()  # type: ignore[operator]


def hub_problem(model: str, dataset: str, cwd: Path) -> str | None:
    """One sentence where the hub is needed and cannot be reached; None otherwise."""
    wanted = []
    if is_hub_id(model, RANDOM_MODELS, cwd) and not _is_cached("models", model):
        wanted.append(f"model '{model}'")
    if is_hub_id(dataset, (GENERATED,), cwd) and not _is_cached("datasets", dataset):
        wanted.append(f"dataset '{dataset}'")
    why = _unreachable() if wanted else None
    return f"{' and '.join(wanted)} must be downloaded, and {why}: give a local folder, or {INSTEAD}" if why else None


def _is_cached(kind: str, name: str) -> bool:
    return any((hub_cache() / f"{kind}--{name.replace('/', '--')}" / "snapshots").glob("*/*"))


def _unreachable() -> str | None:
    """Why the hub cannot be reached; None where it answers."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return "HF_HUB_OFFLINE is set"
    endpoint = urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    via = urllib.parse.urlsplit(proxy) if proxy else endpoint
    host, port = via.hostname or "huggingface.co", via.port or (443 if via.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return f"{host}:{port} cannot be reached ({error.strerror or error})"
    return None
