"""Effective settings on these ranks: precision, attention, arithmetic, and the engine's options.

In: settings and ranks. Out: EffectiveSettings, the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial_workloads.common.attention import choose_attention
from seatrial_workloads.common.distributed import Ranks, lowest_capability
from seatrial_workloads.common.effective_settings import Choice, prefetch_without_workers
from seatrial_workloads.common.engines import EngineOptions
from seatrial_workloads.common.math_backend import MathOptions, set_math_backend
from seatrial_workloads.common.precision import Precision, choose_load_dtype, choose_precision
from seatrial_workloads.contrastive.settings import Settings


@dataclass(frozen=True, kw_only=True)
class EffectiveSettings:
    """Effective values; `choices` has each with the requested value and the reason."""

    precision: Precision
    speech_attention: str
    text_attention: str
    load_dtype: str
    choices: dict[str, Choice]


def resolve_settings(settings: Settings, ranks: Ranks) -> EffectiveSettings:
    """Resolve the settings and configure torch's arithmetic. A collective call: all ranks decide the same."""
    lowest = lowest_capability(ranks)
    precision = choose_precision(settings.precision, lowest)
    speech = choose_attention(settings.speech_attention, precision.effective, lowest, ranks)
    text = choose_attention(settings.text_attention, precision.effective, lowest, ranks)
    load_dtype = choose_load_dtype(settings.model_load_dtype, precision, (speech.effective, text.effective), lowest)
    choices = {
        "precision": precision,
        "model_load_dtype": load_dtype,
        "attn_impl": _common_attention(settings, speech, text),
        "speech_attn_impl": speech,
        "text_attn_impl": text,
        "device": Choice(settings.device, str(ranks.device), ranks.device_name),
        **set_math_backend(math_options(settings), lowest),
        **prefetch_without_workers(settings.num_workers, settings.prefetch_factor),
        **_unused_data_settings(settings),
    }
    return EffectiveSettings(
        precision=precision,
        speech_attention=speech.effective,
        text_attention=text.effective,
        load_dtype=load_dtype.effective,
        choices=choices,
    )


def _unused_data_settings(settings: Settings) -> dict[str, Choice]:
    """Data settings that have no effect because of others."""
    unused = {}
    if settings.dataset_use_trim and settings.dataset_offline_trimmed:
        unused["dataset_use_trim"] = Choice(True, False, "dataset_offline_trimmed: the tree was trimmed beforehand")
    if not settings.length_buckets:
        unused["bucket_boundaries_s"] = Choice(settings.bucket_boundaries_s, None, "length_buckets is off")
    if settings.fixed_slice_s is not None:
        reason = f"fixed_slice_s is {settings.fixed_slice_s}"
        unused |= {name: Choice(getattr(settings, name), None, reason) for name in ("min_slice_s", "max_slice_s")}
    return unused


def _common_attention(settings: Settings, speech: Choice, text: Choice) -> Choice:
    """The attention that both encoders request and use, set by `attn_impl` or for each of them."""
    requested = speech.requested if speech.requested == text.requested else settings.attn_impl
    if speech.effective == text.effective:
        return Choice(requested, speech.effective, speech.reason)
    return Choice(requested, "split", f"speech {speech.effective}, text {text.effective}")


def math_options(settings: Settings) -> MathOptions:
    return MathOptions(
        tf32=settings.tf32,
        matmul_precision=settings.matmul_precision,
        deterministic=settings.deterministic,
        cudnn_benchmark=settings.cudnn_benchmark,
    )


def engine_options(settings: Settings) -> EngineOptions:
    return EngineOptions(
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_steps,
        schedule_steps=settings.schedule_steps,
        min_lr_ratio=settings.min_lr_ratio,
        gradient_clipping=settings.gradient_clipping,
        exclude_frozen=settings.checkpoint_exclude_frozen,
        micro_batch=settings.micro_batch,
        mixed_precision=settings.mixed_precision,
        zero_stage=settings.zero_stage,
        torch_adam=settings.torch_adam,
        overlap_comm=settings.overlap_comm,
        bucket_size=settings.bucket_size,
        wall_clock_breakdown=settings.wall_clock_breakdown,
    )
