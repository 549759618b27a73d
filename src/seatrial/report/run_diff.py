"""What differs between two attempts and whether they may be averaged, as values, text and JSON."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from seatrial.core.shell import quote
from seatrial.core.text import SHORT_HASH_DIGITS, format_bytes, format_duration
from seatrial.machine.provenance import fingerprint_differences
from seatrial.machine.secrets import MASK
from seatrial.records import events
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.codec import to_json
from seatrial.records.measure import Effective
from seatrial.records.plan import RunSpec
from seatrial.report.text import NONE, one_line

VERSION_FIELDS = ("python", "driver_version", "cuda", "cudnn", "nccl")
HARDWARE_FIELDS = (
    "host", "platform", "container", "cpu", "cpu_count", "memory_bytes",
    "gpu_name", "gpu_cc", "gpu_uuid_list", "gpu_clocks", "gpu_power_limit_w", "gpu_power_default_w", "pcie_gen",
)  # fmt: skip
CODE_FIELDS = ("git_commit_hash", "git_branch", "git_dirty", "git_diff_sha256")
OUTCOME_FIELDS = ("outcome", "cause", "detail", "exit_code", "killed")
# The run's identity, fields with a section of their own, and argvs, which are compared argument by argument.
_NOT_SETTINGS = ("run", "group", "repeat", "hash", "group_key", "labels", "varied", "script_sha256", "settings", "axes", "env")
_ARGV_FIELDS = {"workload": ("args",), "launcher": ("args", "program")}
# Different in every attempt.
_OWN_VARIABLES = (events.ENV_RUN_DIR, events.ENV_RUN, events.ENV_ATTEMPT, "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class DiffedRun:
    """One of the two attempts."""

    attempt: Attempt
    effective: Effective = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Every recorded variable (environment.json)."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that differs; None where one of the two does not have it."""

    section: str
    name: str
    before: Any
    after: Any
    parts: bool = False
    """Whether the fingerprints differ in it."""


@dataclass(frozen=True, kw_only=True)
class RunDiff:
    """Everything that differs, in the order of the sections."""

    before: DiffedRun
    after: DiffedRun
    differences: tuple[Difference, ...]
    fingerprints_equal: bool
    parted_by: tuple[str, ...]
    """Facts of the fingerprint that differ; also empty where a fingerprint was computed by other rules, or is missing."""
    may_be_averaged: bool
    conclusion: str
    """Whether they may be averaged, in a sentence."""

    @property
    def masked(self) -> tuple[str, ...]:
        """Variables of the plans that are masked in both: unknown whether they differ, unless the runs have one hash."""
        old, new = self.before.attempt.spec, self.after.attempt.spec
        if old.group_key and old.group_key == new.group_key:
            return ()
        return tuple(f"env.{name}" for name, value in old.env.items() if MASK in value and value == new.env.get(name))


def diff_runs(before: DiffedRun, after: DiffedRun) -> RunDiff:
    """Compare two attempts, of one campaign or of two."""
    old, new = before.attempt.provenance, after.attempt.provenance
    equal = bool(old.fingerprint) and old.fingerprint == new.fingerprint
    parting = () if equal else tuple(fingerprint_differences(old, new))
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
        conclusion=_sentence(old, new, parting, same_settings, same_effective),
    )


def _sentence(old: Provenance, new: Provenance, parting: Sequence[str], same_settings: bool, same_effective: bool) -> str:
    if not (old.fingerprint and new.fingerprint):
        return "At least one has no recorded fingerprint: not averaged."
    if parting:
        return f"Fingerprints differ: not averaged. Different: {', '.join(parting)}."
    if old.fingerprint != new.fingerprint:
        return "Fingerprints differ without a recorded reason: computed by different versions. Not averaged."
    if not same_settings:
        return "Fingerprints equal, settings not: two groups, which may be compared. Not averaged."
    if not same_effective:
        return "Fingerprints equal, effective settings not: not averaged."
    return "Fingerprints equal: may be averaged."


