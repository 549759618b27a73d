"""Whether hosts can reach each other, and how fast: test ports with a token, transfers over them, ssh; and doing such things concurrently.

In: the doctor's queries as JSON objects. Out: JSON objects; `trouble` is what went wrong. A host listens, others connect and must receive
the token that only it knows. A listener closes by itself after LISTENER_LIFETIME_S. Connections end by a reset, from the side that
connected: none lingers on a port that a run reserves a moment later.

For a transfer the client sends `SECRET send SECONDS BYTES` or `SECRET take SECONDS BYTES` after the token. The doctor gives the secret to
both ends, so that no one else can make a host send. The receiver counts from the first bytes on, until the seconds or the bytes are used
up, so buffered data does not count and a slow link takes no longer than a fast one.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hmac
import os
import queue
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seatrial.core.launcher_options import CONNECT_S, ssh_command
from seatrial.core.ports import candidate_ports, ports_from
from seatrial.core.timeouts import start_detached

# A listener of a doctor that was killed closes itself.
LISTENER_LIFETIME_S = 60.0
# A packet that a firewall drops is resent after one and after three seconds; no answer by then means no.
CONNECT_TIMEOUT_S = 3.0
# How long a listener waits for the client to hang up.
HANG_UP_TIMEOUT_S = 5.0
# For threads that release a port: it is free when the last of them has.
RELEASE_TIMEOUT_S = 1.0
MAX_LINE_BYTES = 512
RESET = struct.pack("ii", 1, 0)
SSH_TIMEOUT_S = CONNECT_S + 2.0
# The most that a client can request.
MAX_TRANSFER_S, MAX_TRANSFER_BYTES = 1.0, 32 << 20
# For a connection, and for the first bytes on it.
TRANSFER_TIMEOUT_S = 2.0
CHUNK_BYTES = 128 << 10
SEND, TAKE = "send", "take"

Answer = dict[str, Any]
Function = Callable[[], Answer]


def run_concurrently(functions: Mapping[str, tuple[Function, float]]) -> dict[str, Answer]:
    """Name → its answer, or `{"trouble": why}`; each function comes with its timeout in seconds.

    A thread that hangs is left behind; see `has_hung_call`: the exit of the process must not wait for it.
    """
    began_m = time.monotonic()
    answers: dict[str, Answer] = {}
    threads = {name: start_detached(functools.partial(_run, name, function, answers)) for name, (function, _) in functions.items()}
    for name, (_, timeout_s) in functions.items():
        threads[name].join(max(0.0, began_m + timeout_s - time.monotonic()))
    # A copy: a late answer must not change one that is being written.
    found = dict(answers)
    return {name: found.get(name, {"trouble": f"no answer within {timeout_s:g} s"}) for name, (_, timeout_s) in functions.items()}


def _run(name: str, function: Function, answers: dict[str, Answer]) -> None:
    try:
        answers[name] = function()
    except Exception as error:
        answers[name] = {"trouble": describe_error(error)}


def describe_error(error: BaseException) -> str:
    """`Connection refused` of an OSError, the class and the message of anything else."""
    reason = getattr(error, "strerror", None)
    # Without the address that Python adds to some.
    return str(reason).partition(" (while ")[0] if reason else f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def try_ssh(query: Mapping[str, Any]) -> Answer:
    """Run `true` on `host` by ssh with the user's own `args`, without any prompt, as launchers do; `trouble` is ssh's error."""
    host, args = str(query["host"]), list(map(str, query.get("args", ())))
    argv = ssh_command(host, ["true"], args)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SSH_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return {"trouble": "ssh is not installed"}
    except subprocess.TimeoutExpired:
        return {"trouble": f"no session within {SSH_TIMEOUT_S:g} s"}
    errors = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
    return {} if done.returncode == 0 else {"trouble": errors[-1] if errors else f"ssh ended with {done.returncode}"}


class Listeners:
    """Every test port this process listens on."""

    def __init__(self) -> None:
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def listen(self, query: Mapping[str, Any]) -> Answer:
        """Send `token` to every client, on `port`, else on the first free one from `base` on, else on any where `any` is true, else on one
        of Seatrial's own. Returns the port."""
        listener = _bind(_candidate_ports(query))
        self._open.append(listener)
        token = str(query.get("token", "")).encode() + b"\n"
        self._start_thread(self._accept, listener, functools.partial(_serve_client, token=token, secret=str(query.get("word", ""))))
        return {"port": listener.getsockname()[1]}

    def close(self) -> None:
        for listener in self._open:
            # Wakes the thread that waits in accept, which close alone does not.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._open.clear()
        deadline_m = time.monotonic() + RELEASE_TIMEOUT_S
        for thread in list(self._threads):
            thread.join(max(0.0, deadline_m - time.monotonic()))
        self._threads.clear()

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        deadline_m = time.monotonic() + LISTENER_LIFETIME_S
        with contextlib.suppress(OSError, ValueError):
            while (left_s := deadline_m - time.monotonic()) > 0:
                listener.settimeout(left_s)
                client, _ = listener.accept()
                self._start_thread(serve, client)
        listener.close()

    def _start_thread(self, function: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments, name="seatrial-listener", daemon=True)
        self._threads.append(thread)
        thread.start()


