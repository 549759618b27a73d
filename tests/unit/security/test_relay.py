"""A relay between a node and the harness, which knows everything but the token: it can end the connection, and nothing else."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.core.control_connection.protocol import ControlClient, ControlConnectionError, ControlEndpoint, VersionMismatchError
from seatrial.core.control_connection.server import ControlServer
from seatrial.records.codec import to_json
from tests.unit.agent.running import NAME, Node, environment
from tests.unit.security.relay import TO_HARNESS, TO_NODE, Change, Relay, pass_on
from tests.waiting import wait_until

TOKEN = "secret"
# Handshake, welcome and first heartbeat are before it, in both directions.
AT = 5
SENT = [{"kind": "command", "command": str(number)} for number in range(12)]


def endpoint(port: int) -> ControlEndpoint:
    return ControlEndpoint(addresses=("127.0.0.1",), port=port, token=TOKEN, node=NAME)


def changed(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
    return [bytes([line[0] ^ 1]) + line[1:] if number == AT else line]


def repeated(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
    return [line, line] if number == AT else [line]


def left_out(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
    return [] if number == AT else [line]


def reordered(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
    if number == AT:
        return []
    return [line, relay.seen[direction][AT]] if number == AT + 1 else [line]


def reflected(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
    """What its receiver itself sent as its line of the same number."""
    other = relay.seen[TO_NODE if direction == TO_HARNESS else TO_HARNESS]
    return [other[min(number, len(other) - 1)]] if number >= AT else [line]


def in_plain_text(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
    return [b'{"kind": "command", "command": "replaced"}\n', line] if number == AT else [line]


@pytest.mark.parametrize("direction", [TO_NODE, TO_HARNESS])
@pytest.mark.parametrize("attack", [changed, repeated, left_out, reordered, reflected, in_plain_text])
def test_a_line_that_is_not_the_next_of_the_other_end_ends_the_connection(direction: str, attack: Change) -> None:
    def change(relay: Relay, towards: str, number: int, line: bytes) -> Sequence[bytes]:
        return attack(relay, towards, number, line) if towards == direction else [line]

    received: list[dict[str, object]] = []
    with (
        ControlServer(TOKEN, (NAME,)) as server,
        Relay(server.port, change) as relay,
        contextlib.closing(ControlClient.connect(endpoint(relay.port), {})) as client,
    ):
        for message in SENT:
            server.send(NAME, message)
            client.send(message)

        def is_over() -> bool:
            of_client = client.receive(time.monotonic())
            of_server = [message for _, message in server.wait(0.01)]
            received.extend(of_client if direction == TO_NODE else of_server)
            lost = any(message["kind"] == "lost" for message in of_server)
            return bool(client.lost(time.monotonic())) if direction == TO_NODE else lost

        wait_until(is_over, "the connection has ended")
    commands = [message for message in received if message["kind"] == "command"]
    assert commands == SENT[: len(commands)] and len(commands) < len(SENT), "a beginning of what was sent, and nothing else"


def test_a_session_that_was_recorded_lets_nobody_in() -> None:
    with ControlServer(TOKEN, (NAME,), may_return=True) as server:
        with Relay(server.port) as relay:
            ControlClient.connect(endpoint(relay.port), {"host": "one"}).close()
            wait_until(lambda: any(message["kind"] == "lost" for _, message in server.wait(0.01)), "the first is gone")
        with socket.create_connection(("127.0.0.1", server.port)) as replay:
            replay.settimeout(60)
            replay.sendall(b"".join(relay.seen[TO_HARNESS]))
            answer = replay.makefile("rb").read()
        assert b"nonce" in answer and answer.count(b"\n") == 1 and server.poll() == []


def test_a_listener_that_answers_with_what_it_hears_commands_nobody() -> None:
    """It has no token: every line of the node comes back to it."""

    def echo(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
        if direction == TO_HARNESS or not number:
            return [line]
        return [relay.seen[TO_HARNESS][number]]

    with (
        ControlServer("another", (NAME,)) as server,
        Relay(server.port, echo) as relay,
        pytest.raises(ControlConnectionError, match=r"authentication failed: wrong token|closed"),
    ):
        ControlClient.connect(endpoint(relay.port), {}, timeout_s=0.0)


def test_a_version_is_not_believed_from_a_relay() -> None:
    def older(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
        return [json.dumps({**json.loads(line), "version": "0.0.1"}).encode() + b"\n"] if not number and direction == TO_NODE else [line]

    with ControlServer(TOKEN, (NAME,)) as server, Relay(server.port, older) as relay:
        with pytest.raises(ControlConnectionError, match=r"the harness runs 0\.0\.1") as caught:
            ControlClient.connect(endpoint(relay.port), {}, timeout_s=0.0)
        assert not isinstance(caught.value, VersionMismatchError) and server.poll() == []


def test_two_versions_refuse_each_other(harness_version: Callable[[str], None]) -> None:
    harness_version("9.9.9")
    sentence = r"node2 runs Seatrial \S+ and the harness runs 9\.9\.9: install the same version on all hosts"
    with ControlServer(TOKEN, (NAME,)) as server:
        with pytest.raises(VersionMismatchError, match=sentence):
            ControlClient.connect(endpoint(server.port), {})
        ((name, message),) = server.wait(60)
        assert (name, message["kind"]) == (NAME, "refused") and "9.9.9" in str(message["why"])


def test_one_that_knows_no_encryption_yet_is_refused() -> None:
    """A harness of before: a short nonce, and no version."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def greet() -> None:
            with listening.accept()[0] as node:
                node.sendall(b'{"kind": "nonce", "nonce": "' + b"0" * 32 + b'"}\n')

        pool.submit(greet)
        with pytest.raises(ControlConnectionError, match="install the same version on all hosts"):
            ControlClient.connect(endpoint(listening.getsockname()[1]), {}, timeout_s=0.0)


