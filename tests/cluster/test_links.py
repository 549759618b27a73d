"""Links between hosts of the test cluster: cut, slow, lossy, blocked, and refused by ssh."""

from __future__ import annotations

import signal
import time

import pytest

from tests.cluster.hosts import Hosts
from tests.cluster.reaching import PATIENCE_S, connect, hears_nothing, held_connection, listen, ssh
from tests.cluster.state import ClusterError
from tests.waiting import wait_until


def test_a_cut_link_is_silence_and_heals(hosts: Hosts) -> None:
    held = held_connection(hosts)
    hosts.cut("node2")
    assert hears_nothing(held)
    assert ssh(hosts, "node2", "true").returncode == 255
    assert ssh(hosts, "node1", "true").returncode == 0
    hosts.uncut("node2")
    wait_until(lambda: ssh(hosts, "node2", "true").returncode == 0, "node2 is back")
    assert held.running


def test_power_lost_is_silence_and_the_end_of_everything_there(hosts: Hosts) -> None:
    held = held_connection(hosts)
    there = hosts.start("node2", ["sleep", "99"])
    hosts.poweroff("node2")
    assert there.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert hosts.processes("node2") == []
    assert hears_nothing(held)
    with pytest.raises(ClusterError, match="host node2 is off"):
        hosts.run("node2", ["true"])
    hosts.boot("node2")
    wait_until(lambda: ssh(hosts, "node2", "hostname").stdout == "node2\n", "node2 is back")


def test_a_halt_closes_connections(hosts: Hosts) -> None:
    held = held_connection(hosts)
    hosts.halt("node2")
    assert held.wait(timeout=PATIENCE_S) == 0
    assert held.output == "connected\nclosed\n"
    hosts.boot("node2")
    assert ssh(hosts, "node2", "true").returncode == 0


def test_a_slow_link_moves_far_less(hosts: Hosts) -> None:
    def moved_bytes() -> int:
        send = "head -c 30000000 /dev/zero | timeout 2 ssh node2 'cat > /run/local/received'"
        hosts.run("head", ["bash", "-c", send])
        wait_until(lambda: hosts.processes("node2", "cat") == [], "all is received")
        return int(hosts.run("node2", ["stat", "-c", "%s", "/run/local/received"], check=True).stdout)

    fast = moved_bytes()
    hosts.slow("node2", rate="1mbit")
    slow = moved_bytes()
    hosts.unslow("node2")
    assert slow * 10 < fast
    assert slow * 10 < moved_bytes()


def test_delay_where_the_kernel_can(hosts: Hosts) -> None:
    try:
        hosts.delay("node2", delay_ms=300)
    except ClusterError as error:
        assert "netem" in str(error)
        pytest.skip("this kernel has no netem")
    before = time.monotonic()
    assert ssh(hosts, "node2", "true").returncode == 0
    # A key exchange goes back and forth more often than twice, at 600 ms each.
    assert time.monotonic() - before > 1.2


def test_lost_packets(hosts: Hosts) -> None:
    listen(hosts, "node2", 5000)
    hosts.lose("node2", percent=100)
    assert connect(hosts, "head", "node2", 5000) == "silent"
    hosts.unblock("node2")
    assert connect(hosts, "head", "node2", 5000) == "open"


@pytest.mark.parametrize(("silent", "seen"), [(False, "refused"), (True, "silent")])
def test_a_blocked_port_is_closed_to_others_while_others_are_open(hosts: Hosts, silent: bool, seen: str) -> None:
    listen(hosts, "node2", 5000, 5001)
    hosts.block_port("node2", 5000, silent=silent)
    assert connect(hosts, "head", "node2", 5000) == seen
    assert connect(hosts, "head", "node2", 5001) == "open"
    assert connect(hosts, "node2", "127.0.0.1", 5000) == "open"
    hosts.unblock("node2")
    assert connect(hosts, "head", "node2", 5000) == "open"


@pytest.mark.parametrize("connected", [True, False])
def test_a_second_interface(hosts: Hosts, connected: bool) -> None:
    addresses = {host: hosts.second_interface(host, connected=connected) for host in ("head", "node2")}
    assert addresses["node2"] != hosts.address("node2")
    assert addresses["node2"] in hosts.run("node2", ["ip", "-4", "address", "show", "eth1"], check=True).stdout
    listen(hosts, "node2", 5000)
    assert connect(hosts, "head", addresses["node2"], 5000) == ("open" if connected else "silent")


def test_a_name_means_what_it_is_set_to(hosts: Hosts) -> None:
    hosts.resolve("node2", "node2", "127.0.1.1")
    assert hosts.run("node2", ["getent", "ahostsv4", "node2"], check=True).stdout.split()[0] == "127.0.1.1"
    assert hosts.run("head", ["getent", "ahostsv4", "node2"], check=True).stdout.split()[0] == hosts.address("node2")
    hosts.resolve("node2", "node1", None)
    assert hosts.run("node2", ["getent", "ahostsv4", "node1"]).returncode == 2


@pytest.mark.parametrize(
    ("how", "words"),
    [("stopped", "Connection refused"), ("key", "Permission denied"), ("host_key", "Host key verification failed")],
)
def test_ssh_is_refused_and_allowed_again(hosts: Hosts, how: str, words: str) -> None:
    hosts.refuse_ssh("node2", how)
    refused = ssh(hosts, "node2", "true")
    assert refused.returncode == 255
    assert words in refused.stderr
    assert ssh(hosts, "node1", "true").returncode == 0
    hosts.allow_ssh("node2")
    assert ssh(hosts, "node2", "true").returncode == 0
