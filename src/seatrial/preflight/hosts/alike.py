"""Who differs from the others. Pure: values by host in; out, what most have, and a check for each host.

Two hosts that differ have no majority: the first of the hostfile is then what the others are held against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from seatrial.preflight.hosts.rows import NO_LABELS, HostCheck, hosts_text
from seatrial.preflight.question import Question


def most_common(values: Mapping[str, str]) -> str:
    """The value that most hosts have; of several the one that comes first."""
    return max(Counter(values.values()).items(), key=lambda item: item[1])[0] if values else ""


def compared(
    question: Question, values: Mapping[str, str], *, refuses: bool | None = None, labels: Mapping[str, str] = NO_LABELS
) -> Iterator[HostCheck]:
    """One check for each host: in order where it has what most have."""
    usual = most_common(values)
    others = [host for host, value in values.items() if value == usual]
    for host, value in values.items():
        found = value or "none"
        if value != usual:
            found = f"{value or 'none'}; {usual or 'none'} on {hosts_text(others, labels)}"
        yield HostCheck(host=host, check=question.answer(value == usual, found, refuses=refuses))
