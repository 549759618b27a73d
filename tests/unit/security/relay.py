"""Somebody between a node and the harness: passes lines on, keeps what it saw, and may change it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

TO_NODE, TO_HARNESS = "to node", "to harness"
Change = Callable[["Relay", str, int, bytes], Sequence[bytes]]
"""(relay, direction, number of the line, line) → the lines to pass on instead of it."""


def pass_on(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
    return [line]


class Relay:
    """Listens at `port`; every connection to it leads to the harness at `harness_port`."""

    def __init__(self, harness_port: int, change: Change = pass_on) -> None:
        self._harness_port, self._change = harness_port, change
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.seen: dict[str, list[bytes]] = {TO_NODE: [], TO_HARNESS: []}
        self._open: list[socket.socket] = [self._listening]

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                node, _ = self._listening.accept()
                harness = socket.create_connection(("127.0.0.1", self._harness_port))
                self._open += [node, harness]
                for source, target, direction in ((node, harness, TO_HARNESS), (harness, node, TO_NODE)):
                    threading.Thread(target=self._pump, args=(source, target, direction), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        # ValueError: closed meanwhile.
        with contextlib.suppress(OSError, ValueError):
            for number, line in enumerate(source.makefile("rb")):
                self.seen[direction].append(line)
                target.sendall(b"".join(self._change(self, direction, number, line)))
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
