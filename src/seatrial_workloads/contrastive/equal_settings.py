"""Settings whose effect depends on others: which fast paths and which mixed precision given settings exclude, and what all groups of a
plan can share. Standard library only: a plan is expanded without torch.

    fast_paths       all, none, equal, or a comma-separated list of parts; `equal:front_end,positions` is what a plan resolves `equal` to
    mixed_precision  auto, autocast, weights, by_precision

A part that is not available on the node is left out with the reason, unless the list is the user's own: then the run fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from seatrial_workloads.common import fast_paths
from seatrial_workloads.common.fast_paths import Decided, EqualSettings
from seatrial_workloads.common.precision import AUTOCAST, BY_PRECISION, FLASH, WEIGHTS, mixed_precision_problem

FRONT_END, POSITIONS, TEXT_GRAPH, TOWER_GRAPH = PARTS = ("front_end", "positions", "text_graph", "tower_graph")
# Modes in which torch.compile captures CUDA graphs itself.
CAPTURING_MODES = ("reduce-overhead", "max-autotune")


class Settings(Protocol):
    """The settings read here; the trainer's own class imports this module."""

    @property
    def fast_paths(self) -> bool | str: ...
    @property
    def mixed_precision(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def zero_stage(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def length_buckets(self) -> bool: ...
    @property
    def torch_compile(self) -> bool: ...
    @property
    def torch_compile_mode(self) -> str: ...
    @property
    def speech_attention(self) -> str: ...
    @property
    def text_attention(self) -> str: ...


def read_fast_paths(value: bool | str) -> str:
    """The setting in its canonical form: all, none, equal, `equal:PARTS` or PARTS, the parts in their order."""
    return fast_paths.read_fast_paths(value, PARTS)


def requested_parts(setting: str) -> tuple[str, ...]:
    """The parts that a setting in its canonical form requests."""
    return fast_paths.requested_parts(setting, PARTS)


def is_own_list(setting: str) -> bool:
    """Whether the user named the parts: one that is not available is then an error."""
    return fast_paths.is_own_list(setting, PARTS)


def excluded_parts(settings: Settings) -> dict[str, str]:
    """Part → why these settings exclude it, on any machine."""
    if settings.zero_stage == 3:
        return dict.fromkeys(PARTS, "ZeRO 3 gathers a module's weights only while that module itself is called")
    if settings.device == "cpu":
        return dict.fromkeys((TEXT_GRAPH, TOWER_GRAPH), "no GPU: device is cpu")
    reasons = {TEXT_GRAPH: _why_no_text_graph(settings), TOWER_GRAPH: _why_no_tower_graph(settings)}
    return {part: reason for part, reason in reasons.items() if reason}


def _why_no_text_graph(settings: Settings) -> str:
    attention = settings.text_attention
    if attention == "auto" and settings.precision == "fp16":
        attention = "eager"
    return "" if attention in ("auto", "sdpa") else f"attention of the text encoder is {attention}, not sdpa"


def _why_no_tower_graph(settings: Settings) -> str:
    if settings.length_buckets:
        return "length_buckets: batches have several shapes"
    if settings.torch_compile and settings.torch_compile_mode in CAPTURING_MODES:
        return f"torch.compile captures CUDA graphs itself in mode {settings.torch_compile_mode}"
    return f"{FLASH} reads lengths back from the GPU" if settings.speech_attention == FLASH else ""


def equalize_settings(groups: Mapping[str, Settings], *, given: Collection[str], compared: bool) -> EqualSettings:
    """The same fast paths and the same mixed precision for all groups that leave them open. `given` are the settings that the plan sets,
    `compared`: it has axes or a baseline. A ValueError where no mixed precision is available in all groups."""
    equal = fast_paths.open_groups(groups, given=given, compared=compared)
    open_ = {name: settings for name, settings in groups.items() if compared and settings.mixed_precision == "auto"}
    return fast_paths.equal_settings_from([*fast_paths.equal_parts(equal, PARTS, excluded_parts), *_common_mixed_precision(open_)])


# Setting → the mode in each format.
MODES = {
    AUTOCAST: {"bf16": AUTOCAST, "fp16": AUTOCAST},
    BY_PRECISION: {"bf16": AUTOCAST, "fp16": WEIGHTS},
    WEIGHTS: {"bf16": WEIGHTS, "fp16": WEIGHTS},
}


def _common_mixed_precision(groups: Mapping[str, Settings]) -> Iterator[Decided]:
    """Autocast where every group has it, as under ddp; else what every group has in the format that the GPU decides; else weights. Under
    DeepSpeed alone it is by_precision from the start: in bf16 that is autocast, and a ZeRO stage that the plan gets later, whose fp16 has
    weights only, does not invalidate its finished runs."""
    mixed = {name: settings for name, settings in groups.items() if _precisions(settings)}
    if not mixed:
        return
    problems = {value: dict(_lacking(mixed, modes)) for value, modes in MODES.items()}
    has_fp16 = any(settings.precision == "fp16" for settings in mixed.values())
    # Where precision is an axis, `by_precision` would differ along it.
    candidates = [value for value, found in problems.items() if not found and not (has_fp16 and value == BY_PRECISION)]
    why = next(iter(problems[AUTOCAST].values()), "")
    if BY_PRECISION in candidates and all(one.engine == "deepspeed" and "fp16" in _precisions(one) for one in mixed.values()):
        candidates, why = [BY_PRECISION], why or "as every ZeRO stage has it"
    if candidates:
        value = candidates[0]
        spelled = f"{AUTOCAST} in bf16, {WEIGHTS} in fp16," if value == BY_PRECISION else value
        yield "mixed_precision", value, mixed, f"mixed_precision: {spelled} in all groups{f': {why}' if why else ''}"
    elif "bf16" not in problems[AUTOCAST] and not has_fp16:
        yield "mixed_precision", AUTOCAST, mixed, f"mixed_precision: {AUTOCAST} in all groups, on GPUs with bf16 only: {why}"
    else:
        other = next(iter(problems[WEIGHTS].values()))
        raise ValueError(f"mixed_precision cannot be the same in all groups: {why}, and {other}; use bf16, or one engine for all")


def _lacking(groups: Mapping[str, Settings], modes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(format, problem and its group) for each group that does not have the mode."""
    for name, settings in groups.items():
        for precision in _precisions(settings):
            problem = mixed_precision_problem(modes[precision], settings.engine, settings.zero_stage, precision)
            if problem:
                yield precision, f"{problem} ({name})"


def _precisions(settings: Settings) -> tuple[str, ...]:
    """16-bit formats that these settings may end in: a GPU without bf16 computes in fp16."""
    if settings.precision == "fp32" or (settings.device == "cpu" and settings.precision == "auto"):
        return ()
    if settings.precision == "fp16":
        return ("fp16",)
    return ("bf16",) if settings.device == "cpu" else ("bf16", "fp16")