def _candidate_ports(query: Mapping[str, Any]) -> Sequence[int]:
    port, base = query.get("port"), query.get("base")
    if isinstance(port, int):
        return [port]
    if query.get("any"):
        return [0]
    return ports_from(base) if isinstance(base, int) else [*candidate_ports(), 0]


def _bind(ports: Sequence[int]) -> socket.socket:
    refused: OSError | None = None
    for port in ports:
        try:
            return socket.create_server(("", port), backlog=256)
        except OSError as error:
            refused = error
    raise refused or OSError("no port to listen on")


def _serve_client(client: socket.socket, token: bytes, secret: str) -> None:
    # The listener continues whatever an unauthenticated peer sends.
    with contextlib.suppress(OSError, ValueError), client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.settimeout(HANG_UP_TIMEOUT_S)
        client.sendall(token)
        _serve_speed_test(client, secret)


def try_connections(query: Mapping[str, Any]) -> Answer:
    """`troubles` of those of `targets` (name → addresses, port, token) that cannot be reached, all tried concurrently; `at` with the
    address at which each of the others was."""
    timeout_s = float(query.get("limit_s", CONNECT_TIMEOUT_S))
    targets = {str(name): target for name, target in query.get("targets", {}).items()}
    functions = {name: (functools.partial(_try_target, target, timeout_s), timeout_s + 1.0) for name, target in targets.items()}
    answers = run_concurrently(functions)
    return {
        "troubles": {name: answer["trouble"] for name, answer in answers.items() if answer.get("trouble")},
        "at": {name: answer["at"] for name, answer in answers.items() if answer.get("at")},
    }


def _try_target(target: Mapping[str, Any], timeout_s: float) -> Answer:
    """All addresses concurrently; the first that answers is enough, and the others are not waited for."""
    addresses = list(dict.fromkeys(map(str, target.get("addresses", ()))))
    port, token = int(target["port"]), str(target.get("token", ""))
    results: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for address in addresses:
        start_detached(functools.partial(_try_address, results, address, port, token, timeout_s))
    errors: dict[str, str] = {}
    deadline_m = time.monotonic() + timeout_s + 0.5
    while len(errors) < len(addresses):
        try:
            address, error = results.get(timeout=max(0.0, deadline_m - time.monotonic()))
        except queue.Empty:
            # A resolver that hangs: the connection's own timeout is over by now.
            errors |= {address: f"no answer within {timeout_s:g} s" for address in addresses if address not in errors}
            break
        if not error:
            return {"at": address}
        errors[address] = error
    return {"trouble": "; ".join(f"{address}: {error}" for address, error in errors.items()) or "no address is known"}


def _try_address(results: queue.SimpleQueue[tuple[str, str]], address: str, port: int, token: str, timeout_s: float) -> None:
    """Puts the address and the error, which is empty where the right host answers."""
    problem = ""
    try:
        _connect(address, port, token, timeout_s).close()
    except TimeoutError:
        problem = f"no answer within {timeout_s:g} s"
    except Exception as error:
        problem = describe_error(error)
    results.put((address, problem))


def _connect(address: str, port: int, token: str, timeout_s: float) -> socket.socket:
    """A connection to the host that knows the token; OSError where there is none within the timeout."""
    deadline_m = time.monotonic() + timeout_s
    connection = socket.create_connection((address, port), timeout_s)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if receive_line(connection, deadline_m) != token.encode() + b"\n":
            raise ConnectionError(errno.EPROTO, "another program answers there")
    except BaseException:
        connection.close()
        raise
    return connection


