"""The registry of failure signatures: sign → cause → whose fault → what to do.

In: the TOML files beside this module, in the order of FILES; each is a list of `[[signature]]` tables with the fields of `Signature`. Out:
the entries in that order, in which their patterns are tried: where a line matches two, the earlier one wins; and the entry for a name, a
cause, an exit code, an outcome or a finding. A wrong key or value is a ValueError with file, entry and key. The content of the entries is
checked by the tests (tests/unit/records/signature_checks.py): compiling every expression takes time that a run without a failure need not
spend.

`collect` diagnoses failures by it, `campaign` and `judge` take their advice from it, and docs/troubleshooting.md is generated from it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from seatrial.records.codec import from_json
from seatrial.records.outcome import Cause, Fault, RunOutcome

# Topics: whose procedures an entry belongs to.
STAGE1 = "stage1"
DEEPSPEED = "deepspeed"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """One way in which a run fails or is slow: the symptom, the reason, and what to do."""

    id: str
    """Stable. The entry named like a cause has the advice for all outcomes with that cause and no entry of their own."""
    symptom: str
    """What one sees, in Markdown: a line as it is printed, an event, a file."""
    cause: Cause
    """As in outcome.json; `none` where it is not a failure."""
    fault: Fault
    """`unknown` where the symptom alone does not show it, and where it is not a failure."""
    why: str
    action: str
    """What to do, as text for the terminal."""
    action_without_plan: str = ""
    """The same about a job that no campaign started (`seatrial diagnose`), where `action` names files or keys that only a campaign has."""
    patterns: tuple[str, ...] = ()
    """Regular expressions, searched in a line of the log; none where the log does not show it."""
    exit_codes: tuple[int, ...] = ()
    """Exit codes of the launcher, where its log has no other sign."""
    after_effect: bool = False
    """Printed by ranks when another one has died: it counts only where there is no other sign."""
    echo: bool = False
    """An after-effect that only reports that another rank is gone: it counts only where there is no other after-effect."""
    after_usage: bool = False
    """It counts only where the program has printed its usage shortly before."""
    takes_precedence: bool = False
    """It counts before every other sign, wherever it is: ranks on a broken GPU fail in many ways."""
    caution: str = ""
    """Kind of the report's caution about it, if any."""
    topics: tuple[str, ...] = ()
    slows: bool = False
    """A sign of slowness: advice for a throughput that is too low. The fields below are for these."""
    keywords: tuple[str, ...] = ()
    """Every line that matches a pattern contains one of them: searched first, which is much faster."""
    effective: tuple[str, ...] = ()
    """Regular expressions that match all of `setting: requested -> effective`, as the workload reported it."""
    env: tuple[str, ...] = ()
    """Regular expressions that match all of `NAME=value`, of the variables that reached the ranks."""
    unset: str = ""
    """A variable that is as bad when unset, for a workload that sets others of that prefix (`NSA_`)."""
    kinds: tuple[str, ...] = ()
    """Kinds of findings (JitterCause.kind, `debug`) that this is the advice for."""
    at_least: dict[str, float] = field(default_factory=dict)
    """Settings of the run that must be known and at least this large for it to count."""
    needs_infiniband: bool = False
    """It counts only where the host has an active InfiniBand port."""


FOLDER = Path(__file__).parent
FILES = ("deepspeed", "cluster", "memory", "gpu", "network", "storage", "script", "endings", "reports", "slow")
"""Special before general: the last file with patterns of failures is `script`."""
_KEYS = frozenset(one.name for one in fields(Signature))
_NEEDED = tuple(one.name for one in fields(Signature) if one.default is MISSING and one.default_factory is MISSING)


def load_signatures(folder: Path = FOLDER, files: tuple[str, ...] = FILES) -> tuple[Signature, ...]:
    """Every entry of the files, in their order."""
    found: dict[str, Signature] = {}
    for name in files:
        for entry in _entries_of(folder / f"{name}.toml"):
            if entry.id in found:
                raise ValueError(f"{name}.toml: '{entry.id}' is defined already; every entry needs its own id")
            found[entry.id] = entry
    return tuple(found.values())


def _entries_of(path: Path) -> Iterator[Signature]:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    if unknown := sorted(set(data) - {"signature"}):
        raise ValueError(f"{path.name}: unknown table '{unknown[0]}'; entries are [[signature]] tables")
    for number, table in enumerate(data.get("signature", []), start=1):
        try:
            _check_keys(table)
            yield from_json(Signature, table)
        except ValueError as error:
            raise ValueError(f"{path.name}, entry {table.get('id', number)}: {error}") from error


def _check_keys(table: Mapping[str, Any]) -> None:
    if unknown := sorted(set(table) - _KEYS):
        raise ValueError(f"unknown key '{unknown[0]}'; known are {', '.join(sorted(_KEYS))}")
    if missing := [key for key in _NEEDED if not table.get(key)]:
        raise ValueError(f"'{missing[0]}' is missing or empty")


@cache
def signatures() -> tuple[Signature, ...]:
    """All entries, in order."""
    return load_signatures()


@cache
def slow_signs() -> tuple[Signature, ...]:
    """The signs of slowness."""
    return tuple(entry for entry in signatures() if entry.slows)


def signature(id: str) -> Signature:
    """The entry of that name."""
    return _by_id()[id]


def general(cause: Cause) -> Signature:
    """The entry for outcomes with this cause and no entry of their own; every cause of a failure has one."""
    return _by_id()[cause.value]


def advice(cause: Cause) -> str:
    """What to do where only the cause is known."""
    return general(cause).action


def advice_without_plan(id: str) -> str:
    """What to do about a job that no campaign started."""
    entry = _by_id()[id]
    return entry.action_without_plan or entry.action


def of_exit_code(exit_code: int | None) -> Signature | None:
    """The entry for an exit code that is a sign by itself."""
    return next((entry for entry in signatures() if exit_code in entry.exit_codes), None)


def fault_of(outcome: RunOutcome) -> Fault:
    """Whose fault a failure was. Folders of older versions do not record it: there the signature decides, else the cause."""
    if outcome.fault is not Fault.UNKNOWN:
        return outcome.fault
    return fault_named(outcome.signature if outcome.signature in _by_id() else outcome.cause.value)


def fault_named(id: str) -> Fault:
    """The fault of the entry of that name; unknown where there is none."""
    entry = _by_id().get(id)
    return entry.fault if entry is not None else Fault.UNKNOWN


def slow_sign_for(kind: str) -> Signature | None:
    """The advice for a finding (JitterCause.kind), or `debug` for debug and tracing settings."""
    return next((entry for entry in slow_signs() if kind in entry.kinds), None)


@cache
def _by_id() -> dict[str, Signature]:
    return {entry.id: entry for entry in signatures()}
