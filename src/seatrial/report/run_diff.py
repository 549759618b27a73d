"""What differs between two attempts, and whether the two may be averaged.

In: two `RunSide`s, read from anywhere. Out: a `RunDiff`, its differences in sections: settings, effective settings, environment,
versions, hardware, code, outcome. Names, repeats, times and ports always differ and are no difference. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial.machine.fingerprint import parted_by
from seatrial.records import events
from seatrial.records.attempt import Attempt
from seatrial.records.codec import to_json
from seatrial.records.command import Provenance
from seatrial.records.run_spec import RunSpec, Scalar
from seatrial.shell import quote

VERSION_FIELDS = ("python", "driver_version", "cuda", "cudnn", "nccl")
HARDWARE_FIELDS = (
    "host", "platform", "container", "cpu", "cpu_count", "memory_bytes",
    "gpu_name", "gpu_cc", "gpu_uuid_list", "gpu_clocks", "gpu_power_limit_w", "gpu_power_default_w", "pcie_gen",
)  # fmt: skip
CODE_FIELDS = ("git_commit_hash", "git_branch", "git_dirty", "git_diff_sha256")
OUTCOME_FIELDS = ("outcome", "cause", "detail", "exit_code", "killed")
# Who a run is, and what is told in another section or word by word.
_NOT_SETTINGS = ("run", "group", "repeat", "hash", "group_key", "labels", "varied", "script_sha256", "settings", "axes", "env")
_WORDS = {"workload": ("args",), "launcher": ("args", "program")}
# Every attempt has its own.
_OWN_VARIABLES = (events.ENV_RUN_DIR, events.ENV_RUN, events.ENV_ATTEMPT, "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class RunSide:
    """One of the two."""

    attempt: Attempt
    effective: Mapping[str, tuple[Scalar, Scalar, str]] = field(default_factory=dict)
    """Setting → requested, effective, reason."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Every recorded variable (environment.json)."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not alike; None on the side that does not have it."""

    section: str
    name: str
    before: Any
    after: Any
    parts: bool = False
    """Whether it is one of those in which the fingerprints differ."""


@dataclass(frozen=True, kw_only=True)
class RunDiff:
    """Everything that differs, in the order of the sections."""

    before: RunSide
    after: RunSide
    differences: tuple[Difference, ...]
    fingerprints_equal: bool
    parted_by: tuple[str, ...]
    """Facts of the fingerprint that differ; empty too where a fingerprint was made by other rules, or is missing."""
    may_be_averaged: bool
    says: str
    """The same in a sentence."""


def diff_runs(before: RunSide, after: RunSide) -> RunDiff:
    """Compare two attempts, of one campaign or of two."""
    old, new = before.attempt.provenance, after.attempt.provenance
    equal = bool(old.fingerprint) and old.fingerprint == new.fingerprint
    parting = () if equal else tuple(parted_by(old, new))
    differences = tuple(_all_differences(before, after, parting))
    same_settings = before.attempt.spec.group_key == after.attempt.spec.group_key
    same_effective = not any(difference.section == "effective settings" for difference in differences)
    return RunDiff(
        before=before,
        after=after,
        differences=differences,
        fingerprints_equal=equal,
        parted_by=parting,
        may_be_averaged=equal and same_settings and same_effective,
        says=_sentence(old, new, parting, same_settings, same_effective),
    )


def _sentence(old: Provenance, new: Provenance, parting: Sequence[str], same_settings: bool, same_effective: bool) -> str:
    if not (old.fingerprint and new.fingerprint):
        return "No fingerprint was recorded of at least one of them: they are not averaged."
    if parting:
        return f"Fingerprints differ: not averaged. Parted by {', '.join(parting)}."
    if old.fingerprint != new.fingerprint:
        return "Fingerprints differ, though no recorded fact does: another version of Seatrial made one of them. They are not averaged."
    if not same_settings:
        return "Fingerprints equal, settings not: two groups, which may be compared and are not averaged."
    if not same_effective:
        return "Fingerprints equal, effective settings not: they are not averaged."
    return "Fingerprints equal: may be averaged."


def _all_differences(before: RunSide, after: RunSide, parting: Sequence[str]) -> Iterator[Difference]:
    old, new = before.attempt, after.attempt
    yield from _settings(old.spec, new.spec)
    yield from _unlike("settings", _fields(old.provenance, ("plan_hash",)), _fields(new.provenance, ("plan_hash",)))
    yield from _unlike("effective settings", _used(before), _used(after))
    yield from _unlike("environment", _environment(before, after), _environment(after, before), parting)
    yield from _unlike("versions", _versions(old.provenance), _versions(new.provenance), parting)
    yield from _unlike("hardware", _hardware(old.provenance), _hardware(new.provenance), parting)
    yield from _unlike("code", _code(old), _code(new), parting)
    yield from _unlike("outcome", _outcome(old), _outcome(new))


def _unlike(section: str, before: Mapping[str, Any], after: Mapping[str, Any], parting: Sequence[str] = ()) -> Iterator[Difference]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield Difference(section=section, name=name, before=old, after=new, parts=name in parting)


def _settings(old: RunSpec, new: RunSpec) -> Iterator[Difference]:
    yield from _unlike("settings", {**old.axes, **old.settings}, {**new.axes, **new.settings})
    for part, names in _WORDS.items():
        for name in names:
            before, after = (getattr(getattr(spec, part), name) for spec in (old, new))
            yield from word_differences("args" if part == "workload" else f"launcher.{name}", before, after)
    yield from _unlike("settings", _plan_variables(old), _plan_variables(new))
    yield from _unlike("settings", _rest_of(old), _rest_of(new))


def word_differences(name: str, before: Sequence[str], after: Sequence[str]) -> Iterator[Difference]:
    """Where two commands differ, each place under the option before it."""
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        option = before[i1 - 1] if i1 and before[i1 - 1].startswith("-") else ""
        old, new = (quote(words) or None for words in (before[i1:i2], after[j1:j2]))
        yield Difference(section="settings", name=f"{name} {option}".rstrip(), before=old, after=new)


def _plan_variables(spec: RunSpec) -> dict[str, str]:
    return {f"env.{name}": value for name, value in spec.env.items()}


def _rest_of(spec: RunSpec) -> dict[str, Any]:
    """Everything else of a spec, as `part.name`; a bundled workload has its steps among its settings."""
    found: dict[str, Any] = {}
    for name, value in to_json(spec).items():
        if isinstance(value, dict):
            value = {f"{name}.{key}": item for key, item in value.items() if key not in _WORDS.get(name, ())}
        else:
            value = {name: value}
        found.update({} if name in _NOT_SETTINGS or name in spec.settings else value)
    return found


def _used(side: RunSide) -> dict[str, Scalar]:
    return {name: used for name, (_, used, _) in side.effective.items()}


def _environment(side: RunSide, other: RunSide) -> dict[str, str]:
    """Recorded variables but for each attempt's own and those of the plan, which are settings."""
    # Of two records the one that both have: they do not hold the same variables, and what one leaves out is no difference.
    recorded = side.environment if side.environment and other.environment else side.attempt.provenance.environment
    left_out = {*_OWN_VARIABLES, *side.attempt.spec.env, *other.attempt.spec.env}
    return {name: value for name, value in sorted({**side.attempt.provenance.variables, **recorded}.items()) if name not in left_out}


def _versions(provenance: Provenance) -> dict[str, Any]:
    return {**_fields(provenance, VERSION_FIELDS), **dict(sorted(provenance.packages.items()))}


def _hardware(provenance: Provenance) -> dict[str, Any]:
    return {**_fields(provenance, HARDWARE_FIELDS), **{f"nic {name}": line for name, line in provenance.nics.items()}}


def _code(attempt: Attempt) -> dict[str, Any]:
    return {**_fields(attempt.provenance, CODE_FIELDS), "script_sha256": attempt.spec.script_sha256}


def _outcome(attempt: Attempt) -> dict[str, Any]:
    ended = to_json(attempt.outcome) if attempt.outcome else {"outcome": "unfinished"}
    return {name: ended[name] for name in OUTCOME_FIELDS if ended.get(name) not in (None, "")}


def _fields(provenance: Provenance, names: Sequence[str]) -> dict[str, Any]:
    """Those that say something: an empty column and none are the same."""
    return {name: value for name in names if (value := getattr(provenance, name)) not in ("", 0)}
