"""The procedure's NSA_* variables: one table of what each does here. In: the environment. Out: settings, and variables without effect.

A variable sets a setting, has no effect (recorded with its reason), is refused unless it is off (what it requests does not exist here,
and training on would mislead), or is read by another program. An unknown one is an error that names the nearest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.core.errors import did_you_mean
from seatrial.probe.identity import FALSE_TEXTS, TRUE_TEXTS
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.errors import StartupError

PREFIX = "NSA_"


class NotUnderstood(ValueError):
    """The value is invalid; the message is what was expected."""


def flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in TRUE_TEXTS and lowered not in FALSE_TEXTS:
        raise NotUnderstood("1 or 0")
    return lowered in TRUE_TEXTS


def whole(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit()):
        raise NotUnderstood("a whole number")
    return int(text)


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise NotUnderstood("a finite number")
    return value


def compression(text: str) -> str:
    if text in ("bf16", "fp16"):
        return text
    if text.lower() in ("none", "off", *FALSE_TEXTS):
        return "none"
    raise NotUnderstood("bf16, fp16 or none")


Convert = Callable[[str], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """What a variable does; exactly one of the four."""

    sets: Convert | None = None
    no_effect: str = ""
    refused: str = ""
    read_by: str = ""


def sets(setting: str, convert: Callable[[str], Any]) -> Variable:
    return Variable(sets=lambda text: {setting: convert(text)})


def sets_by_flag(setting: str, *, on: Any, off: Any) -> Variable:
    return Variable(sets=lambda text: {setting: on if flag(text) else off})


def sets_if_on(setting: str, value: Any) -> Variable:
    """A flag that leaves the setting as it is when off."""
    return Variable(sets=lambda text: {setting: value} if flag(text) else {})


def sets_unless_zero(setting: str, convert: Callable[[str], Any]) -> Variable:
    return Variable(sets=lambda text: {setting: convert(text) or None})


ALL_OR_NONE = "checkpointing is for all layers or none: use NSA_NO_GC=1, or runtime.gradient_checkpointing"
NO_KERNEL = "there is no such selection kernel here: leave it out, or use NSA_USE_SEL_MASK=1 or NSA_USE_SEL_PACK=1"
NO_FA2 = "there is no FlashAttention 2 path here: leave it out"
OTHER_MODEL = "it changes the model: there is no such option here"
TESTED = "the tests check this against the dense oracle"
WATCHDOG = "scripts/_watchdog.py"

VARIABLES: dict[str, Variable] = {
    "NSA_PREFILL_BATCHED": sets_by_flag("prefill", on="batched", off="sequential"),
    "NSA_SEL_RANGES_V2": sets_by_flag("ranges", on="v2", off="v1"),
    "NSA_DDP_COMPRESS": sets("ddp_compression", compression),
    "NSA_DDP_BUCKET_MB": sets_unless_zero("ddp_bucket_mb", number),
    "NSA_DDP_STATIC_GRAPH": sets("ddp_static_graph", flag),
    "NSA_DDP_GRAD_AS_BUCKET_VIEW": sets("ddp_bucket_view", flag),
    "NSA_DDP_DISABLE_GC": sets_if_on("gradient_checkpointing", False),
    "NSA_PG_TIMEOUT_MIN": sets("group_timeout_s", lambda text: 60 * number(text)),
    "NSA_NO_GC": sets_if_on("gradient_checkpointing", False),
    "NSA_SDPA_AUDIT": sets("sdpa_audit", flag),
    "NSA_SDPA_FLASH_ONLY": sets_if_on("sdpa", "flash"),
    "NSA_SDPA_NO_FLASH": sets_if_on("sdpa", "no_flash"),
    "NSA_NVTX": sets("profile", flag),
    "NSA_TB_DISABLE": sets_by_flag("tensorboard", on=False, off=True),
    "NSA_DISABLE_AUX_STATS": sets_by_flag("statistics", on=False, off=True),
    "NSA_DISABLE_CSV_LOGS": sets_by_flag("csv", on=False, off=True),
    "NSA_OPT_FUSED": sets("fused_adam", flag),
    "NSA_MEM_DUMP_EVERY": sets_unless_zero("memory_every", whole),
    "NSA_BATCH_SIZE": sets("batch_size", whole),
    "NSA_ACCUM": sets("accumulate", whole),
    "NSA_LR": sets("lr", number),
    "NSA_SEQ_LEN": sets("seq_len", whole),
    "NSA_USE_SEL_MASK": sets_if_on("selected_path", "mask"),
    "NSA_FORCE_SEL_MASK": sets_if_on("selected_path", "mask"),
    "NSA_USE_SEL_PACK": sets_if_on("selected_path", "gather"),
    "NSA_USE_WIN_MASK": sets_if_on("window_path", "mask"),
    "NSA_FWE_PREFETCH": Variable(sets=lambda text: {} if flag(text) else {"prefetch": 1}),
    "NSA_FWE_Q": sets("prefetch", whole),
    # Without effect: what they switch is always on or always off.
    "NSA_DDP_FIND_UNUSED": Variable(no_effect="every weight is used in every step"),
    "NSA_DDP_BROADCAST_BUFFERS": Variable(no_effect="no buffer changes"),
    "NSA_HEARTBEAT_EVERY": Variable(no_effect="every rank writes a heartbeat every 5 s"),
    "NSA_LOG_GRAD_NORM": Variable(no_effect="the gradient norm is always logged"),
    "NSA_USE_CMP_MASK": Variable(no_effect="the compressed branch always has its causal mask"),
    "NSA_FA2_MIN_LEN_WIN": Variable(no_effect=NO_FA2),
    "NSA_FA2_MIN_LEN_CMP": Variable(no_effect=NO_FA2),
    "NSA_SEL_RANGES_V2_MIN_S": Variable(no_effect="v2 is used at every length unless NSA_SEL_RANGES_V2=0"),
    "NSA_FWE_DOC_BATCH": Variable(no_effect="documents are tokenised one by one, in the loader's thread"),
    "NSA_FWE_WARMUP_BATCHES": Variable(no_effect="the first batch is always waited for, up to --loader-timeout"),
    "NSA_FWE_WARMUP_TIMEOUT": Variable(no_effect="the first batch is always waited for, up to --loader-timeout"),
    "NSA_LOG_LIMIT": Variable(no_effect="no line is limited"),
    "NSA_DEBUG_LOG": Variable(no_effect="nothing is hidden: the audit and the effective paths are always logged"),
    "NSA_DEBUG_TIMING": Variable(no_effect="the phases of every step are in events_rank0.jsonl"),
    "NSA_STRICT_ASSERTS": Variable(no_effect=TESTED),
    "NSA_VERIFY_EQ9_MAPPING": Variable(no_effect=TESTED),
    "NSA_VALIDATE_SELECTION_DETERMINISM": Variable(no_effect=TESTED),
    # Refused unless off.
    "NSA_DDP_SAFE_MODE": Variable(refused="it worked around defects that are not here: use NSA_DDP_BUCKET_MB=2 to look at a DDP problem"),
    "NSA_DDP_SAFE_GC_LAYERS": Variable(refused=ALL_OR_NONE),
    "NSA_GC_RANGE": Variable(refused=ALL_OR_NONE),
    "NSA_GC_REENTRANT": Variable(refused="reentrant checkpointing fails under DDP (a weight is marked ready twice): leave it out"),
    "NSA_PREFILL_TILE": Variable(refused="prefill is batched or sequential: use NSA_PREFILL_BATCHED"),
    "NSA_FORCE_PARITY": Variable(refused="the reference is the sequential prefill: use NSA_PREFILL_BATCHED=0"),
    "NSA_USE_SEL_VARLEN": Variable(refused=NO_KERNEL),
    "NSA_USE_TRITON_SEL": Variable(refused=NO_KERNEL),
    "NSA_SEL_CUDA": Variable(refused=NO_KERNEL),
    "NSA_USE_FA2": Variable(refused=NO_FA2),
    "NSA_USE_FA2_WIN": Variable(refused=NO_FA2),
    "NSA_USE_FA2_CMP": Variable(refused=NO_FA2),
    "NSA_TRACE_GRADS": Variable(refused="use NSA_NVTX=1, whose profile names every operator"),
    "NSA_TRACE_MODULE_BWD": Variable(refused="use NSA_NVTX=1, whose profile names every operator"),
    "NSA_TRACE_DDP_BUCKETS": Variable(refused="use TORCH_DISTRIBUTED_DEBUG=DETAIL, which logs the buckets"),
    "NSA_DETECT_ANOMALY": Variable(refused="a loss that is not finite ends the run and names its step: leave it out"),
    "NSA_FORCE_UNIFORM_GATE": Variable(refused=OTHER_MODEL),
    "NSA_FORCE_BRANCH": Variable(refused=OTHER_MODEL),
    "NSA_STOPGRAD_GATES": Variable(refused=OTHER_MODEL),
    # Variables of other programs.
    **{
        f"NSA_WATCH_{name}": Variable(read_by=WATCHDOG)
        for name in (
            *("INTERVAL_S", "HALT", "HEARTBEAT_STALL_S", "FLATLINE_N", "GATE_COLLAPSE_N", "GATE_ENTROPY_MIN", "GATE_MAX_THRESHOLD"),
            *("START_S", "WAIT_S", "SOFT_S", "TERM_S"),
        )
    },
    "NSA_TEST_SEL_PACK": Variable(read_by="nsa/tests"),
}


@dataclass(frozen=True, kw_only=True)
class FromEnvironment:
    """The settings that one environment's variables request."""

    settings: dict[str, Any]
    no_effect: dict[str, Choice]


