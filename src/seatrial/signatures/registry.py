"""The registry of signatures: sign → cause → whose fault → what to do.

In: nothing, it is data (the TOML files beside this module, read once when first asked for). Out: the entries in the order in which their
patterns are tried, and the one for a name, a cause, an exit code, an outcome or what analysis found. collect.failure.cause diagnoses by it,
campaign/ takes its advice from it, the judge its advice for slowness, and docs/troubleshooting.md is made from it.
"""

from __future__ import annotations

from functools import cache

from seatrial.records.outcome import Cause, Fault, RunOutcome
from seatrial.signatures.load import load_signatures
from seatrial.signatures.signature import Signature


@cache
def signatures() -> tuple[Signature, ...]:
    """All entries, the earlier of which wins where one line fits two."""
    return load_signatures()


@cache
def slow_signs() -> tuple[Signature, ...]:
    """The signs of slowness."""
    return tuple(entry for entry in signatures() if entry.slows)


def signature(id: str) -> Signature:
    """The entry of that name."""
    return _by_id()[id]


def general(cause: Cause) -> Signature:
    """The entry for all that has this cause and no entry of its own; there is one for every cause of a bad end."""
    return _by_id()[cause.value]


def advice(cause: Cause) -> str:
    """What to do where nothing but the cause is known."""
    return general(cause).action


def of_exit_code(exit_code: int | None) -> Signature | None:
    """The entry of an exit code that tells something by itself."""
    return None if exit_code is None else _by_exit_code().get(exit_code)


def fault_of(outcome: RunOutcome) -> Fault:
    """Whose fault an end was. Folders of older versions do not say it: there the entry that told the cause decides, else the cause."""
    if outcome.fault is not Fault.UNKNOWN:
        return outcome.fault
    entry = _by_id().get(outcome.signature) or _by_id().get(outcome.cause.value)
    return entry.fault if entry is not None else Fault.UNKNOWN


def fault_named(id: str) -> Fault:
    """The fault of the entry of that name; unknown where there is none."""
    entry = _by_id().get(id)
    return entry.fault if entry is not None else Fault.UNKNOWN


def slow_sign_for(kind: str) -> Signature | None:
    """The advice for what analysis found (UnevenCause.kind), or `debug` for debug and tracing settings."""
    return _by_kind().get(kind)


@cache
def _by_id() -> dict[str, Signature]:
    return {entry.id: entry for entry in signatures()}


@cache
def _by_exit_code() -> dict[int, Signature]:
    return {code: entry for entry in signatures() for code in entry.exit_codes}


@cache
def _by_kind() -> dict[str, Signature]:
    return {kind: entry for entry in slow_signs() for kind in entry.kinds}