def receive_line(connection: socket.socket, deadline_m: float) -> bytes:
    """What comes until the end of a line or of the connection; TimeoutError at the deadline."""
    received = b""
    while not received.endswith(b"\n") and len(received) < MAX_LINE_BYTES:
        connection.settimeout(max(0.01, deadline_m - time.monotonic()))
        # Not a byte after the line is consumed.
        waiting = connection.recv(MAX_LINE_BYTES, socket.MSG_PEEK)
        if not waiting:
            break
        received += connection.recv(waiting.find(b"\n") + 1 or len(waiting))
    return received


def _serve_speed_test(client: socket.socket, secret: str) -> None:
    """The listener's part after the token: transfer what a client that knows `secret` requests, then wait until it hangs up."""
    request = receive_line(client, time.monotonic() + TRANSFER_TIMEOUT_S).decode("utf-8", errors="replace").split()
    if len(request) != 4 or not secret or not hmac.compare_digest(request[0].encode(), secret.encode()):
        return
    seconds, size_bytes = min(float(request[2]), MAX_TRANSFER_S), min(int(request[3]), MAX_TRANSFER_BYTES)
    if request[1] == SEND:
        _send(client, seconds, size_bytes)
    elif request[1] == TAKE:
        client.sendall(f"{_measure_receive(client, seconds, size_bytes):.0f}\n".encode())
    deadline_m = time.monotonic() + TRANSFER_TIMEOUT_S
    with contextlib.suppress(OSError):
        while client.recv(CHUNK_BYTES) and time.monotonic() < deadline_m:
            pass


def measure_speed(query: Mapping[str, Any]) -> Answer:
    """Bytes per second `to` and `from` the target (addresses, port, token, word), one after the other, each for at most `seconds` and
    `bytes`."""
    seconds, size_bytes = min(float(query["seconds"]), MAX_TRANSFER_S), min(int(query["bytes"]), MAX_TRANSFER_BYTES)
    target = query["target"]
    with _connect_to_any(target) as connection:
        connection.sendall(f"{target['word']} {TAKE} {seconds} {size_bytes}\n".encode())
        _send(connection, seconds + TRANSFER_TIMEOUT_S, size_bytes)
        to = float(receive_line(connection, time.monotonic() + TRANSFER_TIMEOUT_S) or 0)
    with _connect_to_any(target) as connection:
        connection.sendall(f"{target['word']} {SEND} {seconds} {size_bytes}\n".encode())
        return {"to": to, "from": _measure_receive(connection, seconds, size_bytes)}


def _connect_to_any(target: Mapping[str, Any]) -> socket.socket:
    """Connect to the first address at which the right host answers."""
    errors = []
    for address in map(str, target.get("addresses", ())):
        try:
            connection = _connect(address, int(target["port"]), str(target["token"]), TRANSFER_TIMEOUT_S)
        except OSError as error:
            errors.append(f"{address}: {describe_error(error)}")
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    raise ConnectionError("; ".join(errors) or "no address is known")


def _send(connection: socket.socket, seconds: float, size_bytes: int) -> None:
    """Send until the seconds or the bytes are used up, or the other side sends something or hangs up."""
    # Random: a tunnel that compresses would be measured at its best.
    chunk, deadline_m = os.urandom(CHUNK_BYTES), time.monotonic() + seconds
    connection.setblocking(False)
    try:
        while size_bytes > 0 and (left_s := deadline_m - time.monotonic()) > 0:
            readable, writable, _ = select.select([connection], [connection], [], left_s)
            if readable:
                break
            if writable:
                size_bytes -= connection.send(chunk[:size_bytes])
    finally:
        connection.settimeout(TRANSFER_TIMEOUT_S)


def _measure_receive(connection: socket.socket, seconds: float, size_bytes: int) -> float:
    """Bytes per second that arrive, counted from after the first of them; 0 where none do."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    connection.settimeout(TRANSFER_TIMEOUT_S)
    first = connection.recv_into(buffer)
    began_m = now_m = time.monotonic()
    received = 0
    while first and first + received < size_bytes and now_m < began_m + seconds:
        connection.settimeout(max(0.001, began_m + seconds - now_m))
        try:
            part = connection.recv_into(buffer)
        except TimeoutError:
            part = -1
        now_m = time.monotonic()
        if part == 0:
            break
        received += max(0, part)
    connection.settimeout(TRANSFER_TIMEOUT_S)
    return received / (now_m - began_m) if received else first / max(seconds, now_m - began_m)