def _all_differences(before: DiffedRun, after: DiffedRun, parting: Sequence[str]) -> Iterator[Difference]:
    old, new = before.attempt, after.attempt
    yield from _settings(old.spec, new.spec)
    yield from _differing("settings", _fields(old.provenance, ("plan_hash",)), _fields(new.provenance, ("plan_hash",)))
    old_used, new_used = ({name: one.effective for name, one in run.effective.items()} for run in (before, after))
    yield from _differing("effective settings", old_used, new_used)
    yield from _differing("environment", _environment(before, after), _environment(after, before), parting)
    yield from _differing("versions", _versions(old.provenance), _versions(new.provenance), parting)
    yield from _differing("hardware", _hardware(old.provenance), _hardware(new.provenance), parting)
    yield from _differing("code", _code(old), _code(new), parting)
    yield from _differing("outcome", _outcome(old), _outcome(new))


def _differing(section: str, before: Mapping[str, Any], after: Mapping[str, Any], parting: Sequence[str] = ()) -> Iterator[Difference]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield Difference(section=section, name=name, before=old, after=new, parts=name in parting)


def _settings(old: RunSpec, new: RunSpec) -> Iterator[Difference]:
    yield from _differing("settings", {**old.axes, **old.settings}, {**new.axes, **new.settings})
    for part, names in _ARGV_FIELDS.items():
        for name in names:
            before, after = (getattr(getattr(spec, part), name) for spec in (old, new))
            yield from argv_differences("args" if part == "workload" else f"launcher.{name}", before, after)
    before, after = ({f"env.{name}": value for name, value in spec.env.items()} for spec in (old, new))
    yield from _differing("settings", before, after)
    yield from _differing("settings", _rest_of(old), _rest_of(new))


def argv_differences(name: str, before: Sequence[str], after: Sequence[str]) -> Iterator[Difference]:
    """Differences of two commands, each named after the option before it."""
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        option = before[i1 - 1] if i1 and before[i1 - 1].startswith("-") else ""
        old, new = (quote(argv) or None for argv in (before[i1:i2], after[j1:j2]))
        yield Difference(section="settings", name=f"{name} {option}".rstrip(), before=old, after=new)


def _rest_of(spec: RunSpec) -> dict[str, Any]:
    """The other fields of a spec, as `part.name`; a bundled workload has its steps in its settings."""
    found: dict[str, Any] = {}
    for name, value in to_json(spec).items():
        if isinstance(value, dict):
            value = {f"{name}.{key}": item for key, item in value.items() if key not in _ARGV_FIELDS.get(name, ())}
        else:
            value = {name: value}
        found.update({} if name in _NOT_SETTINGS or name in spec.settings else value)
    return found


def _environment(run: DiffedRun, other: DiffedRun) -> dict[str, str]:
    """Recorded variables without each attempt's own and those of the plan, which are settings."""
    # The two records hold different variables, so the one that both attempts have is used: a variable that one leaves out is not a
    # difference.
    recorded = run.environment if run.environment and other.environment else run.attempt.provenance.environment
    left_out = {*_OWN_VARIABLES, *run.attempt.spec.env, *other.attempt.spec.env}
    return {name: value for name, value in sorted({**run.attempt.provenance.variables, **recorded}.items()) if name not in left_out}


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
    """The known fields; an empty one counts as missing."""
    return {name: value for name in names if (value := getattr(provenance, name)) not in ("", 0)}


NARROWEST = 40
WIDEST_NAME = 24
NO_DIFFERENCE = "No recorded difference."
MASKED = "The hashes differ, but no shown setting does: a masked value differs, or how a number is written."


