"""Links between hosts of the test cluster. What test_host_faults.py and test_host_checks.py need of them is shown there."""

from __future__ import annotations

import time

import pytest

from tests.cluster.connectivity import TIMEOUT_S, connect, held_connection, is_silent, listen, ssh
from tests.cluster.hosts import Hosts
from tests.cluster.state import ClusterError
from tests.waiting import wait_until


def test_a_cut_link_is_silent_and_a_halted_host_closes_connections(hosts: Hosts) -> None:
    held = held_connection(hosts)
    hosts.cut("node2")
    assert is_silent(held)
    assert ssh(hosts, "node2", "true").returncode == 255
    hosts.uncut("node2")
    wait_until(lambda: ssh(hosts, "node2", "true").returncode == 0, "node2 is reachable again")
    hosts.halt("node2")
    assert held.wait(timeout=TIMEOUT_S) == 0
    assert held.output == "connected\nclosed\n"


def test_delay_where_the_kernel_can(hosts: Hosts) -> None:
    try:
        hosts.delay("node2", delay_ms=300)
    except ClusterError as error:
        assert "netem" in str(error)
        pytest.skip("this kernel has no netem")
    before_m = time.monotonic()
    assert ssh(hosts, "node2", "true").returncode == 0
    # A key exchange takes more than two round trips of 600 ms each.
    assert time.monotonic() - before_m > 1.2


def test_lost_packets_and_refused_connections_until_unblocked(hosts: Hosts) -> None:
    listen(hosts, "node2", 5000, 5001)
    hosts.lose("node2", percent=100)
    assert connect(hosts, "head", "node2", 5000) == "silent"
    hosts.unblock("node2")
    hosts.block_port("node2", 5000)
    assert [connect(hosts, "head", "node2", port) for port in (5000, 5001)] == ["refused", "open"]
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


@pytest.mark.parametrize(
    ("how", "error"),
    [("stopped", "Connection refused"), ("key", "Permission denied"), ("host_key", "Host key verification failed")],
)
def test_ssh_is_refused_and_allowed_again(hosts: Hosts, how: str, error: str) -> None:
    hosts.refuse_ssh("node2", how)
    refused = ssh(hosts, "node2", "true")
    assert refused.returncode == 255 and error in refused.stderr
    assert ssh(hosts, "node1", "true").returncode == 0
    hosts.allow_ssh("node2")
    assert ssh(hosts, "node2", "true").returncode == 0
