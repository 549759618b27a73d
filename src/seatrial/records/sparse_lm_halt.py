"""`.HALT`, the sparse-LM procedure's halt file: why a run is to end, and which one. In and out: a text of `key: value` lines.

    halt: gate_collapse
    run: 20261118-020355-4711
    attempt: 1
    at_step: 118
    reason: gate entropy 0.05 on 3 checks in a row (NSA_WATCH_GATE_ENTROPY_MIN 0.2)

The first line is what other tools search for. A file that names another run or attempt is stale and stops no run. One that names none, as
`touch .HALT` creates it, concerns any run that had begun when it was written.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.core.files import open_file, write_text

MAX_BYTES = 16 * 1024
MAX_REASON = 200
HALT_KEY = "halt"
NAN_LOSS, BY_HAND = "nan_loss", "by_hand"
SKIPPED_IN_A_ROW = 25
"""Steps skipped by a loss scaler that are a `nan_loss`, to trainer and watchdog alike. It begins at 2^16 and halves its scale at each:
beyond this many it does not come down to a scale that works."""


@dataclass(frozen=True, kw_only=True)
class Halt:
    """One request to end a run."""

    anomaly: str
    """`heartbeat_stall`, `throughput_flatline`, `gate_collapse`, `zero_grad`, `nan_loss`, or what a person wrote."""
    run: str = ""
    """The run's id; empty in a file written by hand, which concerns any run."""
    attempt: int | None = None
    at_step: int | None = None
    """The first step that must not begin; None: the next one."""
    reason: str = ""
    written_t: float | None = field(default=None, compare=False)
    """When the file was written last, by its file system's clock."""

    def concerns(self, run: str, attempt: int) -> bool:
        """Whether it is for this run; False for a stale one."""
        return self.run in ("", run) and self.attempt in (None, attempt)


def write_halt(path: Path, halt: Halt) -> None:
    """Written aside and renamed: no rank reads half of it."""
    fields = {HALT_KEY: halt.anomaly, "run": halt.run, "attempt": halt.attempt, "at_step": halt.at_step, "reason": halt.reason}
    write_text(path, "".join(f"{name}: {value}\n" for name, value in fields.items() if value not in ("", None)))


def read_halt(path: Path) -> Halt | None:
    """The request in the file, which may be empty or any text; None where there is no file that can be read."""
    try:
        with open_file(path) as source:
            written_t = os.fstat(source.fileno()).st_mtime
            text = source.read(MAX_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return None
    pairs = (line.partition(":") for line in text.splitlines())
    fields = {name.strip(): value.strip() for name, colon, value in pairs if colon}
    by_hand = not fields.get(HALT_KEY)
    return Halt(
        anomaly=BY_HAND if by_hand else fields[HALT_KEY],
        run=fields.get("run", ""),
        attempt=_integer(fields.get("attempt")),
        at_step=_integer(fields.get("at_step")),
        reason=fields.get("reason", "") or (" ".join(text.split())[:MAX_REASON] if by_hand else ""),
        written_t=written_t,
    )


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