def diff_lines(diff: RunDiff, width: int) -> list[str]:
    """Both attempts, their differences and whether they may be averaged; no line is wider than `width`, unless it cannot be broken."""
    width = max(width, NARROWEST)
    lines = [*_heads(diff, width), "", *_sections(diff.differences, width)]
    if not diff.differences:
        lines.append(NO_DIFFERENCE)
    if any(difference.parts for difference in diff.differences):
        lines.append("* part of the fingerprint")
    same_group = diff.before.attempt.spec.group_key == diff.after.attempt.spec.group_key
    if not same_group and not any(one.section == "settings" or one.name == "script_sha256" for one in diff.differences):
        lines += textwrap.wrap(MASKED, width)
    if masked := diff.masked:
        lines += textwrap.wrap(f"Masked in both, so a difference would not show: {', '.join(masked)}.", width)
    # Names and values come from files and may contain control sequences.
    return [one_line(line) for line in (*lines, *textwrap.wrap(diff.conclusion, width))]


def diff_json(diff: RunDiff) -> dict[str, Any]:
    """The diff as plain values."""
    return {
        "before": _run_json(diff.before),
        "after": _run_json(diff.after),
        "fingerprints_equal": diff.fingerprints_equal,
        "may_be_averaged": diff.may_be_averaged,
        "parted_by": list(diff.parted_by),
        "says": diff.conclusion,
        "masked": list(diff.masked),
        "differences": to_json(diff.differences),
    }


def _run_json(run: DiffedRun) -> dict[str, Any]:
    attempt = run.attempt
    return {
        "folder": attempt.folder,
        "run": attempt.spec.run,
        "attempt": attempt.number,
        "hash": attempt.spec.hash,
        "group_key": attempt.spec.group_key,
        "fingerprint": attempt.provenance.fingerprint,
        "outcome": attempt.outcome.outcome.value if attempt.outcome else None,
        "duration_s": attempt.outcome.duration_s if attempt.outcome else None,
    }


def _heads(diff: RunDiff, width: int) -> Iterator[str]:
    attempts = {"before": diff.before.attempt, "after": diff.after.attempt}
    longest = max(len(attempt.folder) for attempt in attempts.values())
    endings = {name: _ending(attempt) for name, attempt in attempts.items()}
    # A path is never broken: users paste it.
    fits = len("before") + longest + max(map(len, endings.values())) + 4 <= width
    for name, attempt in attempts.items():
        yield f"{name:<6}  {attempt.folder:<{longest}}  {endings[name]}" if fits else f"{name:<6}  {attempt.folder}"
        if not fits:
            yield f"        {endings[name]}"


def _ending(attempt: Attempt) -> str:
    ended = attempt.outcome
    if ended is None:
        return "unfinished"
    cause = "" if ended.cause.value == "none" else f" ({ended.cause.value})"
    return f"{ended.outcome.value}{cause}, {format_duration(ended.duration_s)}"


def _sections(differences: Sequence[Difference], width: int) -> Iterator[str]:
    column = min(WIDEST_NAME, max((len(difference.name) for difference in differences), default=0))
    for section, group in groupby(differences, key=lambda difference: difference.section):
        yield section
        for difference in group:
            yield from _lines(difference, column, width)
        yield ""


def _lines(difference: Difference, column: int, width: int) -> Iterator[str]:
    mark = "*" if difference.parts else " "
    before, after = (shown_value(difference.name, value) for value in (difference.before, difference.after))
    line = f"  {mark} {difference.name:<{column}}  {before} → {after}"
    if len(line) <= width:
        yield line
        return
    yield f"  {mark} {difference.name}"
    for sign, text in (("-", before), ("+", after)):
        yield from textwrap.wrap(text, width, initial_indent=f"      {sign} ", subsequent_indent="        ", break_on_hyphens=False)


def shown_value(name: str, value: Any) -> str:
    """A recorded value as text."""
    if value is None or value in ("", []):
        return NONE
    if name.endswith(("_sha256", "_commit_hash")):
        return str(value)[:SHORT_HASH_DIGITS]
    if name == "memory_bytes":
        return format_bytes(value)
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(str(item) for item in value) if isinstance(value, list) else " ".join(str(value).split())
