"""Pretrained weights, resuming and saving of the contrastive trainer.

In: settings, the model or its engine, the log. Out: the model or engine restored; folders under RUN_DIR/checkpoints.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

from torch import nn

from seatrial_workloads.common.checkpoints import (
    CheckpointInfo,
    check_same,
    find_checkpoint,
    load_weights,
    resume_source,
    save_checkpoint,
    tag_name,
)
from seatrial_workloads.common.distributed import RankContext
from seatrial_workloads.common.engines import Engine, EngineOptions
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.train_log import TrainLog, is_due
from seatrial_workloads.contrastive.effective_settings import engine_options
from seatrial_workloads.contrastive.settings import Settings

# Settings that a resumed training must share with its checkpoint: the engine writes its own files, the frozen encoders come from models
# and seed, and the utterances seen so far follow from seed and batch.
SAME_ON_RESUME = (
    "engine",
    "zero_stage",
    "mixed_precision",
    "seed",
    "speech_model",
    "text_model",
    "speech_revision",
    "text_revision",
    "micro_batch",
    "length_buckets",
    "gather_negatives",
)
# Settings that may change on resume without a line in the log.
FREE_ON_RESUME = ("steps", "resume_from", "log_every", "num_workers", "prefetch_factor", "pretrained_checkpoint")


def load_pretrained_weights(model: nn.Module, settings: Settings, log: TrainLog) -> None:
    """Load `pretrained_checkpoint`, if set, and log missing and unexpected keys."""
    if settings.pretrained_checkpoint is None:
        return
    missing, unexpected = load_weights(model, Path(settings.pretrained_checkpoint))
    log.info(f"Weights from {settings.pretrained_checkpoint}")
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    for what, keys in (("missing", missing), ("unexpected", unexpected)):
        named = [key for key in keys if key not in frozen]
        if named:
            log.info(f"{len(named)} {what} keys: {', '.join(named)}")
        if len(named) < len(keys):
            places = Counter(key.rsplit(".layer", 1)[0].rsplit(".conv_layers", 1)[0] for key in keys if key in frozen)
            counts = ", ".join(f"{place}.* ({count})" for place, count in places.items())
            log.info(f"{what} keys of the frozen encoders, which stay unchanged: {counts}")


def resumable_options(settings: Settings) -> EngineOptions:
    """The engine's options, those of the checkpoint to resume from where its files need them."""
    options, source = engine_options(settings), resume_source(settings.resume_from)
    if source is None or settings.engine != "deepspeed" or not settings.zero_stage:
        return options
    from seatrial_workloads.common.engines.deepspeed_engine import saved_with_alignment

    return dataclasses.replace(options, parameter_alignment=saved_with_alignment(find_checkpoint(source).folder))


def resume_from_checkpoint(engine: Engine, settings: Settings, context: RankContext) -> int:
    """Restore the engine from `resume_from` or the attempt that the harness names, if any; returns the first step to run."""
    source = resume_source(settings.resume_from)
    if source is None:
        return 0
    checkpoint, values = find_checkpoint(source), dataclasses.asdict(settings)
    for damage in checkpoint.skipped:
        context.log.info(f"Skipped a damaged checkpoint: {damage}")
    check_same(checkpoint, {"world_size": context.ranks.world_size, **{name: values[name] for name in SAME_ON_RESUME}})
    engine.load(checkpoint.folder)
    done = checkpoint.info.step
    # An earlier attempt may have done every step but not ended: then this one only ends.
    if done + 1 > settings.steps or (done + 1 == settings.steps and str(source) == settings.resume_from):
        raise StartupError(f"{checkpoint.folder} is at step {done}, and steps is {settings.steps}: nothing left to do")
    context.log.info(f"Resuming after step {done} from {checkpoint.folder}")
    for name, value in values.items():
        saved = checkpoint.info.settings.get(name, value)
        if saved != value and name not in FREE_ON_RESUME:
            context.log.info(f"{name} was {saved} and is now {value}")
    return done + 1


def is_checkpoint_due(step: int, settings: Settings) -> bool:
    """Every `checkpoint_every_steps` and after the last, unless the interval exceeds the run, the original scripts' way to turn it off."""
    every = settings.checkpoint_every_steps
    is_last = every is not None and every <= settings.steps and step == settings.steps - 1
    return is_last or is_due(step, every)


def save_training(engine: Engine, settings: Settings, context: RankContext, step: int) -> None:
    """Called by all ranks."""
    info = CheckpointInfo(
        engine=settings.engine,
        zero_stage=settings.zero_stage,
        world_size=context.ranks.world_size,
        step=step,
        seed=settings.seed,
        settings=dataclasses.asdict(settings),
    )
    tag = tag_name(step, settings.checkpoint_tag_style)
    folder = save_checkpoint(
        context.run_dir, tag, info, lambda part: engine.save(part, {"step": step}), context.ranks, keep=settings.checkpoint_keep
    )
    context.log.info(f"Checkpoint of step {step}: {folder}")
