"""The host that is this machine: no ssh, a plain child. Which one that is, `machine.this_host` tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seatrial.launch.own_programs import AGENT_ENDS_WITHIN_S
from seatrial.launch.transports.child import Child, ChildErrand, end_all
from seatrial.launch.transports.transport import Ended, Errand, Start, ending
from seatrial.machine.orphans import kill_orphans


class Here:
    """A child process for each agent on this machine."""

    kind = "here"

    def __init__(self, attempt_folder: Path, patience_s: float = AGENT_ENDS_WITHIN_S) -> None:
        self._folder, self._patience_s = attempt_folder, patience_s
        self._children: dict[str, Child] = {}
        self._errands: list[Child] = []

    def start(self, starts: Sequence[Start]) -> None:
        for start in starts:
            self._children[start.host] = Child(start.words, start.log)

    def ended(self) -> dict[str, Ended]:
        codes = {host: child.returncode for host, child in self._children.items()}
        return {host: ending("the agent", code) for host, code in codes.items() if code is not None}

    def errand(self, start: Start) -> Errand:
        self._errands.append(Child(start.words, start.log))
        return ChildErrand("seatrial.agent --end", self._errands[-1])

    def close(self, after_run: bool = True) -> None:
        """Wait for the agents, which end by their lines; what one that was killed left is ended here."""
        # One that has nothing to end yet, and may still try to call, is not waited for.
        end_all(self._children.values(), self._patience_s if after_run else None)
        end_all(self._errands)
        if any(child.returncode for child in self._children.values()):
            kill_orphans(self._folder, {})
