"""Who calls whom in the trials: hosts stand in a ring, in the hostfile's order, and where each listens is what it answered."""

from __future__ import annotations

import bisect

from seatrial.preflight.hosts.answers import Answers, part
from seatrial.preflight.hosts.wanted import Wanted

RENDEZVOUS, PEER, CALL = "rendezvous", "peer", "call"


class Ring:
    """The hosts that listen, made once for all of them: a thousand hosts are a million pairs."""

    def __init__(self, wanted: Wanted, answers: Answers) -> None:
        self._master, self._fast = wanted.master, answers.fast
        self._places = {name: place for place, name in enumerate(wanted.names)}
        self.listening = [name for name in wanted.names if port_of(answers, name, PEER) is not None]
        self._taken = [self._places[name] for name in self.listening]

    def peers(self, host: str) -> list[str]:
        """The other hosts that `host` calls: the next one, every one where it is node 0 or in the long form. None calls from outside."""
        if host not in self._places or not self.listening:
            return []
        if host == self._master or not self._fast:
            return [name for name in self.listening if name != host]
        following = self.listening[bisect.bisect_right(self._taken, self._places[host]) % len(self.listening)]
        return [following] if following != host else []


def port_of(answers: Answers, host: str, what: str) -> int | None:
    """Where it listens for that; for its peers where it would for a rendezvous, unless it has a port for each."""
    port = part(answers.first, host, what).get("port")
    if port is None and what == PEER:
        port = part(answers.first, host, RENDEZVOUS).get("port")
    return port if isinstance(port, int) else None
