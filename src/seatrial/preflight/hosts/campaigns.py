"""Whether another campaign is at work on a host: both would measure each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question

OTHERS = Question(
    name="campaigns there",
    looks_at="that no agent of another Seatrial campaign runs on a host",
    prevents="two campaigns that measure each other; no error is shown",
    fix="wait for it, or end it with `seatrial stop` and its folder",
)
QUESTIONS = (OTHERS,)
MOST_NAMED = 3


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    """What an earlier attempt of this very campaign left is ended by its next agent, and is no other campaign."""
    for host in wanted.names:
        if host not in answers.facts:
            continue
        others = [folder for folder in answers.facts[host].campaigns if Path(folder) != Path(wanted.output)]
        yield HostCheck(host=host, check=OTHERS.answer(not others, ", ".join(others[:MOST_NAMED]) or "none"))
