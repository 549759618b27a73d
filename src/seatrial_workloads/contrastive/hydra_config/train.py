"""The program behind runbooks/stage1/train.py. In: keys on the command line. Out: a training, or one line on stderr and exit code 1.

deepspeed --include localhost:0,1 train.py +experiment=limit_longest_1-3_stage1_bf16 ++train.max_step_iterations=1200
torchrun --standalone --nproc_per_node 2 train.py train.device=cpu model.speech_encoder.pretrained_path=tiny …

train.py: error: unknown key 'train.log_evry_steps': did you mean 'train.log_every_steps'?
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from seatrial.core.errors import WRONG_USE
from seatrial.probe.identity import rank_and_world_size
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.contrastive.hydra_config.command_line import HELP, SHOW, read_command_line
from seatrial_workloads.contrastive.hydra_config.compose import help_text, start_of
from seatrial_workloads.contrastive.hydra_config.keys import source_of
from seatrial_workloads.contrastive.hydra_config.run_folder import Start, config_text, create_run_dir, write_startup_files
from seatrial_workloads.contrastive.hydra_config.to_settings import ConfigurationError, with_key_names
from seatrial_workloads.contrastive.manifests import suggest_manifests

TRAINER = "seatrial_workloads.contrastive.train"
REQUIRED_PATHS = ("pretrained_checkpoint", "resume_from", "dataset_root", "dataset_manifest_path")


def main(argv: Sequence[str] | None = None) -> None:
    """Train, or print help or configuration. Every rank prints a usage error, since launchers kill the others when the first exits."""
    arguments = sys.argv if argv is None else ["train.py", *argv]
    try:
        rank = _own_rank()
        start = _start(arguments[1:], rank)
    except ConfigurationError as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        raise SystemExit(WRONG_USE) from None
    if start is not None:
        _train(start, rank, arguments)


def _own_rank() -> int:
    try:
        return rank_and_world_size(os.environ)[0]
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _start(arguments: Sequence[str], rank: int) -> Start | None:
    """What to train; None when only help or configuration was requested."""
    line = read_command_line(arguments)
    if line.action == HELP:
        _show(help_text(), rank)
        return None
    start = start_of(line, os.environ)
    if line.action == SHOW:
        _show(config_text(start.resolved), rank)
        return None
    _check_paths(start)
    if rank == 0:
        create_run_dir(start.run_dir, os.environ)
    return start


def _check_paths(start: Start) -> None:
    """Check by key that required paths exist, before the slow imports. Models may be hub ids and are not checked."""
    for field in REQUIRED_PATHS:
        path = getattr(start.settings, field)
        if path is not None and not Path(path).exists():
            others = ""
            if field == "dataset_manifest_path":
                others = suggest_manifests(start.settings.dataset_root, Path.cwd(), source_of(field))
            raise ConfigurationError(f"{source_of(field)} is {path}, and there is no such file or folder (from {Path.cwd()}){others}")


def _train(start: Start, rank: int, arguments: Sequence[str]) -> None:
    # Before the probe is created: it reads them.
    os.environ.update(start.environment)
    trainer = importlib.import_module(TRAINER)
    if rank == 0:
        for failure in write_startup_files(start, arguments):
            print(f"train.py: {failure}", file=sys.stderr)
    try:
        trainer.train(start.settings, start.run_dir, start.no_effect)
    except StartupError as error:
        print(f"train.py: error: {with_key_names(str(error))}", file=sys.stderr)
        raise SystemExit(WRONG_USE) from None


def _show(text: str, rank: int) -> None:
    if rank == 0:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
