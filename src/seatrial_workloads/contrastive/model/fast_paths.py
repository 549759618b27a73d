"""Which fast paths are used for these settings on this device, and why not; compiling the speech tower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from seatrial_workloads.common.compile import compile_or_fall_back
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import AS_REQUESTED, Choice, as_requested
from seatrial_workloads.common.engines import Engine
from seatrial_workloads.common.errors import StartupError, summarize_error
from seatrial_workloads.common.precision import Precision, torch_dtype
from seatrial_workloads.contrastive.equal_settings import CAPTURING_MODES, FRONT_END, POSITIONS, TEXT_GRAPH, TOWER_GRAPH, excluded_parts
from seatrial_workloads.contrastive.loading.batch import Batch, zero_batch
from seatrial_workloads.contrastive.model.front_end import ALIGNED, FourierPositions, MatrixFrontEnd, why_not_matrix
from seatrial_workloads.contrastive.model.graphs import WARM_UPS, GraphedTextEncoder, GraphedTower
from seatrial_workloads.contrastive.model.speech_text import SpeechEncoder, SpeechTextModel
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.tree import SAMPLE_RATE

LEFT_OUT = "left out: not every group of the plan can have it"


def apply_fast_paths(model: SpeechTextModel, settings: Settings, device: torch.device, load_dtype: str) -> dict[str, Choice]:
    """Apply all but the tower's CUDA graphs, which come last (`capture_tower`)."""
    config = model.tower.speech.config
    reasons = {
        FRONT_END: why_not_matrix(config),
        POSITIONS: "the encoder has no separate positional convolution" if config.do_stable_layer_norm else "",
        TEXT_GRAPH: _why_no_text_graph(model, device),
    }
    choices = {part: choose_part(settings, part, reason) for part, reason in reasons.items()}
    if choices[FRONT_END].effective:
        model.paths.front_end = MatrixFrontEnd(model.tower.speech, torch_dtype(load_dtype)).to(device)
    if choices[POSITIONS].effective:
        model.tower.speech.encoder.pos_conv_embed = FourierPositions(model.tower.speech.encoder.pos_conv_embed)
    if choices[TEXT_GRAPH].effective:
        model.paths.text = GraphedTextEncoder(model.plain_text_encoder)
    return choices


def capture_tower(model: SpeechTextModel, settings: Settings, ranks: Ranks, precision: Precision) -> Choice:
    """CUDA graphs of the tower, compiled or not, for batches of the longest slice. No earlier step may be referenced: its gradients would
    be bound to a stream that is not captured. If one rank cannot capture it, none uses graphs."""
    choice = choose_part(settings, TOWER_GRAPH, "no GPU" if ranks.device.type != "cuda" else "")
    if not choice.effective:
        return choice
    graphed = GraphedTower(model.tower, model.paths.speech)
    problem = ranks.agreed_problem(try_capture(graphed, model, settings, ranks.device, precision), "another rank could not capture it")
    if problem is not None:
        return choose_part(settings, TOWER_GRAPH, problem)
    model.paths.speech = graphed
    return choice


def try_capture(
    graphed: GraphedTower, model: SpeechTextModel, settings: Settings, device: torch.device, precision: Precision
) -> str | None:
    """Why it failed; None where it did not."""
    try:
        with torch.no_grad():
            features = model.paths.front_end(torch.zeros(settings.micro_batch, longest_samples(settings), device=device))
        graphed.capture(features, torch.autocast(device.type, precision.dtype, enabled=precision.effective != "fp32", cache_enabled=False))
    except RuntimeError as error:
        return summarize_error(error)
    return None


def choose_part(settings: Settings, part: str, reason: str) -> Choice:
    """Whether a part is used; `reason` is why this node or model does not have it. StartupError for a part of the user's own list."""
    if part not in settings.fast_parts:
        # Another plan may have kept it: the two then differ, though both request equal parts.
        return Choice(True, False, LEFT_OUT) if settings.has_equal_parts else as_requested(False)
    reason = excluded_parts(settings).get(part) or reason
    if reason and settings.requires_fast_parts:
        raise StartupError(f"fast_paths names {part}, which is not available here: {reason}; leave it out, or use fast_paths=all")
    return Choice(True, False, reason) if reason else as_requested(True)


def longest_samples(settings: Settings) -> int:
    """Samples of the longest slice."""
    return round(settings.slice_range_s[1] * SAMPLE_RATE)


def pad_inputs(inputs: dict[str, Tensor | None], num_samples: int, num_frames: int) -> dict[str, Tensor | None]:
    """Zero-pad the batch to the captured shape, with a frame mask. The CNN's group norm sees the zeros, as it sees the padding of the
    shorter rows in any batch."""
    audio, time_mask = inputs["audio"], inputs["time_mask"]
    assert audio is not None
    missing = num_samples - audio.shape[1]
    if not missing:
        return inputs
    if inputs["num_samples"] is None:
        inputs["num_samples"] = torch.full((audio.shape[0],), audio.shape[1], device=audio.device)
    if time_mask is not None:
        inputs["time_mask"] = torch.nn.functional.pad(time_mask, (0, num_frames - time_mask.shape[1]))
    inputs["audio"] = torch.nn.functional.pad(audio, (0, missing))
    return inputs


def _why_no_text_graph(model: SpeechTextModel, device: torch.device) -> str:
    if device.type != "cuda":
        return "no GPU"
    attention = model.text.config._attn_implementation
    return "" if attention == "sdpa" else f"attention of the text encoder is {attention}, not sdpa"


Inputs = Callable[[Batch], Mapping[str, Any]]
"""Batch → the model's inputs, on its device."""


