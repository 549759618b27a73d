"""Programs without the token that connect to the harness's port, and nodes that connect meanwhile.

`python unauthenticated_peers.py PORT PER_S SECONDS ADDRESS…` connects again and again. Connections are left open until the server closes
them, come from the addresses in turn, and send nothing, half of a handshake, or rubbish. Prints how many there were.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import select
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from seatrial.core.control_connection.protocol import ControlClient, ControlEndpoint
from seatrial.core.control_connection.server import ControlServer

# Half of them from the nodes' own address.
ADDRESSES = ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3")
PER_S = 500
GIVES_UP_S = 5.0
FIRST_S = 1.5
NODES = tuple(f"node{number}" for number in range(8))
HALF = b'{"kind": "introduction", "node": "node1", "nonce": "' + b"0" * 64 + b'", "version": "0.1.0"}\n'
MESSAGES = (b"", b"", HALF, b"", b"", b"GET / HTTP/1.1\r\n\r\n")


def let_in_under_flood(seconds: float) -> tuple[list[float], int]:
    """How long each of the nodes took, round after round while peers connect; and how many peers there were."""
    took_s: list[float] = []
    with ControlServer("secret", NODES, may_return=True) as server:
        argv = [sys.executable, __file__, str(server.port), str(PER_S), str(seconds), *ADDRESSES]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as peers, ThreadPoolExecutor(len(NODES)) as pool:
            assert peers.stdout is not None
            # They come first, and have filled whatever they can fill.
            server.wait(FIRST_S)
            while peers.poll() is None:
                with contextlib.ExitStack() as opened:
                    for elapsed_s, client in pool.map(lambda node: _connect(server.port, node), NODES):
                        took_s.append(elapsed_s)
                        opened.callback(client.close)
                    server.wait(0.5)
                _wait_for_losses(server)
            return took_s, int(peers.stdout.read())


def _connect(port: int, node: str) -> tuple[float, ControlClient]:
    began_m = time.monotonic()
    endpoint = ControlEndpoint(addresses=("127.0.0.1",), port=port, token="secret", node=node)
    client = ControlClient.connect(endpoint, {}, timeout_s=60.0)
    return time.monotonic() - began_m, client


def _wait_for_losses(server: ControlServer) -> None:
    """Until the server knows that every node has left, so that all may return."""
    until_m = time.monotonic() + 60.0
    while server.connected and time.monotonic() < until_m:
        server.wait(0.1)


class UnauthenticatedPeers:
    """Open connections, none of which waits for another."""

    def __init__(self, port: int) -> None:
        self._port, self._poll = port, select.poll()
        self._open: dict[int, tuple[socket.socket, bytes, float]] = {}

    def connect(self, address: str, saying: bytes) -> None:
        one = socket.socket()
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.bind((address, 0))
            one.connect_ex(("127.0.0.1", self._port))
        self._open[one.fileno()] = (one, saying, time.monotonic())
        self._poll.register(one, select.POLLIN | select.POLLOUT)

    def turn(self) -> None:
        """Say what there is to say; leave those that the server closed, or did not take for long."""
        for fd, events in self._poll.poll(1):
            one, saying, _ = self._open[fd]
            with contextlib.suppress(OSError):
                if events & select.POLLOUT:
                    self._poll.modify(fd, select.POLLIN)
                    one.sendall(saying)
                    continue
                if one.recv(4096):
                    continue
            self._leave(fd)
        for fd in [fd for fd, (_, _, since_m) in self._open.items() if time.monotonic() - since_m > GIVES_UP_S]:
            self._leave(fd)

    def _leave(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._open.pop(fd)[0].close()


def main(port: int, per_s: float, seconds: float, addresses: list[str]) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    began_m, made, peers = time.monotonic(), 0, UnauthenticatedPeers(port)
    turns = itertools.cycle(itertools.product(addresses, MESSAGES))
    while (elapsed_s := time.monotonic() - began_m) < seconds:
        while made < elapsed_s * per_s:
            peers.connect(*next(turns))
            made += 1
        peers.turn()
    print(made)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]))
