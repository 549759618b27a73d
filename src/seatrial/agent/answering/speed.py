"""How fast a link is: bytes sent over a connection to another host's trial port, counted by whoever receives them.

After the token (`answering.sockets`) the caller says `WORD send SECONDS BYTES` or `WORD take SECONDS BYTES`, where WORD is known only to
those who were asked by the doctor: nobody else can make a host send. The receiver counts from the first bytes on, until the seconds or
the bytes are over, so what waits in buffers counts for nothing and a slow link takes no longer than a fast one. The caller ends each
connection by a reset, which throws away what is still on its way.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import select
import socket
import time
from collections.abc import Mapping
from typing import Any

from seatrial.agent.answering.at_once import words_of
from seatrial.agent.answering.sockets import RESET, hear_line

# The most that a caller can ask for, whatever it says.
MOST_S, MOST_BYTES = 1.0, 32 << 20
# For a connection, and for the first bytes on it.
PATIENCE_S = 2.0
CHUNK_BYTES = 128 << 10
SEND, TAKE = "send", "take"


def serve(connected: socket.socket, word: str) -> None:
    """The listener's part, once the token is said: do as a caller who knows `word` asks, then wait until it hangs up."""
    asked = hear_line(connected, time.monotonic() + PATIENCE_S).decode("utf-8", errors="replace").split()
    if len(asked) != 4 or not word or not hmac.compare_digest(asked[0].encode(), word.encode()):
        return
    seconds, size = min(float(asked[2]), MOST_S), min(int(asked[3]), MOST_BYTES)
    if asked[1] == SEND:
        _send(connected, seconds, size)
    elif asked[1] == TAKE:
        connected.sendall(f"{_rate(connected, seconds, size):.0f}\n".encode())
    _until_hung_up(connected)


def speed(question: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes per second `to` and `from` the target (addresses, port, token, word), one way after the other, each for at most `seconds`
    and `bytes`."""
    seconds, size = min(float(question["seconds"]), MOST_S), min(int(question["bytes"]), MOST_BYTES)
    target = question["target"]
    return {"to": _sent(target, seconds, size), "from": _taken(target, seconds, size)}


def _sent(target: Mapping[str, Any], seconds: float, size: int) -> float:
    with _connected(target) as connected:
        connected.sendall(f"{target['word']} {TAKE} {seconds} {size}\n".encode())
        _send(connected, seconds + PATIENCE_S, size)
        return float(hear_line(connected, time.monotonic() + PATIENCE_S) or 0)


def _taken(target: Mapping[str, Any], seconds: float, size: int) -> float:
    with _connected(target) as connected:
        connected.sendall(f"{target['word']} {SEND} {seconds} {size}\n".encode())
        return _rate(connected, seconds, size)


def _connected(target: Mapping[str, Any]) -> socket.socket:
    """To the first address behind which the right one answers."""
    troubles = []
    for address in map(str, target.get("addresses", ())):
        try:
            connected = socket.create_connection((address, int(target["port"])), PATIENCE_S)
        except OSError as error:
            troubles.append(f"{address}: {words_of(error)}")
            continue
        try:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hear_line(connected, time.monotonic() + PATIENCE_S) == f"{target['token']}\n".encode():
                return connected
            troubles.append(f"{address}: somebody else answers there")
        except OSError as error:
            troubles.append(f"{address}: {words_of(error)}")
        connected.close()
    raise ConnectionError("; ".join(troubles) or "no address is known")


def _send(connected: socket.socket, seconds: float, size: int) -> None:
    """Until the seconds or the bytes are over, or the other side says something or hangs up."""
    # Not all alike: a tunnel that compresses would be measured at its best.
    chunk, until_m = os.urandom(CHUNK_BYTES), time.monotonic() + seconds
    connected.setblocking(False)
    try:
        while size > 0 and (left_s := until_m - time.monotonic()) > 0:
            heard, can_send, _ = select.select([connected], [connected], [], left_s)
            if heard:
                break
            if can_send:
                size -= connected.send(chunk[:size])
    finally:
        connected.settimeout(PATIENCE_S)


def _rate(connected: socket.socket, seconds: float, size: int) -> float:
    """Bytes per second that come in, counted from behind the first of them; 0 where none come."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    connected.settimeout(PATIENCE_S)
    first = connected.recv_into(buffer)
    began_m = now_m = time.monotonic()
    taken = 0
    while first and first + taken < size and now_m < began_m + seconds:
        connected.settimeout(max(0.001, began_m + seconds - now_m))
        try:
            part = connected.recv_into(buffer)
        except TimeoutError:
            part = -1
        now_m = time.monotonic()
        if part == 0:
            break
        taken += max(0, part)
    connected.settimeout(PATIENCE_S)
    return taken / (now_m - began_m) if taken else first / max(seconds, now_m - began_m)


def _until_hung_up(connected: socket.socket) -> None:
    until_m = time.monotonic() + PATIENCE_S
    with contextlib.suppress(OSError):
        while connected.recv(CHUNK_BYTES) and time.monotonic() < until_m:
            pass
