"""Saving and resuming. In: the engine, settings, the loader's position. Out: folders under RUN_DIR/checkpoints; the first step to run.

Besides the engine's files a checkpoint has loader_rank{r}.pt, the loader's position.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from seatrial_workloads.common.checkpoints import (
    CheckpointInfo,
    check_same,
    find_checkpoint,
    load_tensors,
    resume_source,
    save_checkpoint,
    save_tensors,
    tag_name,
)
from seatrial_workloads.common.distributed import RankContext
from seatrial_workloads.common.engines import Engine
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.train_log import is_due
from seatrial_workloads.sparse_lm.settings import SHAPE_FIELDS, Settings

# Other values would mean another model, or another order of the text.
SAME_ON_RESUME = ("seed", "seq_len", "batch_size", "accumulate", "dataset", "tokenizer", "mixed_precision", *SHAPE_FIELDS)


def loader_file(folder: Path, rank: int) -> Path:
    return folder / f"loader_rank{rank}.pt"


def save_training(engine: Engine, settings: Settings, context: RankContext, step: int, position: dict[str, Any]) -> Path:
    """Called by all ranks, with the last completed step."""
    rank = context.ranks.rank
    info = CheckpointInfo(
        engine=engine.name,
        zero_stage=0,
        world_size=context.ranks.world_size,
        step=step,
        seed=settings.seed,
        settings=dataclasses.asdict(settings),
    )

    def write(part: Path) -> None:
        engine.save(part, {"step": step})
        save_tensors(loader_file(part, rank), position)

    return save_checkpoint(context.run_dir, tag_name(step, "iter"), info, write, context.ranks, keep=settings.checkpoint_keep)


def resume(engine: Engine, settings: Settings, context: RankContext) -> tuple[int, dict[str, Any] | None]:
    """Restore the engine from `resume_from` or the harness's attempt; returns the first step to run and the loader's position."""
    source = resume_source(settings.resume_from)
    if source is None:
        return 0, None
    checkpoint, values = find_checkpoint(source), dataclasses.asdict(settings)
    for damage in checkpoint.skipped:
        context.log.info(f"Skipped a damaged checkpoint: {damage}")
    same = {"engine": engine.name, "world_size": context.ranks.world_size, **{name: values[name] for name in SAME_ON_RESUME}}
    check_same(checkpoint, same, "start over")
    engine.load(checkpoint.folder)
    done = checkpoint.info.step
    if done + 1 > settings.steps or (done + 1 == settings.steps and str(source) == settings.resume_from):
        raise StartupError(f"{checkpoint.folder} is at step {done}, and steps is {settings.steps}: nothing left to do")
    context.log.info(f"Resuming after step {done} from {checkpoint.folder}")
    position: dict[str, Any] = load_tensors(loader_file(checkpoint.folder, context.ranks.rank))
    return done + 1, position or None


def is_checkpoint_due(step: int, settings: Settings) -> bool:
    """Every `checkpoint_every`, and after the last step unless the interval exceeds the run."""
    every = settings.checkpoint_every
    return every is not None and (is_due(step + 1, every) or (step == settings.steps - 1 and every <= settings.steps))
