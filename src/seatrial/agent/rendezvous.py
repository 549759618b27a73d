"""The port at which the ranks of a run meet, where this node is the one that holds it: node 0.

It is reserved before the harness is called, since hello tells it. What holds it may be a process of an earlier attempt, which is ended
only after the harness has answered. So a port that the plan names (place.port) is told all the same where such processes are there, and
reserved once they are gone; `trouble` then says whether that failed too. Any other port is simply another one than theirs.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from seatrial.agent.reports import note
from seatrial.errors import LaunchError
from seatrial.machine.orphans import find_leftovers
from seatrial.ports import ReservedPort, reserve_port
from seatrial.records.line import NodeCall


class Rendezvous:
    """Held from `reserve` until the end of the `with` block; nothing on a node that holds none."""

    def __init__(self, call: NodeCall) -> None:
        self._call = call
        self._reserved: ReservedPort | None = None
        self.trouble = ""
        """Why there is no port, in words: the harness is to say it, so it is called all the same."""

    def reserve(self) -> None:
        """Unless it is held already."""
        if not self._call.holds_port or self._reserved is not None:
            return
        try:
            self._reserved = reserve_port(self._call.rendezvous_port, self._call.port_base)
            self.trouble = ""
        except LaunchError as error:
            note(str(error))
            self.trouble = f"on {self._call.node}: {error}"

    def to_tell(self) -> int | None:
        """The port that is held, or will be once leftovers are ended; None where there is none."""
        if self._reserved is not None:
            return self._reserved.port
        in_the_way = self.trouble and find_leftovers(Path(self._call.campaign), Path(self._call.attempt))
        return self._call.rendezvous_port if in_the_way else None

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._reserved is not None:
            self._reserved.close()
