"""Settings whose effect depends on others: which fast paths and which mixed precision given settings exclude, and what all groups of a
plan can have alike. Standard library only: a plan is expanded without torch.

    fast_paths       all, none, equal, or a comma-separated list of parts; `equal:front_end,positions` is what a plan made of `equal`
    mixed_precision  auto, autocast, weights, by_precision

A part that is not available on the node is left out with the reason, unless the list is the user's own: then the run fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from seatrial.core.errors import did_you_mean
from seatrial.core.text import join_names
from seatrial_workloads.common.precision import AUTOCAST, BY_PRECISION, FLASH, WEIGHTS, mixed_precision_problem

FRONT_END, POSITIONS, TEXT_GRAPH, TOWER_GRAPH = PARTS = ("front_end", "positions", "text_graph", "tower_graph")
ALL, NONE, EQUAL = "all", "none", "equal"
# `true` and `false` are how earlier versions wrote them.
WORDS = {"all": ALL, "true": ALL, "none": NONE, "false": NONE, "equal": EQUAL}
# Modes in which torch.compile captures CUDA graphs itself.
CAPTURING_MODES = ("reduce-overhead", "max-autotune")
MOST_NAMED = 3


class Settings(Protocol):
    """What is read of the trainer's settings here, which import this module."""

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
    """The setting in its one form: all, none, equal, `equal:PARTS` or PARTS, the parts in their order."""
    text = str(value).strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    start, colon, listed = text.partition(":")
    names = [name.strip() for name in (listed if colon else text).split(",")]
    unknown = [name for name in names if name not in PARTS and not (colon and names == [NONE])]
    if unknown or (colon and start != EQUAL):
        known = (ALL, NONE, EQUAL, *PARTS)
        wrong = next(iter(unknown), start)
        raise ValueError(
            f"fast_paths is '{text}'; expected all, none, equal, or parts such as front_end,positions: {did_you_mean(wrong, known)}"
        )
    return f"{EQUAL}:" * bool(colon) + (",".join(part for part in PARTS if part in names) or NONE)


def requested_parts(fast_paths: str) -> tuple[str, ...]:
    """The parts that a setting in its one form asks for."""
    if fast_paths in (ALL, EQUAL):
        return PARTS
    listed = fast_paths.removeprefix(f"{EQUAL}:").split(",")
    return tuple(part for part in PARTS if part in listed)


def is_own_list(fast_paths: str) -> bool:
    """Whether the user named the parts: one that is not available is then an error."""
    return fast_paths.split(",")[0] in PARTS


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


@dataclass(frozen=True, kw_only=True)
class Alike:
    """What the groups of a plan get instead of `equal` and `auto`."""

    changes: dict[str, dict[str, str]]
    """Group → setting → value."""
    notes: tuple[str, ...]
    """What was decided and which group is the reason, one line each."""


def make_alike(groups: Mapping[str, Settings], *, given: Collection[str], compared: bool) -> Alike:
    """The same fast paths and the same mixed precision for all groups that leave them open. `given` are the settings that the plan sets,
    `compared` says that it has axes or a baseline. A ValueError where no mixed precision is available in all groups."""
    is_equal = compared and "fast_paths" not in given
    equal = {name: settings for name, settings in groups.items() if is_equal or settings.fast_paths == EQUAL}
    open_ = {name: settings for name, settings in groups.items() if compared and settings.mixed_precision == "auto"}
    decided = [*_equal_parts(equal), *_common_mixed_precision(open_)]
    changes: dict[str, dict[str, str]] = {}
    for setting, value, names, _ in decided:
        for name in names:
            changes.setdefault(name, {})[setting] = value
    return Alike(changes=changes, notes=tuple(note for *_, note in decided))


Decided = tuple[str, str, Collection[str], str]
"""Setting, value, groups that get it, note."""


def _equal_parts(groups: Mapping[str, Settings]) -> Iterator[Decided]:
    if not groups:
        return
    excluded: dict[str, dict[str, list[str]]] = {}
    for name, settings in groups.items():
        for part, reason in excluded_parts(settings).items():
            excluded.setdefault(part, {}).setdefault(reason, []).append(name)
    left = [part for part in PARTS if part not in excluded]
    # Parts that one group excludes for one reason are named together.
    by_reason: dict[str, list[str]] = {}
    for part in PARTS:
        reasons = (f"{reason} ({join_names(names, MOST_NAMED)})" for reason, names in excluded.get(part, {}).items())
        if part in excluded:
            by_reason.setdefault("; ".join(reasons), []).append(part)
    without = "".join(f". Without {', '.join(parts)}: {reason}" for reason, parts in by_reason.items())
    yield "fast_paths", f"{EQUAL}:{','.join(left) or NONE}", groups, f"fast_paths equal: {', '.join(left) or NONE}{without}"


# Setting → the mode in each format.
MODES = {
    AUTOCAST: {"bf16": AUTOCAST, "fp16": AUTOCAST},
    BY_PRECISION: {"bf16": AUTOCAST, "fp16": WEIGHTS},
    WEIGHTS: {"bf16": WEIGHTS, "fp16": WEIGHTS},
}


def _common_mixed_precision(groups: Mapping[str, Settings]) -> Iterator[Decided]:
    """Autocast where every group has it, as under ddp; else what every group has in the format that the GPU decides; else weights."""
    mixed = {name: settings for name, settings in groups.items() if _precisions(settings)}
    if not mixed:
        return
    problems = {value: dict(_lacking(mixed, modes)) for value, modes in MODES.items()}
    has_fp16 = any(settings.precision == "fp16" for settings in mixed.values())
    # Where precision is an axis, `by_precision` would differ along it.
    candidates = [value for value, found in problems.items() if not found and not (has_fp16 and value == BY_PRECISION)]
    why = next(iter(problems[AUTOCAST].values()), "")
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
