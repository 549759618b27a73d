"""The run folder, and the files rank 0 writes there before training: resolved_config.yaml and run_context.json, secrets masked.

SEATRIAL_RUN_DIR (the harness) > experiment_output_dir > hydra.run.dir > outputs/train/<time>.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from seatrial.core.files import json_text, write_text
from seatrial.core.shell import command_output, quote
from seatrial.core.text import MIB
from seatrial.machine.secrets import mask_argv
from seatrial.machine.software import GIT, GIT_TIMEOUT_S, package_version
from seatrial.probe.identity import integer_variable, rank_and_world_size
from seatrial.records.events import ENV_RUN_DIR
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.run_folder import NoSharedStartTime, holds_a_run, shared_start_name
from seatrial_workloads.common.train_log import TRAIN_LOG
from seatrial_workloads.contrastive.hydra_config.keys import OUTPUT_DIR
from seatrial_workloads.contrastive.hydra_config.to_settings import ConfigurationError, Variable
from seatrial_workloads.contrastive.settings import Settings

HYDRA_DIR = "hydra.run.dir"
DEFAULT_PARENT = Path("outputs/train")
STARTUP_FILES = ("resolved_config", "run_context", "git")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """What a trainer needs to start, and what to record about it."""

    settings: Settings
    run_dir: Path
    resolved: dict[str, Any]
    """Every key with its value, nested as in configs/."""
    no_effect: dict[str, Choice]
    """Keys whose value has no effect, or another one than requested; the trainer logs them."""
    variables: tuple[Variable, ...]
    files: frozenset[str]
    """What rank 0 writes before the training, of STARTUP_FILES."""
    environment: dict[str, str]
    """Variables to set before the probe is created."""


def choose_run_dir(output_dir: str | None, hydra_dir: str | None, env: Mapping[str, str]) -> tuple[Path, dict[str, Choice]]:
    """The folder, and a choice for each other folder that was requested."""
    requested = {ENV_RUN_DIR: env.get(ENV_RUN_DIR), OUTPUT_DIR: output_dir, HYDRA_DIR: hydra_dir}
    given = {name: folder for name, folder in requested.items() if folder}
    if not given:
        return DEFAULT_PARENT / shared_time(env), {}
    winner, chosen = next(iter(given.items()))
    others = {name: folder for name, folder in given.items() if Path(folder).absolute() != Path(chosen).absolute()}
    return Path(chosen), {name: Choice(folder, chosen, f"overridden by {winner}") for name, folder in others.items()}


def create_run_dir(run_dir: Path, env: Mapping[str, str]) -> None:
    """Create it on rank 0; refuse a folder that cannot be created or that has events of an earlier run."""
    if holds_a_run(run_dir, env):
        raise ConfigurationError(
            f"{OUTPUT_DIR} is {run_dir}, which holds an earlier run: use another folder; "
            f"to resume from its newest checkpoint add train.resume_from={run_dir}"
        )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{OUTPUT_DIR} is {run_dir}, which cannot be created ({error.strerror}): use another folder") from error


def shared_time(env: Mapping[str, str], pattern: str = "%Y%m%d-%H%M%S") -> str:
    """Start time that all ranks share, formatted."""
    try:
        return shared_start_name(env, pattern)
    except NoSharedStartTime as reason:
        raise ConfigurationError(f"ranks {reason} have no shared start time to name their folder: set {OUTPUT_DIR}=FOLDER") from None


MAX_STATUS_LINES = 200
UNTRACKED = "??"
NO_GIT = {
    "available": False,
    "repo_root": "",
    "commit": "",
    "branch": "",
    "dirty": None,
    "status_porcelain": [],
    "status_truncated": False,
}


def git_facts(folder: Path) -> dict[str, Any]:
    """Commit, branch and changes of the repository that `folder` belongs to."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None:
        no_answer = f"{folder} is not a repository, or git took over {GIT_TIMEOUT_S:g} s"
        return {**NO_GIT, "error": no_answer if shutil.which("git") else "no git on PATH"}
    status = _git(folder, "status", "--porcelain")
    lines = (status or "").splitlines()
    return {
        "available": True,
        "repo_root": root.strip(),
        "commit": (_git(folder, "rev-parse", "HEAD") or "").strip(),
        "branch": (_git(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": None if status is None else any(not line.startswith(UNTRACKED) for line in lines),
        "status_porcelain": lines[:MAX_STATUS_LINES],
        "status_truncated": len(lines) > MAX_STATUS_LINES,
        "error": f"git status did not answer within {GIT_TIMEOUT_S:g} s" if status is None else "",
    }


def _git(folder: Path, *arguments: str) -> str | None:
    return command_output([*GIT, *arguments], cwd=folder, timeout_s=GIT_TIMEOUT_S)


RESOLVED_CONFIG, RUN_CONTEXT = "resolved_config.yaml", "run_context.json"


def write_startup_files(start: Start, argv: Sequence[str]) -> list[str]:
    """Write the requested files; a message for each that failed."""
    texts: dict[str, Callable[[], str]] = {}
    if "resolved_config" in start.files:
        texts[RESOLVED_CONFIG] = lambda: config_text(start.resolved)
    if "run_context" in start.files:
        texts[RUN_CONTEXT] = lambda: json_text(run_context(start, argv))
    failures = []
    for name, text in texts.items():
        try:
            write_text(start.run_dir / name, text())
        except OSError as error:
            failures.append(f"{start.run_dir / name} could not be written ({error.strerror}); training continues")
    return failures


def config_text(resolved: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(resolved), sort_keys=False, allow_unicode=True)


def run_context(start: Start, argv: Sequence[str], env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Command, paths, ranks, versions, git state and settings. `argv` begins with the script."""
    rank, world_size = rank_and_world_size(env)
    masked = mask_argv(argv)
    script = Path(argv[0]).absolute()
    return {
        "timestamp_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "pid": os.getpid(),
        "cwd": str(Path.cwd()),
        "argv": masked,
        "command": quote([sys.executable, *masked]),
        "paths": _paths(start, script),
        "distributed": {"rank": rank, "local_rank": integer_variable(env, "LOCAL_RANK", 0), "world_size": world_size},
        "runtime": runtime(),
        "git": git_facts(script.parent) if "git" in start.files else {**NO_GIT, "error": "train.startup_metadata_git is false"},
        "settings": dataclasses.asdict(start.settings),
        "variables": [dataclasses.asdict(variable) for variable in start.variables],
        "no_effect": [{"setting": name, **dataclasses.asdict(choice)} for name, choice in start.no_effect.items()],
    }


def runtime() -> dict[str, Any]:
    """Versions and devices; torch is queried only if already imported."""
    torch = sys.modules.get("torch")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "torch_version": package_version("torch") or None,
        "deepspeed_version": package_version("deepspeed") or None,
        "cuda_version": getattr(getattr(torch, "version", None), "cuda", None),
        "devices": _devices(torch),
    }


def _paths(start: Start, script: Path) -> dict[str, str | None]:
    run_dir = start.run_dir.absolute()
    return {
        "run_dir": str(run_dir),
        "resolved_config": str(run_dir / RESOLVED_CONFIG) if "resolved_config" in start.files else None,
        "train_log": str(run_dir / TRAIN_LOG),
        "script": str(script),
        "dataset_root": str(Path(start.settings.dataset_root).absolute()),
    }


def _devices(torch: Any) -> list[dict[str, Any]]:
    """Every GPU visible to torch."""
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