class CompiledTower:
    """The compiled tower, called with few kinds of input: what training varies from batch to batch would be compiled anew.

    Frames are zero-padded and masked, which changes no result: up to the longest slice, or where shapes are dynamic to a multiple of
    ALIGNED, on which attention kernels branch. Only where batches without a mask are usual may the mask be missing.
    """

    def __init__(self, compiled: SpeechEncoder, num_frames: int, *, dynamic: bool, always_masked: bool) -> None:
        self._compiled, self._num_frames, self._dynamic, self._always_masked = compiled, num_frames, dynamic, always_masked

    def __call__(self, features: Tensor, frame_mask: Tensor | None, time_mask: Tensor | None) -> Tensor:
        num_frames = features.shape[1]
        missing = -num_frames % ALIGNED if self._dynamic else max(0, self._num_frames - num_frames)
        if frame_mask is None and (missing or self._always_masked):
            frame_mask = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        if missing:
            features = torch.nn.functional.pad(features, (0, 0, 0, missing))
            frame_mask, time_mask = (
                None if mask is None else torch.nn.functional.pad(mask, (0, missing)) for mask in (frame_mask, time_mask)
            )
        # The strides of a slice depend on what it is a slice of.
        inputs = [None if part is None else part.contiguous() for part in (features, frame_mask, time_mask)]
        if self._dynamic:
            for part in inputs:
                if part is not None:
                    torch._dynamo.maybe_mark_dynamic(part, 1)
        return self._compiled(*inputs)


def compile_tower(model: SpeechTextModel, engine: Engine, settings: Settings, ranks: Ranks, inputs: Inputs) -> Choice:
    """Compile the tower, warmed up with zeros of every kind of batch that training has."""
    plain, samples = model.paths.speech, longest_samples(settings)
    dynamic, is_capturing = dynamic_shapes(model, settings, ranks).effective, settings.torch_compile_mode in CAPTURING_MODES
    num_frames = model.tower.num_frames(samples)
    positions = model.tower.speech.encoder.pos_conv_embed
    if dynamic and isinstance(positions, FourierPositions):
        positions.use_one_length(num_frames + ALIGNED)

    def tower(compiled: SpeechEncoder) -> CompiledTower:
        # Slices of one length fill their batch and need no mask; slices of random lengths hardly ever do.
        return CompiledTower(compiled, num_frames, dynamic=dynamic, always_masked=settings.fixed_slice_s is None)

    def warm_up(compiled: SpeechEncoder) -> None:
        model.paths.speech = tower(compiled)
        try:
            # torch records its own CUDA graphs in the second call.
            for batch in _warm_up_batches(model, settings) * (WARM_UPS if is_capturing else 1):
                engine.warm_up(**inputs(batch))
        finally:
            model.paths.speech = plain

    compiled, choice = compile_or_fall_back(
        model.tower,
        warm_up,
        ranks=ranks,
        mode=settings.torch_compile_mode,
        # Dynamic frames are marked; rows and channels stay as they are.
        dynamic=None if dynamic else False,
        cannot_compile=engine.cannot_compile,
    )
    if not choice.effective:
        return choice
    model.paths.speech = tower(compiled)
    shapes = "for any number of frames" if dynamic else f"every batch padded to {num_frames} frames"
    return Choice(choice.requested, True, f"{choice.reason}, {shapes}")


def compile_details(settings: Settings, compiled: Choice, shapes: Choice) -> dict[str, Choice]:
    """Mode and dynamic shapes in effect: neither where nothing is compiled. `shapes` is what `dynamic_shapes` found."""
    if not compiled.effective:
        reason = f"not compiled: {compiled.reason}" if compiled.requested else "torch_compile is off"
        return {name: Choice(getattr(settings, name), None, reason) for name in ("torch_compile_mode", "torch_compile_dynamic")}
    return {"torch_compile_mode": as_requested(settings.torch_compile_mode), "torch_compile_dynamic": shapes}


def dynamic_shapes(model: SpeechTextModel, settings: Settings, ranks: Ranks) -> Choice:
    """Whether the number of frames is dynamic: as requested, else with length buckets."""
    requested = settings.torch_compile_dynamic
    wanted = settings.length_buckets if requested is None else requested
    one_shape = "every batch has one shape"
    # torch's own CUDA graphs have one shape each.
    if not wanted or settings.torch_compile_mode in CAPTURING_MODES or settings.fixed_slice_s is not None:
        return Choice(requested, False, AS_REQUESTED if requested is False else one_shape)
    if ranks.device.type == "cpu" and not isinstance(model.tower.speech.encoder.pos_conv_embed, FourierPositions):
        # Inductor's convolutions for CPUs are of fixed sizes: it would compile the tower anew for every length, up to the recompile limit.
        return Choice(requested, False, f"{one_shape}: on a CPU the plain positional convolution is compiled for one length only")
    return Choice(requested, True, AS_REQUESTED if requested else "length_buckets")


def _warm_up_batches(model: SpeechTextModel, settings: Settings) -> list[Batch]:
    """Zeros of several lengths, with and without padded rows, the longest first: kernels for dynamic shapes are chosen by size too."""
    batches = []
    shortest_s, longest_s = settings.slice_range_s
    for seconds in dict.fromkeys(longest_s - (longest_s - shortest_s) * part / 4 for part in range(5)):
        num_samples = round(seconds * SAMPLE_RATE)
        num_frames = model.tower.num_frames(num_samples) if settings.mask_time_prob else None
        full = zero_batch(settings.micro_batch, num_samples, num_frames)
        batches += [full, replace(full, same_length=False)]
    return batches
