"""Ports tried for real: this host listens, others connect and must hear the token that only it knows.

A listener closes by itself after LIFE_S. Connections end by a reset, from the side that called: none lingers on a port that a run
reserves a moment later.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seatrial.agent.answering.at_once import at_once, words_of
from seatrial.machine.patience import aside
from seatrial.ports import candidates, in_order

# A listener that nobody closes, since the doctor was killed, closes itself.
LIFE_S = 60.0
# A packet that a firewall drops is sent again after one second and after three: by then the answer is no.
REACH_LIMIT_S = 3.0
# How long a listener waits for the caller to hang up.
HANG_UP_S = 5.0
# For threads that let go of a port: it is free when the last of them has.
LET_GO_S = 1.0
LONGEST_TOKEN_BYTES = 512
RESET = struct.pack("ii", 1, 0)

Serve = Callable[[socket.socket, str], None]


def _wait_for_the_end(connected: socket.socket, word: str) -> None:
    connected.recv(1)


class Listeners:
    """Every port this process listens on for others to try. `serve` says what is done with a caller who has heard the token, given the
    `word` of the question; it returns when the caller has hung up."""

    def __init__(self, serve: Serve = _wait_for_the_end) -> None:
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._serve = serve

    def listen(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Say `token` to whoever connects, on `port`, else on the first free one from `base` on, else on any where `any` is true, else
        on one of Seatrial's own. Tells the port."""
        listening = _bound(_wanted(question))
        self._open.append(listening)
        token = str(question.get("token", "")).encode() + b"\n"
        serve = functools.partial(_tell, token=token, word=str(question.get("word", "")), serve=self._serve)
        self._begin(self._accept, listening, serve)
        return {"port": listening.getsockname()[1]}

    def close(self) -> None:
        for listening in self._open:
            # Wakes the thread that waits in accept, which a mere close does not.
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self._open.clear()
        until_m = time.monotonic() + LET_GO_S
        for thread in list(self._threads):
            thread.join(max(0.0, until_m - time.monotonic()))
        self._threads.clear()

    def _accept(self, listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        until_m = time.monotonic() + LIFE_S
        with contextlib.suppress(OSError, ValueError):
            while (left_s := until_m - time.monotonic()) > 0:
                listening.settimeout(left_s)
                connected, _ = listening.accept()
                self._begin(serve, connected)
        listening.close()

    def _begin(self, act: Callable[..., None], *given: Any) -> None:
        thread = threading.Thread(target=act, args=given, name="seatrial-listener", daemon=True)
        self._threads.append(thread)
        thread.start()


def _wanted(question: Mapping[str, Any]) -> Sequence[int]:
    port, base = question.get("port"), question.get("base")
    if isinstance(port, int):
        return [port]
    if question.get("any"):
        return [0]
    return in_order(base) if isinstance(base, int) else [*candidates(), 0]


def _bound(ports: Sequence[int]) -> socket.socket:
    refused: OSError | None = None
    for port in ports:
        try:
            return socket.create_server(("", port), backlog=256)
        except OSError as error:
            refused = error
    raise refused or OSError("no port to listen on")


def _tell(connected: socket.socket, token: bytes, word: str, serve: Serve) -> None:
    # Whatever a stranger says, the listener goes on.
    with contextlib.suppress(OSError, ValueError), connected:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connected.settimeout(HANG_UP_S)
        connected.sendall(token)
        serve(connected, word)


def reach(question: Mapping[str, Any]) -> dict[str, Any]:
    """`troubles` with those of `targets` (name → addresses, port, token) that cannot be reached, all tried at once; `at` with the address
    at which each of the others was."""
    limit_s = float(question.get("limit_s", REACH_LIMIT_S))
    targets = {str(name): target for name, target in question.get("targets", {}).items()}
    told = at_once({name: (_calling(target, limit_s), limit_s + 1.0) for name, target in targets.items()})
    return {
        "troubles": {name: found["trouble"] for name, found in told.items() if found.get("trouble")},
        "at": {name: found["at"] for name, found in told.items() if found.get("at")},
    }


def _calling(target: Mapping[str, Any], limit_s: float) -> Any:
    return lambda: _called(target, limit_s)


def _called(target: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    """All addresses at once; the first that answers is enough, and the others are not waited for."""
    addresses = list(dict.fromkeys(map(str, target.get("addresses", ()))))
    port, token = int(target["port"]), str(target.get("token", ""))
    told: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for address in addresses:
        aside(functools.partial(_tell_of, told, address, port, token, limit_s))
    troubles: dict[str, str] = {}
    until_m = time.monotonic() + limit_s + 0.5
    while len(troubles) < len(addresses):
        try:
            address, trouble = told.get(timeout=max(0.0, until_m - time.monotonic()))
        except queue.Empty:
            # A resolver that hangs: the connection's own limit is over by now.
            troubles |= {address: f"no answer within {limit_s:g} s" for address in addresses if address not in troubles}
            break
        if not trouble:
            return {"at": address}
        troubles[address] = trouble
    return {"trouble": "; ".join(f"{address}: {trouble}" for address, trouble in troubles.items()) or "no address is known"}


def _tell_of(told: queue.SimpleQueue[tuple[str, str]], address: str, port: int, token: str, limit_s: float) -> None:
    try:
        told.put((address, _try(address, port, token, limit_s)))
    except Exception as error:
        told.put((address, words_of(error)))


def _try(address: str, port: int, token: str, limit_s: float) -> str:
    until_m = time.monotonic() + limit_s
    try:
        with socket.create_connection((address, port), limit_s) as connected:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            heard = hear_line(connected, until_m)
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return words_of(error)
    return "" if heard == token.encode() + b"\n" else "somebody else answers there"


def hear_line(connected: socket.socket, until_m: float) -> bytes:
    """What comes until the end of a line, of the connection or of the patience (TimeoutError)."""
    heard = b""
    while not heard.endswith(b"\n") and len(heard) < LONGEST_TOKEN_BYTES:
        connected.settimeout(max(0.01, until_m - time.monotonic()))
        # Not a byte of what follows the line is taken.
        waiting = connected.recv(LONGEST_TOKEN_BYTES, socket.MSG_PEEK)
        if not waiting:
            break
        heard += connected.recv(waiting.find(b"\n") + 1 or len(waiting))
    return heard
