"""What a training of speech and text begins with and leaves: weights from elsewhere, a checkpoint to go on from, checkpoints on the way.

In: settings, the model or its engine, the lines to say it in. Out: the model or engine as it goes on; folders under RUN_DIR/checkpoints.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

from torch import nn

from seatrial_workloads.common.checkpoints.find import find_checkpoint, refuse_misfit, refuse_other_settings
from seatrial_workloads.common.checkpoints.folder import Facts, tag_of
from seatrial_workloads.common.checkpoints.pretrained import load_weights
from seatrial_workloads.common.checkpoints.save import save_checkpoint
from seatrial_workloads.common.due import is_due
from seatrial_workloads.common.engines import Engine
from seatrial_workloads.common.human_lines import HumanLines
from seatrial_workloads.common.one_rank import OneRank
from seatrial_workloads.common.startup_error import StartupError
from seatrial_workloads.contrastive.settings import Settings

# What a checkpoint was made with and a training that goes on after it must have too: the frozen encoders come from models and seed, and
# which utterances were seen already follows from seed and batch.
SAME_ON_RESUME = ("seed", "speech_model", "text_model", "micro_batch", "length_buckets", "gather_negatives")
# What may well be other, and is not worth a word.
FREE_ON_RESUME = ("steps", "resume_from", "log_every", "num_workers", "prefetch_factor", "pretrained_checkpoint")


def start_from_weights(model: nn.Module, settings: Settings, lines: HumanLines) -> None:
    """Those of `pretrained_checkpoint`, where one was named; what did not find its place is said."""
    if settings.pretrained_checkpoint is None:
        return
    loaded = load_weights(model, Path(settings.pretrained_checkpoint))
    lines.say(f"Weights from {settings.pretrained_checkpoint}")
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    for what, keys in (("missing in it", loaded.missing), ("unexpected in it", loaded.unexpected)):
        named = [key for key in keys if key not in frozen]
        if named:
            lines.say(f"{len(named)} keys {what}: {', '.join(named)}")
        if len(named) < len(keys):
            places = Counter(key.rsplit(".layer", 1)[0].rsplit(".conv_layers", 1)[0] for key in keys if key in frozen)
            told = ", ".join(f"{place}.* ({count})" for place, count in places.items())
            lines.say(f"keys of the frozen encoders {what}, which stay as they are: {told}")


def first_step(engine: Engine, settings: Settings, here: OneRank) -> int:
    """The step to begin with; the engine goes on from `resume_from`, where that was named."""
    if settings.resume_from is None:
        return 0
    checkpoint = find_checkpoint(Path(settings.resume_from))
    refuse_misfit(checkpoint, engine=settings.engine, zero_stage=settings.zero_stage, world_size=here.ranks.world_size)
    refuse_other_settings(checkpoint, dataclasses.asdict(settings), SAME_ON_RESUME)
    engine.load(checkpoint.folder)
    done = checkpoint.facts.step
    if done + 1 >= settings.steps:
        raise StartupError(f"{checkpoint.folder} is of step {done}, and steps is {settings.steps}: nothing is left to do")
    here.lines.say(f"Going on after step {done} from {checkpoint.folder}")
    for name, value in dataclasses.asdict(settings).items():
        saved = checkpoint.facts.settings.get(name, value)
        if saved != value and name not in FREE_ON_RESUME:
            here.lines.say(f"{name} was {saved} and is {value} from here on")
    return done + 1


def is_saved(step: int, settings: Settings) -> bool:
    """Every so many steps, and after the last, unless they are farther apart than the run is long: that is how never is said of old."""
    every = settings.checkpoint_every_steps
    is_last = every is not None and every <= settings.steps and step == settings.steps - 1
    return is_last or is_due(step, every)


def save(engine: Engine, settings: Settings, here: OneRank, step: int) -> None:
    """All ranks call it."""
    facts = Facts(
        engine=settings.engine,
        zero_stage=settings.zero_stage,
        world_size=here.ranks.world_size,
        step=step,
        seed=settings.seed,
        settings=dataclasses.asdict(settings),
    )
    tag = tag_of(step, settings.checkpoint_tag_style)
    folder = save_checkpoint(
        here.run_dir, tag, facts, lambda part: engine.save(part, {"step": step}), here.ranks, keep=settings.checkpoint_keep
    )
    here.lines.say(f"Checkpoint of step {step}: {folder}")
