"""Where runs are to be made: whether this version can start them there."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check

HOSTFILE = Question(
    name="place {kind}",
    looks_at="that runs are asked for on this machine: those on several hosts are shown, and not started yet",
    prevents="ranks on other hosts that nobody watches or ends",
    fix="start the command that `seatrial plan show` prints by hand, or use `place: {{kind: local}}`",
    refuses=True,
    in_docs={"kind": "hostfile"},
)
QUESTIONS = (HOSTFILE,)


def checks(need: Need) -> Iterator[Check]:
    for kind in sorted({spec.place.kind for spec in need.runs} - {"local"}):
        yield HOSTFILE.answer(False, "runs on several hosts are not built yet", kind=kind)
