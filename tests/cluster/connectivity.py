"""Whether one host reaches another, from inside the hosts: a listener, an open connection, a command over ssh."""

from __future__ import annotations

import subprocess
import sys

from tests.cluster.hosts import Hosts
from tests.cluster.running import Started
from tests.waiting import wait_until

# For a process to end.
TIMEOUT_S = 15.0
SILENCE_S = 1.5
LISTEN = """
import socket, sys, threading
def serve(port):
    server = socket.create_server(("0.0.0.0", port))
    server.listen()
    accepted = []
    while True:
        accepted.append(server.accept())
for port in sys.argv[1:]:
    threading.Thread(target=serve, args=(int(port),)).start()
"""
HOLD = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    print("connected", flush=True)
    try:
        connection.recv(1)
    except ConnectionError:
        pass
    print("closed", flush=True)
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
    print("open")
except ConnectionRefusedError:
    print("refused")
except TimeoutError:
    print("silent")
"""


def listen(hosts: Hosts, host: str, *ports: int) -> Started:
    server = hosts.start(host, [sys.executable, "-c", LISTEN, *map(str, ports)])
    wait_until(lambda: all(hosts.listens(host, port) for port in ports), f"{host} listens: {server.output}")
    return server


def connect(hosts: Hosts, source: str, to: str, port: int) -> str:
    return hosts.run(source, [sys.executable, "-c", CONNECT, to, str(port), str(SILENCE_S)], check=True).stdout.strip()


def ssh(hosts: Hosts, host: str, *command: str) -> subprocess.CompletedProcess[str]:
    return hosts.run("head", ["ssh", "-o", "ConnectTimeout=2", host, *command], timeout=30)


def held_connection(hosts: Hosts) -> Started:
    """From head to node2, open and idle."""
    listen(hosts, "node2", 5000)
    held = hosts.start("head", [sys.executable, "-c", HOLD, "node2", "5000"])
    wait_until(lambda: held.output == "connected\n", f"head is connected: {held.output}")
    return held


def is_silent(held: Started) -> bool:
    try:
        held.wait(timeout=SILENCE_S)
    except subprocess.TimeoutExpired:
        return held.output == "connected\n"
    return False
