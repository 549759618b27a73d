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

from seatrial.probe.identity import rank_and_world_size
from seatrial.records.exit_codes import WRONG_USE
from seatrial_workloads.common.startup_error import StartupError
from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError
from seatrial_workloads.contrastive.hydra_config.command_line import HELP, SHOW, read_command_line
from seatrial_workloads.contrastive.hydra_config.compose import Start, start_of
from seatrial_workloads.contrastive.hydra_config.help_text import help_text
from seatrial_workloads.contrastive.hydra_config.keys import source_of
from seatrial_workloads.contrastive.hydra_config.run_context import config_text, write_startup_files
from seatrial_workloads.contrastive.hydra_config.run_folder import make_run_dir
from seatrial_workloads.contrastive.hydra_config.to_settings import in_typed_words
from seatrial_workloads.contrastive.manifests_nearby import clause_of_others

TRAINER = "seatrial_workloads.contrastive.train"
MUST_BE_THERE = ("pretrained_checkpoint", "resume_from", "dataset_root", "dataset_manifest_path")


def main(argv: Sequence[str] | None = None) -> None:
    """Train, or show what was asked to be shown. Wrong use is said by every rank: launchers kill the others once the first has ended."""
    words = sys.argv if argv is None else ["train.py", *argv]
    try:
        rank = _own_rank()
        start = _start(words[1:], rank)
    except ConfigurationError as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        raise SystemExit(WRONG_USE) from None
    if start is not None:
        _train(start, rank, words)


def _own_rank() -> int:
    try:
        return rank_and_world_size(os.environ)[0]
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _start(words: Sequence[str], rank: int) -> Start | None:
    """What to train; None when only something was to be shown."""
    line = read_command_line(words)
    if line.wanted == HELP:
        _show(help_text(), rank)
        return None
    start = start_of(line, os.environ)
    if line.wanted == SHOW:
        _show(config_text(start.resolved), rank)
        return None
    _check_paths(start)
    if rank == 0:
        make_run_dir(start.run_dir, os.environ)
    return start


def _check_paths(start: Start) -> None:
    """What must be there is: told now, with its key, rather than after the imports. A model may also be the name of one on a hub."""
    for field in MUST_BE_THERE:
        path = getattr(start.settings, field)
        if path is not None and not Path(path).exists():
            others = _other_manifests(start) if field == "dataset_manifest_path" else ""
            raise ConfigurationError(f"{source_of(field)} is {path}, and there is no such file or folder, seen from {Path.cwd()}{others}")


def _other_manifests(start: Start) -> str:
    return clause_of_others(start.settings.dataset_root, Path.cwd(), source_of("dataset_manifest_path"))


def _train(start: Start, rank: int, words: Sequence[str]) -> None:
    # Before the probe is made: it reads them.
    os.environ.update(start.environment)
    trainer = importlib.import_module(TRAINER)
    if rank == 0:
        for sentence in write_startup_files(start, words):
            print(f"train.py: {sentence}", file=sys.stderr)
    try:
        trainer.train(start.settings, start.run_dir, start.no_effect)
    except StartupError as error:
        print(f"train.py: error: {in_typed_words(str(error))}", file=sys.stderr)
        raise SystemExit(WRONG_USE) from None


def _show(text: str, rank: int) -> None:
    if rank == 0:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
