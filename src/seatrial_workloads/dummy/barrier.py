"""A barrier between real processes over TCP. In: the run folder, rank and world size. Out: `wait(step)`, which returns when every rank
has called it, and `largest(values)`, which all ranks must ask for too; a rank that is gone is an error, never a hang.

Rank 0 listens on a free port and writes address and a secret into barrier.json; the others connect to it, say the secret and wait to hear
it back: a file left by an earlier run names a port that nobody listens on, or somebody else. Rank 0 listens on loopback, and on every
address only where ranks of other hosts must reach it at MASTER_ADDR.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from seatrial.files import write_private_json

LOOPBACK = "127.0.0.1"
CONNECT_S = 60.0
POLL_S = 0.005
# As long as whoever connects may take to say who it is, so that a silent stranger does not keep the ranks out.
HELLO_S = 10.0
# As long as a stuck peer is waited for; a dead one is noticed at once by its closed connection.
PEER_S = 600.0
STEP = struct.Struct("!q")
HELLO = struct.Struct("!i16s")


class PeerLost(RuntimeError):
    """A rank left the barrier before the run was over."""


class Barrier:
    """Use as a context manager around `join`; a single rank waits for nobody."""

    def __init__(self, run_dir: Path, rank: int, world_size: int) -> None:
        self._file = run_dir / "barrier.json"
        self._rank = rank
        self._world_size = world_size
        self._step = 0
        self._peers: dict[int, socket.socket] = {}

    def __enter__(self) -> Barrier:
        return self

    def join(self) -> None:
        """Find the other ranks."""
        if self._world_size > 1:
            if self._rank == 0:
                self._gather()
            else:
                self._connect()

    def __exit__(self, *exception: object) -> None:
        for peer in self._peers.values():
            peer.close()

    def wait(self, step: int) -> None:
        """Return when every rank has come to this step."""
        self._step = step
        if self._rank == 0:
            for rank in self._peers:
                self._expect(rank, step)
        for rank in self._peers:
            self._send(rank, STEP.pack(step))
        if self._rank != 0:
            self._expect(0, step)

    def largest(self, values: Sequence[float]) -> list[float]:
        """Of each number, the largest that any rank gave."""
        form = struct.Struct(f"!{len(values)}d")
        if self._rank != 0:
            self._send(0, form.pack(*values))
            return list(form.unpack(self._receive(0, form.size)))
        given = [form.unpack(self._receive(rank, form.size)) for rank in self._peers]
        found = [max(column) for column in zip(values, *given, strict=True)]
        for rank in self._peers:
            self._send(rank, form.pack(*found))
        return found

    def _gather(self) -> None:
        secret = secrets.token_bytes(16)
        host = meeting_host(self._world_size, os.environ)
        with socket.create_server((LOOPBACK if host == LOOPBACK else "", 0), backlog=self._world_size) as server:
            server.settimeout(CONNECT_S)
            self._publish(host, server.getsockname()[1], secret)
            while len(self._peers) < self._world_size - 1:
                self._accept(server, secret)
        self._file.unlink(missing_ok=True)

    def _accept(self, server: socket.socket, secret: bytes) -> None:
        try:
            peer, _ = server.accept()
        except TimeoutError:
            missing = sorted(set(range(1, self._world_size)) - set(self._peers))
            raise PeerLost(f"ranks {missing} did not come to the barrier within {CONNECT_S:.0f} s: were they started?") from None
        rank = _welcomed(peer, secret)
        if rank is None:
            peer.close()
        else:
            _prepare(peer)
            self._peers[rank] = peer

    def _publish(self, host: str, port: int, secret: bytes) -> None:
        # For this user alone: whoever reads the secret can take the place of a rank.
        write_private_json(self._file, {"host": host, "port": port, "secret": secret.hex()})

    def _connect(self) -> None:
        give_up_m = time.monotonic() + CONNECT_S
        while time.monotonic() < give_up_m:
            peer = self._met()
            if peer is not None:
                _prepare(peer)
                self._peers[0] = peer
                return
            time.sleep(POLL_S)
        raise PeerLost(f"rank 0 did not open the barrier within {CONNECT_S:.0f} s: was it started with this run folder?")

    def _met(self) -> socket.socket | None:
        """The connection to rank 0; nothing while the file is missing, of an earlier run, or names somebody else's port."""
        try:
            address = json.loads(self._file.read_text())
            secret = bytes.fromhex(address["secret"])
            peer = socket.create_connection((address["host"], address["port"]), timeout=CONNECT_S)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        try:
            peer.sendall(HELLO.pack(self._rank, secret))
            if HELLO.unpack(_receive(peer, HELLO.size)) == (0, secret):
                return peer
        except OSError:
            pass
        peer.close()
        return None

    def _expect(self, rank: int, step: int) -> None:
        (theirs,) = STEP.unpack(self._receive(rank, STEP.size))
        if theirs != step:
            raise PeerLost(f"rank {rank} is at step {theirs} while rank {self._rank} is at step {step}")

    def _receive(self, rank: int, size: int) -> bytes:
        try:
            return _receive(self._peers[rank], size)
        except OSError as error:
            raise PeerLost(f"rank {rank} was lost at step {self._step}: {error}") from error

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self._peers[rank].sendall(data)
        except OSError as error:
            raise PeerLost(f"rank {rank} was lost at step {self._step}: {error}") from error


def meeting_host(world_size: int, variables: Mapping[str, str]) -> str:
    """Where ranks meet: loopback, unless the launcher says that not all of them are on this host."""
    is_spread = int(variables.get("LOCAL_WORLD_SIZE") or variables.get("LOCAL_SIZE") or world_size) < world_size
    return variables.get("MASTER_ADDR", LOOPBACK) if is_spread else LOOPBACK


def _welcomed(peer: socket.socket, secret: bytes) -> int | None:
    """The rank that has connected and was told so; nothing for one that does not know the secret, is silent or leaves."""
    peer.settimeout(HELLO_S)
    try:
        rank, given = HELLO.unpack(_receive(peer, HELLO.size))
        if not secrets.compare_digest(given, secret):
            return None
        peer.sendall(HELLO.pack(0, secret))
    except OSError:
        return None
    return int(rank)


def _prepare(peer: socket.socket) -> None:
    peer.settimeout(PEER_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionResetError("it closed its connection")
        data += more
    return data