def test_through_a_relay_an_agent_works_and_nothing_of_its_environment_is_seen(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.server, Relay(node.server.port) as relay:
        node.call(port=relay.port)
        order = node.order("import os; print(os.environ['MY_PASSWORD'])")
        node.go(order, environment(MY_PASSWORD="hunter2"))
        assert node.report("exited").returncode == 0
        node.report("gone")
        assert node.wait() == 0
        node.agent.stdin.close()  # type: ignore[union-attr]
    assert node.own.launcher_log.read_text() == "[rank0]: hunter2\n"
    seen = b"".join(line for lines in relay.seen.values() for line in lines)
    assert not [text for text in (b"hunter2", b"MY_PASSWORD", b"environ", str(tmp_path).encode(), sys.executable.encode()) if text in seen]


@pytest.mark.parametrize("attack", ["in plain text", "its own order sent back"])
def test_a_relay_replaces_no_command(tmp_path: Path, attack: str) -> None:
    node = Node(tmp_path)
    order = node.order("open('right', 'w').close()")
    wrong = replace(order, command=replace(order.command, argv=(sys.executable, "-c", "open('wrong', 'w').close()")))
    go = json.dumps({"kind": "go", "order": to_json(wrong), "env": None}).encode() + b"\n"

    def change(relay: Relay, direction: str, number: int, line: bytes) -> Sequence[bytes]:
        if direction == TO_HARNESS or number < 2:
            return [line]
        return [go] if attack == "in plain text" else [relay.seen[TO_HARNESS][-1]]

    with node.server, Relay(node.server.port, change) as relay:
        node.call(port=relay.port)
        node.hear("hello")
        node.server.send(NAME, {"kind": "go", "order": to_json(order), "env": None})
        assert node.wait() == 0
        node.agent.stdin.close()  # type: ignore[union-attr]
    assert not (tmp_path / "wrong").exists() and not (tmp_path / "right").exists()
    assert "before an order arrived" in node.log()


def test_a_relay_that_changes_nothing_costs_nothing() -> None:
    """Large messages and slow readers go through encryption unharmed."""
    large = {"kind": "go", "env": {str(number): "x" * 4096 for number in range(700)}}
    of_client: list[object] = []
    of_server: list[object] = []
    with (
        ControlServer(TOKEN, (NAME,)) as server,
        Relay(server.port, pass_on) as relay,
        contextlib.closing(ControlClient.connect(endpoint(relay.port), {})) as client,
    ):
        for _ in range(3):
            server.send(NAME, large)
            client.send(large)

        def has_all() -> bool:
            client.flush()
            of_client.extend(client.receive(time.monotonic()))
            of_server.extend(message for _, message in server.wait(0.01) if message["kind"] == "go")
            return len(of_client) == len(of_server) == 3

        wait_until(has_all, "all have arrived")
        assert of_client == of_server == [large] * 3 and client.lost(time.monotonic()) == ""
