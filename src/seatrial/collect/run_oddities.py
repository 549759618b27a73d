"""What a run did beside its training that its reader should know. In: its outcome and its log. Out: cautions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from seatrial.files import open_file
from seatrial.records.caution import Caution
from seatrial.records.outcome import Outcome, RunOutcome

# At either end of the log; what is rubbish all the way shows there.
LOOKED_AT_BYTES = 256 * 1024
REPLACED = "\N{REPLACEMENT CHARACTER}"
# A character cut in two at the border of what is looked at is no rubbish.
LEAST_BYTES = 16


def left_behind(run: str, outcome: RunOutcome | None) -> Iterator[Caution]:
    """Processes that outlived a run that ended well."""
    if outcome is not None and outcome.outcome is Outcome.OK and outcome.killed:
        some = "1 process" if outcome.killed == 1 else f"{outcome.killed} processes"
        text = f"{some} of this run went on after its end and had to be killed: they would have held memory, GPU or ports of the next one."
        yield Caution(kind="left_behind", subject=run, numbers={"killed": outcome.killed}, text=text)


def not_text(run: str, log: Path) -> Iterator[Caution]:
    """Bytes in the log that are no text: lines may have been torn by them."""
    looked_at = _ends_of(log)
    odd = sum(part.decode("utf-8", errors="replace").count(REPLACED) + part.count(b"\0") for part in looked_at)
    if odd < LEAST_BYTES:
        return
    looked_bytes = sum(map(len, looked_at))
    text = f"{log.name} holds bytes that are no text ({odd} of the {looked_bytes} looked at); lines with such bytes may not have been read."
    yield Caution(kind="not_text", subject=run, numbers={"bytes": odd, "of": looked_bytes}, text=text)


def _ends_of(path: Path) -> list[bytes]:
    """Its beginning and, where that is not all, its end."""
    try:
        with open_file(path) as source:
            first = source.read(LOOKED_AT_BYTES)
            size = source.seek(0, os.SEEK_END)
            source.seek(max(len(first), size - LOOKED_AT_BYTES))
            return [first, source.read(LOOKED_AT_BYTES)]
    except OSError:
        return []
