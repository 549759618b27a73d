"""The speech tower through torch.compile. In: the model, its engine, what a batch's inputs are. Out: the model with the compiled tower in
place, or the plain one where that does not work, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.compiling import compile_or_fall_back
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.engines import Engine
from seatrial_workloads.contrastive.batch import Batch, still_batch
from seatrial_workloads.contrastive.fast.choose import longest_samples
from seatrial_workloads.contrastive.model import SpeechEncoder, SpeechTextModel
from seatrial_workloads.contrastive.settings import Settings

Inputs = Callable[[Batch], Mapping[str, Any]]
"""What the model is given of a batch, on its device."""


def compile_tower(model: SpeechTextModel, engine: Engine, settings: Settings, ranks: Ranks, inputs: Inputs) -> Choice:
    """Tried on a batch of the longest slices with nothing in it."""
    plain, samples = model.paths.speech, longest_samples(settings)
    num_frames = model.tower.num_frames(samples) if settings.mask_time_prob else None

    def warm_up(compiled: SpeechEncoder) -> None:
        model.paths.speech = compiled
        try:
            engine.warm_up(**inputs(still_batch(settings.micro_batch, samples, num_frames)))
        finally:
            model.paths.speech = plain

    model.paths.speech, choice = compile_or_fall_back(
        model.tower,
        warm_up,
        ranks=ranks,
        mode=settings.torch_compile_mode,
        dynamic=_dynamic(settings),
        cannot_compile=engine.cannot_compile,
    )
    return choice


def _dynamic(settings: Settings) -> bool | None:
    """As asked for; else one shape where slices are of one length, and what torch finds best where they are not."""
    if settings.torch_compile_dynamic is not None:
        return settings.torch_compile_dynamic
    return False if settings.fixed_slice_s is not None else None
