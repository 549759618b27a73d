"""Plain ssh, one process a host."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.launch.transports.child import Child, ChildErrand, end_all
from seatrial.launch.transports.transport import Ended, Errand, Start, ending
from seatrial.options.ssh import ssh_words

# Of an errand, which nobody waits for for long.
HURRIED = ("-o", "ConnectTimeout=5")


def hurried(start: Start, ssh_args: Sequence[str]) -> Child:
    """An ssh that soon gives up on a host which does not answer."""
    return Child(ssh_words(start.host, start.words, (*ssh_args, *HURRIED)), start.log)


class Ssh:
    """An ssh for each host."""

    kind = "ssh"

    def __init__(self, ssh_args: Sequence[str] = ()) -> None:
        self._ssh_args = tuple(ssh_args)
        self._children: dict[str, Child] = {}
        self._errands: list[Child] = []

    def start(self, starts: Sequence[Start]) -> None:
        for start in starts:
            self._children[start.host] = Child(ssh_words(start.host, start.words, self._ssh_args), start.log)

    def ended(self) -> dict[str, Ended]:
        codes = {host: child.returncode for host, child in self._children.items()}
        return {host: ending("ssh", code) for host, code in codes.items() if code is not None}

    def errand(self, start: Start) -> Errand:
        self._errands.append(hurried(start, self._ssh_args))
        return ChildErrand("ssh", self._errands[-1])

    def close(self, after_run: bool = True) -> None:
        end_all([*self._children.values(), *self._errands])
