"""The setting `fast_paths`, the same in every workload that has it: which parts are requested, and which all groups of a plan can have.
Standard library only: a plan is expanded without torch.

    all, none, equal, or a comma-separated list of parts; `equal:lora,rope` is what a plan resolves `equal` to

A part that is not available on the node is left out with the reason, unless the list is the user's own: then the run fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.core.errors import did_you_mean
from seatrial.core.text import join_names
from seatrial_workloads.common.effective_settings import AS_REQUESTED, Choice

ALL, NONE, EQUAL = "all", "none", "equal"
# `true` and `false` are how earlier versions wrote them.
WORDS = {"all": ALL, "true": ALL, "none": NONE, "false": NONE, "equal": EQUAL}
MAX_NAMED = 3


def read_fast_paths(value: bool | str, parts: Sequence[str]) -> str:
    """The setting in its canonical form: all, none, equal, `equal:PARTS` or PARTS, the parts in their order."""
    text = str(value).strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    start, colon, listed = text.partition(":")
    names = [name.strip() for name in (listed if colon else text).split(",")]
    unknown = [name for name in names if name not in parts and not (colon and names == [NONE])]
    if unknown or (colon and start != EQUAL):
        known = (ALL, NONE, EQUAL, *parts)
        wrong = next(iter(unknown), start)
        example = ",".join(parts[:2])
        raise ValueError(f"fast_paths is '{text}'; expected all, none, equal, or parts such as {example}: {did_you_mean(wrong, known)}")
    return f"{EQUAL}:" * bool(colon) + (",".join(part for part in parts if part in names) or NONE)


def requested_parts(fast_paths: str, parts: Sequence[str]) -> tuple[str, ...]:
    """The parts that a setting in its canonical form requests."""
    if fast_paths in (ALL, EQUAL):
        return tuple(parts)
    listed = fast_paths.removeprefix(f"{EQUAL}:").split(",")
    return tuple(part for part in parts if part in listed)


def is_own_list(fast_paths: str, parts: Sequence[str]) -> bool:
    """Whether the user named the parts: one that is not available is then an error."""
    return fast_paths.split(",")[0] in parts


def check_own_list(fast_paths: str, parts: Sequence[str], excluded: Mapping[str, str]) -> None:
    """A ValueError where the user named a part that is excluded."""
    if not is_own_list(fast_paths, parts):
        return
    for part in requested_parts(fast_paths, parts):
        if part in excluded:
            raise ValueError(f"fast_paths names {part}, which is not available: {excluded[part]}; leave it out, or use fast_paths=all")


def summarize_parts(fast_paths: str, parts: Sequence[str], choices: Mapping[str, Choice]) -> Choice:
    """The setting `fast_paths` itself: the parts in use, and why the others are not."""
    used = ",".join(part for part in parts if choices[part].effective)
    missing = [f"{part}: {choices[part].reason}" for part in requested_parts(fast_paths, parts) if not choices[part].effective]
    return Choice(fast_paths, used or NONE, "; ".join(missing) or AS_REQUESTED)


@dataclass(frozen=True, kw_only=True)
class EqualSettings:
    """What the groups of a plan get instead of `equal` and `auto`."""

    changes: dict[str, dict[str, str]]
    """Group → setting → value."""
    notes: tuple[str, ...]
    """One line for each decision, with the group that is its reason."""


Decided = tuple[str, str, Collection[str], str]
"""Setting, value, groups that get it, note."""


def equal_settings_from(decided: Collection[Decided]) -> EqualSettings:
    """Decisions by group."""
    changes: dict[str, dict[str, str]] = {}
    for setting, value, names, _ in decided:
        for name in names:
            changes.setdefault(name, {})[setting] = value
    return EqualSettings(changes=changes, notes=tuple(note for *_, note in decided))


def open_groups(groups: Mapping[str, Any], *, given: Collection[str], compared: bool) -> dict[str, Any]:
    """Groups whose fast paths a plan equalizes: those that request it, or all where the plan compares and does not set them."""
    is_equal = compared and "fast_paths" not in given
    return {name: settings for name, settings in groups.items() if is_equal or settings.fast_paths == EQUAL}


def equal_parts(groups: Mapping[str, Any], parts: Sequence[str], excluded_parts: Callable[[Any], Mapping[str, str]]) -> Iterator[Decided]:
    """The decision that all of these groups get the parts that none of them excludes."""
    if not groups:
        return
    excluded: dict[str, dict[str, list[str]]] = {}
    for name, settings in groups.items():
        for part, reason in excluded_parts(settings).items():
            excluded.setdefault(part, {}).setdefault(reason, []).append(name)
    left = [part for part in parts if part not in excluded]
    # Parts that one group excludes for one reason are named together.
    by_reason: dict[str, list[str]] = {}
    for part in parts:
        reasons = (f"{reason} ({join_names(names, MAX_NAMED)})" for reason, names in excluded.get(part, {}).items())
        if part in excluded:
            by_reason.setdefault("; ".join(reasons), []).append(part)
    without = "".join(f". Without {', '.join(names)}: {reason}" for reason, names in by_reason.items())
    yield "fast_paths", f"{EQUAL}:{','.join(left) or NONE}", groups, f"fast_paths equal: {', '.join(left) or NONE}{without}"
