"""The procedure's command line, over the same training. In: the file named by CONFIG, NSA_* variables, flags. Out: files in train.out_dir.

export CONFIG=configs/m7c_125m_2xa100_production.yaml
torchrun --nproc_per_node=2 scripts/train_showcase.py --dataset synthetic --ddp 1 --steps 300

Flags come before variables, variables before the file. Strict: an unset CONFIG, an unknown flag, variable or key is an error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.core.errors import did_you_mean
from seatrial.probe.identity import integer_variable, rank_and_world_size
from seatrial.records.events import ENV_ATTEMPT, ENV_RUN, ENV_RUN_DIR
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.errors import NotFinite, StartupError
from seatrial_workloads.common.run_folder import check_writable
from seatrial_workloads.sparse_lm.config import CONFIRMS, EXIT_CODES, YES, check_long_run, read_config
from seatrial_workloads.sparse_lm.settings import DATASETS, Settings
from seatrial_workloads.sparse_lm.variables import VARIABLES, read_variables

PROGRAM = "train_showcase"
PRODUCTION = "configs/m7c_125m_2xa100_production.yaml"
# The procedure's defaults of unset variables: its A/B of fused AdamW and its compressed gradients depend on them.
DEFAULTS = {"fused_adam": False}
DEFAULT_COMPRESSION = "bf16"
# Flag → setting.
FLAG_SETTINGS = {
    "dataset": "dataset",
    "steps": "steps",
    "seq_len": "seq_len",
    "batch_size": "batch_size",
    "accum_batches": "accumulate",
    "loader_timeout": "loader_timeout_s",
    "fwe_report_docs": "report_docs",
    "local_path": "local_path",
    "resume": "resume_from",
}


class StrictParser(argparse.ArgumentParser):
    """Names the nearest flag for an unknown one, and raises instead of exiting. Workloads must not import the procedures' own parser."""

    def error(self, message: str) -> Any:
        raise StartupError(message)

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        parsed, unknown = self.parse_known_args(argv)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            flag = unknown[0].partition("=")[0]
            raise StartupError(f"unknown flag {flag}: {did_you_mean(flag, known)}")
        return parsed


def parser() -> StrictParser:
    flags = StrictParser(
        prog=PROGRAM,
        description="Train the sparse-attention language model of the configuration that CONFIG names.",
        epilog=f"{EXIT_CODES} Variables: CONFIG, {', '.join(VARIABLES)}. docs/sparse-lm.md has what each does.",
        allow_abbrev=False,
    )
    flags.add_argument("--dataset", choices=DATASETS, default="synthetic", help="training text (default: synthetic)")
    flags.add_argument("--steps", type=int, metavar="N", help="optimiser steps, in place of train.steps")
    flags.add_argument("--seq-len", type=int, metavar="S", help="tokens per row, in place of train.seq_len")
    flags.add_argument("--batch-size", type=int, metavar="B", help="rows of all ranks together, in place of train.batch_size")
    flags.add_argument("--accum-batches", type=int, metavar="N", help="passes per step, in place of train.accumulate_grad_batches")
    flags.add_argument("--no-gc", action="store_true", help="no gradient checkpointing")
    flags.add_argument("--compile", action="store_true", help="torch.compile of the blocks; on one GPU the step is a CUDA graph too")
    flags.add_argument("--ddp", type=int, choices=(-1, 0, 1), default=-1, help="1: several ranks, 0: one, -1: by WORLD_SIZE (default)")
    flags.add_argument("--resume", metavar="FOLDER", help="checkpoint folder, or a run folder that has one")
    flags.add_argument("--save", type=Path, metavar="FILE", help="where the trained weights go at the end (default: nowhere)")
    flags.add_argument("--local-path", metavar="PATH", help="folder of .jsonl or .parquet files, for fineweb_edu_local")
    flags.add_argument("--loader-timeout", type=float, metavar="S", help="longest wait for the first batch, in seconds (default: 60)")
    flags.add_argument("--fwe-report-docs", type=int, metavar="N", default=1000, help="documents between two loader lines (default: 1000)")
    flags.add_argument("--synthetic-on-fail", action="store_true", help="train on synthetic text where the dataset gives no first batch")
    flags.add_argument(YES, action="store_true", help=CONFIRMS)
    return flags


@dataclass(frozen=True, kw_only=True)
class Start:
    """The training that a command line requests."""

    settings: Settings
    config: Path
    out_dir: Path
    no_effect: dict[str, Choice]
    save: Path | None


