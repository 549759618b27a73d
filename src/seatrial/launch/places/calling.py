"""Waiting until the agents of all hosts have called. In: a switchboard and what tells of failed starts. Out: every agent's hello.

No rank is started before all have called: a job whose half waits for a host that never comes would stand at its rendezvous for minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from seatrial.errors import LaunchError, StoppedError
from seatrial.launch.transports.transport import Ended
from seatrial.launch.transports.troubles import host_error, left_error, silence_error
from seatrial.line.protocol import Message
from seatrial.line.switchboard import Switchboard

# A host under load takes this long to start an interpreter from a shared disk.
PATIENCE_S = 60.0
# When one host cannot be started, others often cannot for the same reason: all are named at once.
GATHER_S = 0.5
TURN_S = 0.2


def all_called(
    board: Switchboard,
    logs: Mapping[str, Path],
    ended: Callable[[], Mapping[str, Ended]],
    should_stop: Callable[[], bool],
    patience_s: float = PATIENCE_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Message]:
    """What each host said when it called; HostError for one that cannot, StoppedError when `should_stop` first."""
    hellos: dict[str, Message] = {}
    until_m = monotonic() + patience_s
    while missing := [name for name in logs if name not in hellos]:
        _hear(board, TURN_S, hellos, logs)
        if board.failed:
            raise LaunchError(f"{board.failed}: start the same command again, and report it")
        if should_stop():
            raise StoppedError(f"stopped while the agents of {len(missing)} of {len(logs)} hosts were being started; nothing was run")
        if _cannot_call(ended, hellos):
            _hear(board, GATHER_S, hellos, logs)
            # Whoever called in the last moment has called; what became of its ssh since is of no interest.
            if over := _cannot_call(ended, hellos):
                raise host_error(_in_order(over, logs), logs)
        if monotonic() >= until_m and (silent := [name for name in logs if name not in hellos]):
            raise silence_error(silent, logs, patience_s)
    return hellos


def _hear(board: Switchboard, timeout_s: float, hellos: dict[str, Message], logs: Mapping[str, Path]) -> None:
    for name, message in board.wait(timeout_s):
        if message["kind"] == "hello":
            hellos[name] = message
        elif message["kind"] == "lost" and name in hellos:
            raise left_error(name, str(message.get("why")), logs)


def _cannot_call(ended: Callable[[], Mapping[str, Ended]], hellos: Collection[str]) -> dict[str, Ended]:
    return {name: how for name, how in ended().items() if name not in hellos}


def _in_order(over: Mapping[str, Ended], names: Collection[str]) -> dict[str, Ended]:
    return {name: over[name] for name in names if name in over}
