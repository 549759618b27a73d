"""A barrier between processes over TCP. In: the run folder, rank and world size. Out: `wait(step)` and `all_reduce_max(values)`, both
collective; a lost rank is an error, never a hang.

Rank 0 listens on a free port and writes its address and a secret to barrier.json; the others connect, send the secret and expect it back,
since a file left by an earlier run may name a port that is closed or another program's. Rank 0 listens on loopback, and on all addresses
only where other hosts must reach it at MASTER_ADDR.
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

from seatrial.core.files import write_private_json

LOOPBACK = "127.0.0.1"
CONNECT_S = 60.0
POLL_S = 0.005
# Handshake timeout, so that a silent client does not block the ranks.
HELLO_S = 10.0
# Timeout for a stuck peer; a dead one is noticed at once by its closed connection.
PEER_S = 600.0
STEP = struct.Struct("!q")
HELLO = struct.Struct("!i16s")


class PeerLost(RuntimeError):
    """A rank left the barrier before the run was over."""


class Barrier:
    """Use as a context manager around `join`; a no-op for a single rank."""

    def __init__(self, run_dir: Path, rank: int, world_size: int) -> None:
        self._file = run_dir / "barrier.json"
        self._rank, self._world_size, self._step = rank, world_size, 0
        self._peers: dict[int, socket.socket] = {}

    def __enter__(self) -> Barrier:
        return self

    def join(self) -> None:
        """Connect to the other ranks."""
        if self._world_size > 1:
            if self._rank == 0:
                self._gather()
            else:
                self._connect()

    def __exit__(self, *exception: object) -> None:
        for peer in self._peers.values():
            peer.close()

    def wait(self, step: int) -> None:
        """Return when every rank has reached this step."""
        self._step = step
        if self._rank == 0:
            for rank in self._peers:
                self._expect(rank, step)
        for rank in self._peers:
            self._send(rank, STEP.pack(step))
        if self._rank != 0:
            self._expect(0, step)

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        """Element-wise maximum over all ranks."""
        form = struct.Struct(f"!{len(values)}d")
        if self._rank != 0:
            self._send(0, form.pack(*values))
            return list(form.unpack(self._receive(0, form.size)))
        received = [form.unpack(self._receive(rank, form.size)) for rank in self._peers]
        largest = [max(column) for column in zip(values, *received, strict=True)]
        for rank in self._peers:
            self._send(rank, form.pack(*largest))
        return largest

    def _gather(self) -> None:
        secret = secrets.token_bytes(16)
        host = rendezvous_host(self._world_size, os.environ)
        with socket.create_server((LOOPBACK if host == LOOPBACK else "", 0), backlog=self._world_size) as server:
            server.settimeout(CONNECT_S)
            # Readable by this user only: the secret lets a process pose as a rank.
            write_private_json(self._file, {"host": host, "port": server.getsockname()[1], "secret": secret.hex()})
            while len(self._peers) < self._world_size - 1:
                self._accept(server, secret)
        self._file.unlink(missing_ok=True)

    def _accept(self, server: socket.socket, secret: bytes) -> None:
        try:
            peer, _ = server.accept()
        except TimeoutError:
            missing = sorted(set(range(1, self._world_size)) - set(self._peers))
            raise PeerLost(f"ranks {missing} did not reach the barrier within {CONNECT_S:.0f} s: were they started?") from None
        rank = _handshake(peer, secret)
        if rank is None:
            peer.close()
        else:
            _prepare(peer)
            self._peers[rank] = peer

    def _connect(self) -> None:
        deadline_m = time.monotonic() + CONNECT_S
        while time.monotonic() < deadline_m:
            peer = self._try_connect()
            if peer is not None:
                _prepare(peer)
                self._peers[0] = peer
                return
            time.sleep(POLL_S)
        raise PeerLost(f"rank 0 did not open the barrier within {CONNECT_S:.0f} s: was it started with this run folder?")

    def _try_connect(self) -> socket.socket | None:
        """The connection to rank 0; None while the file is missing, outdated, or names another program's port."""
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


def rendezvous_host(world_size: int, variables: Mapping[str, str]) -> str:
    """Loopback, unless the launcher's variables place ranks on other hosts."""
    is_spread = int(variables.get("LOCAL_WORLD_SIZE") or variables.get("LOCAL_SIZE") or world_size) < world_size
    return variables.get("MASTER_ADDR", LOOPBACK) if is_spread else LOOPBACK


def _handshake(peer: socket.socket, secret: bytes) -> int | None:
    """The rank of the peer; None without the right secret, after a timeout or a disconnect."""
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
