"""The registry of failure signatures: sign → cause → what to do.

In: nothing, it is data. Out: `SIGNATURES`, in the order in which their patterns are tried (the earlier wins where one line fits two), and
the advice for a cause, an entry or an exit code. collect.failure diagnoses by it, campaign/ takes its advice from it, and
docs/troubleshooting.md is made from it (collect.reference). Lines that are no sign of anything: collect.harmless.
"""

from __future__ import annotations

from seatrial.collect.signature import Signature
from seatrial.collect.signatures_of_deepspeed import OF_DEEPSPEED
from seatrial.collect.signatures_of_endings import OF_ENDINGS
from seatrial.collect.signatures_of_logs import OF_LOGS
from seatrial.collect.signatures_of_reports import OF_REPORTS
from seatrial.records.outcome import Cause

SIGNATURES: tuple[Signature, ...] = (*OF_DEEPSPEED, *OF_LOGS, *OF_ENDINGS, *OF_REPORTS)
_BY_ID = {entry.id: entry for entry in SIGNATURES}
_BY_EXIT_CODE = {code: entry for entry in SIGNATURES for code in entry.exit_codes}


def signature(id: str) -> Signature:
    """The entry of that name."""
    return _BY_ID[id]


def general(cause: Cause) -> Signature:
    """The entry for all that has this cause and no entry of its own; there is one for every cause of a bad end."""
    return _BY_ID[cause.value]


def advice(cause: Cause) -> str:
    """What to do where nothing but the cause is known."""
    return general(cause).action


def of_exit_code(exit_code: int | None) -> Signature | None:
    """The entry of an exit code that tells something by itself."""
    return None if exit_code is None else _BY_EXIT_CODE.get(exit_code)