def read_variables(env: Mapping[str, str]) -> FromEnvironment:
    settings: dict[str, Any] = {}
    set_by: dict[str, str] = {}
    no_effect: dict[str, Choice] = {}
    for name, text in sorted(env.items()):
        if not name.startswith(PREFIX) or not text.strip():
            continue
        if name not in VARIABLES:
            raise StartupError(f"unknown variable {name}: {did_you_mean(name, list(VARIABLES))}; unset it if it is not meant")
        variable = VARIABLES[name]
        if variable.refused and text.strip().lower() not in FALSE_TEXTS:
            raise StartupError(f"{name} is '{text}', and {variable.refused}")
        if variable.no_effect:
            no_effect[name] = Choice(text, None, variable.no_effect)
        for setting, value in _settings_of(name, variable, text).items():
            if settings.get(setting, value) != value:
                raise StartupError(f"{set_by[setting]} and {name} contradict each other: unset one of them")
            settings[setting], set_by[setting] = value, name
    return FromEnvironment(settings=settings, no_effect=no_effect)


def _settings_of(name: str, variable: Variable, text: str) -> dict[str, Any]:
    try:
        return variable.sets(text) if variable.sets else {}
    except NotUnderstood as expected:
        raise StartupError(f"{name} is '{text}'; expected {expected}") from None
