"""Attempts written to disk as the harness writes them, for tests of what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seatrial.core import files
from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.codec import to_json
from seatrial.records.outcome import Outcome
from seatrial.records.plan import RunSpec
from tests.unit.analyse import factory

RECORDED = Path(__file__).parents[2] / "recorded" / "logs"
START_M = 1000.0


def write_attempt(
    out: Path, run: RunSpec | None = None, *, number: int = 1, outcome: Outcome | None = Outcome.OK, **changes: Any
) -> Attempt:
    """spec.json, provenance.json and, where there is an outcome, outcome.json."""
    run = run or factory.spec()
    folder = out / run.run / f"attempt-{number}"
    attempt = factory.attempt(run, number=number, outcome=outcome, folder=str(folder), **changes)
    paths = AttemptPaths(folder)
    files.write_json(paths.spec, to_json(attempt.spec))
    files.write_json(paths.provenance, to_json(attempt.provenance))
    if attempt.outcome:
        files.write_json(paths.outcome, to_json(attempt.outcome))
    return attempt


def write_log(attempt: Attempt, text: str | bytes, *, every_s: float = 0.5) -> None:
    """launcher.log whose lines came one by one, `every_s` apart; a bar's carriage return comes with the next bar, as tqdm does it."""
    data = text.encode() if isinstance(text, str) else text
    paths = AttemptPaths(Path(attempt.folder))
    paths.launcher_log.write_bytes(data)
    offsets = [at for at in range(1, len(data)) if data[at - 1 : at] not in (b"\r", b"\n") and data[at : at + 1] in (b"\r", b"\n")]
    write_arrivals(attempt, [*offsets, len(data)], every_s=every_s)


def write_arrivals(attempt: Attempt, offsets: list[int], *, every_s: float = 0.5) -> None:
    rows = [
        f"{offset},{factory.STARTED_T + number * every_s:.6f},{START_M + number * every_s:.6f}" for number, offset in enumerate(offsets, 1)
    ]
    AttemptPaths(Path(attempt.folder)).arrivals.write_text("\n".join(["offset_bytes,t,m", *rows]) + "\n")


def event(attempt: Attempt, kind: str = "step", *, rank: int = 0, **fields: Any) -> str:
    """One event line of the attempt."""
    common = {"v": 1, "run": attempt.spec.run, "attempt": attempt.number, "rank": rank, "t": 1.0, "m": 2.0, "kind": kind}
    return json.dumps({**common, **fields})


def write_events(attempt: Attempt, rank: int, text: str) -> Path:
    path = AttemptPaths(Path(attempt.folder)).events(rank)
    path.write_text(text)
    return path
