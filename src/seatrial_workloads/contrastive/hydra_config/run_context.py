"""What rank 0 leaves in the run folder before the training: resolved_config.yaml and run_context.json.

In: a Start, the words of the command. Out: the two files, written aside and renamed; what looks like a secret in the command is masked.
A disk that takes neither is told and stops nothing: the training is worth more than its description.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from seatrial.files import write_json, write_text
from seatrial.machine.secrets import mask_words
from seatrial.probe.identity import rank_and_world_size, whole_number
from seatrial.shell import quote
from seatrial.units import MIB
from seatrial_workloads.common.human_lines import TRAIN_LOG
from seatrial_workloads.contrastive.hydra_config.compose import Start
from seatrial_workloads.contrastive.hydra_config.git_facts import git_facts, not_asked

RESOLVED_CONFIG, RUN_CONTEXT = "resolved_config.yaml", "run_context.json"


def write_startup_files(start: Start, argv: Sequence[str]) -> list[str]:
    """Write those that are wanted; a sentence for each that could not be written."""
    run_dir, told = start.run_dir, []
    if start.files.resolved_config:
        told += _tried(run_dir / RESOLVED_CONFIG, lambda path: write_text(path, config_text(start.resolved)))
    if start.files.run_context:
        told += _tried(run_dir / RUN_CONTEXT, lambda path: write_json(path, run_context(start, argv)))
    return told


def config_text(resolved: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(resolved), sort_keys=False, allow_unicode=True)


def run_context(start: Start, argv: Sequence[str], env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Who runs what, where and with which versions. `argv` begins with the script."""
    rank, world_size = rank_and_world_size(env)
    words = mask_words(argv)
    script = Path(argv[0]).absolute()
    return {
        "timestamp_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "pid": os.getpid(),
        "cwd": str(Path.cwd()),
        "argv": words,
        "command": quote([sys.executable, *words]),
        "paths": _paths(start, script),
        "distributed": {"rank": rank, "local_rank": whole_number(env, "LOCAL_RANK", 0), "world_size": world_size},
        "runtime": runtime(),
        "git": git_facts(script.parent) if start.files.git else not_asked(),
        "settings": dataclasses.asdict(start.settings),
        "variables": [dataclasses.asdict(variable) for variable in start.variables],
        "no_effect": [{"setting": name, **dataclasses.asdict(choice)} for name, choice in start.no_effect.items()],
    }


def runtime() -> dict[str, Any]:
    """Versions and devices; torch is asked only where it has been imported already."""
    torch = sys.modules.get("torch")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "torch_version": _version("torch"),
        "deepspeed_version": _version("deepspeed"),
        "cuda_version": getattr(getattr(torch, "version", None), "cuda", None),
        "devices": _devices(torch),
    }


def _paths(start: Start, script: Path) -> dict[str, str | None]:
    run_dir = start.run_dir.absolute()
    return {
        "run_dir": str(run_dir),
        "resolved_config": str(run_dir / RESOLVED_CONFIG) if start.files.resolved_config else None,
        "train_log": str(run_dir / TRAIN_LOG),
        "script": str(script),
        "dataset_root": str(Path(start.settings.dataset_root).absolute()),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices(torch: Any) -> list[dict[str, Any]]:
    """Every GPU that this process sees; none where torch sees none, or cannot say."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None:
        return []
    try:
        found = [cuda.get_device_properties(index) for index in range(cuda.device_count())]
    except RuntimeError as error:
        return [{"error": " ".join(str(error).split())}]
    return [
        {"index": index, "name": gpu.name, "compute_capability": f"{gpu.major}.{gpu.minor}", "memory_mib": gpu.total_memory // MIB}
        for index, gpu in enumerate(found)
    ]


def _tried(path: Path, write: Callable[[Path], None]) -> list[str]:
    try:
        write(path)
    except OSError as error:
        return [f"{path} was not written ({error.strerror}); the training goes on"]
    return []