def read_start(argv: Sequence[str], env: Mapping[str, str]) -> Start:
    """Read and check the command line before torch is imported."""
    flags = parser().parse_strictly(argv)
    config = read_config(config_path(env))
    variables = read_variables(env)
    world_size = check_ddp(flags.ddp, env)
    compression = {"ddp_compression": DEFAULT_COMPRESSION} if world_size > 1 else {}
    values = {**DEFAULTS, **compression, **config.settings, **variables.settings, **flag_settings(flags)}
    try:
        settings = Settings(**values)
    except ValueError as error:
        raise StartupError(f"{config.path} with these flags and variables: {error}") from error
    if not flags.yes:
        check_long_run(settings, is_named=True)
    no_effect = {**config.no_effect, **variables.no_effect}
    if flags.ddp == 1 and world_size == 1:
        no_effect["--ddp"] = Choice(1, None, "caution: a world of one rank has nothing to exchange; start several with torchrun")
    return Start(settings=settings, config=config.path, out_dir=config.out_dir, no_effect=no_effect, save=flags.save)


def config_path(env: Mapping[str, str]) -> Path:
    if not env.get("CONFIG"):
        raise StartupError(f"CONFIG is not set, and there is no default model: export CONFIG={PRODUCTION}")
    return Path(env["CONFIG"])


def flag_settings(flags: argparse.Namespace) -> dict[str, Any]:
    given = {setting: value for flag, setting in FLAG_SETTINGS.items() if (value := getattr(flags, flag)) is not None}
    if flags.no_gc:
        given["gradient_checkpointing"] = False
    if flags.compile:
        given["compile"] = True
    if flags.synthetic_on_fail:
        given["synthetic_on_fail"] = True
    return given


def check_ddp(requested: int, env: Mapping[str, str]) -> int:
    """The number of ranks, checked against `--ddp`."""
    world_size = rank_and_world_size(env)[1]
    if requested == 0 and world_size > 1:
        raise StartupError(f"--ddp 0 is for one rank, and there are {world_size}: start it with python, or use --ddp 1")
    if requested == 1 and "WORLD_SIZE" not in env:
        raise StartupError(f"--ddp 1 is for several ranks, and this is one: start it with torchrun --nproc_per_node=2 {sys.argv[0]} …")
    return world_size


def main(argv: Sequence[str] | None = None) -> None:
    try:
        start = read_start(sys.argv[1:] if argv is None else argv, os.environ)
        run(start)
    except StartupError as error:
        sys.exit(f"{PROGRAM}: error: {error}")


def run(start: Start) -> None:
    from seatrial_workloads.sparse_lm.reporting import RunInfo
    from seatrial_workloads.sparse_lm.train import start_id, train

    by_harness = os.environ.get(ENV_RUN_DIR)
    run_dir = Path(by_harness or start.out_dir)
    # The harness sets it.
    run_id = os.environ.setdefault(ENV_RUN, start_id())
    rank, world_size = rank_and_world_size(os.environ)
    if start.save is not None and rank == 0:
        check_save(start.save)
    notes = () if by_harness else prepare_out_dir(run_dir, start.settings.resume_from, rank, world_size)
    info = RunInfo(
        run_id=run_id,
        attempt=integer_variable(os.environ, ENV_ATTEMPT, 1),
        no_effect=start.no_effect,
        facts={"config": str(start.config), "config_out_dir": str(start.out_dir)},
        notes=notes,
        save=start.save,
    )
    try:
        train(start.settings, run_dir, info)
    except NotFinite as error:
        sys.exit(f"{PROGRAM}: error: {error}")


def check_save(path: Path) -> None:
    """Refuse a file that could not be written after the last step."""
    check_writable(path.parent, "the folder of --save")
    if path.exists() and not path.is_file():
        raise StartupError(f"--save is {path}, which is not a file: name the file for the trained weights")


def prepare_out_dir(run_dir: Path, resume_from: str | None, rank: int, world_size: int) -> tuple[str, ...]:
    """Make room in train.out_dir; lines for the log. Nothing is moved unless the run can begin: the folder is writable, and the
    checkpoint to resume from is whole."""
    from seatrial_workloads.common.checkpoints import FOLDER, find_checkpoint
    from seatrial_workloads.sparse_lm.results import set_earlier_run_aside

    check_writable(run_dir, "train.out_dir")
    # Resolved: a path with `..` or a symbolic link may lead here too.
    resumed = find_checkpoint(Path(resume_from)).folder.resolve() if resume_from else None
    keep = resumed is not None and resumed.is_relative_to((run_dir / FOLDER).resolve())
    return set_earlier_run_aside(run_dir, rank, world_size, keep_checkpoints=keep)


if __name__ == "__main__":
    main()
