"""How far the hosts' wall clocks are apart: measured by the answers, with half the round trip as the doubt."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question

MOST_OFF_S = 1.0

CLOCK = Question(
    name="clock",
    looks_at="how far each host's wall clock is ahead of the head's; Seatrial measures it during every run too, and lays events of all "
    "hosts side by side by the measured offset",
    prevents="logs of several hosts that cannot be laid side by side, files from the future (make: Clock skew detected), certificates and "
    "tokens that are not valid yet; no error names the cause",
    fix="start chrony or systemd-timesyncd there (`timedatectl set-ntp true`)",
)
QUESTIONS = (CLOCK,)


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    for host in wanted.names:
        clock = answers.first[host].clock if answers.answered(host) else None
        if clock is None:
            continue
        doubt_s = clock.round_trip_s / 2
        off = abs(clock.offset_s) - doubt_s > MOST_OFF_S
        found = f"{said(clock.offset_s)} (within {doubt_s * 1000:.0f} ms)"
        yield HostCheck(host=host, check=CLOCK.answer(not off, f"{found}; events are corrected by what is measured" if off else found))


def said(offset_s: float) -> str:
    """`3600.0 s ahead`."""
    return f"{abs(offset_s):.1f} s {'ahead' if offset_s > 0 else 'behind'}" if abs(offset_s) >= 0.05 else "the same"
