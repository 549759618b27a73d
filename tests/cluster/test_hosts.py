"""Hosts of the test cluster from inside: names, folders, commands, processes, clocks."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.connectivity import TIMEOUT_S, ssh
from tests.cluster.hosts import Hosts
from tests.cluster.running import Started
from tests.waiting import wait_until


def test_hosts_have_names_addresses_and_ssh_to_each_other_and_to_themselves(hosts: Hosts) -> None:
    for source in hosts.names:
        for host in hosts.names:
            done = hosts.run(source, ["ssh", host, "hostname"])
            assert (done.returncode, done.stdout) == (0, f"{host}\n"), done.stderr
    addresses = hosts.run("node2", ["ip", "-4", "-brief", "address", "show", "eth0"], check=True).stdout
    assert f"{hosts.address('node2')}/16" in addresses
    assert hosts.run("node1", ["ls", "/sys/class/net"], check=True).stdout.split() == ["eth0", "lo"]


def test_no_packet_leaves_the_machine(hosts: Hosts) -> None:
    done = hosts.run("head", ["ip", "route", "get", "192.0.2.1"])
    assert done.returncode != 0
    assert "unreachable" in done.stderr


def test_tmp_run_and_shared_memory_are_each_hosts_own_and_the_folder_is_shared(hosts: Hosts, tmp_path: Path) -> None:
    for folder in ("/tmp", "/run/local", "/dev/shm"):
        hosts.run("node1", ["touch", f"{folder}/left-by-node1"], check=True)
        assert hosts.run("node2", ["test", "-e", f"{folder}/left-by-node1"]).returncode == 1
        assert not Path(folder, "left-by-node1").exists()
    hosts.run("node1", ["touch", tmp_path / "for-all"], check=True)
    assert ssh(hosts, "node2", "test", "-e", str(tmp_path / "for-all")).returncode == 0


def test_a_command_is_killed_with_its_children_at_the_timeout(hosts: Hosts) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        hosts.run("node1", ["sh", "-c", "echo begun; sleep 77 & sleep 77"], timeout=0.5)
    assert caught.value.output == "begun\n"
    wait_until(lambda: hosts.processes("node1", "sleep 77") == [], f"gone: {hosts.commands('node1')}")


def stopped_command(hosts: Hosts, host: str) -> Started:
    started = hosts.start(host, ["sh", "-c", "kill -STOP $$; sleep 99"])
    wait_until(lambda: hosts.run(host, ["ps", "-o", "state=", str(started.pid)]).stdout.strip() == "T", "stopped")
    return started


def test_a_stopped_command_can_be_killed(hosts: Hosts) -> None:
    killed, off, left = (stopped_command(hosts, host) for host in ("node1", "node2", "node1"))
    killed.kill()
    assert not killed.running
    hosts.poweroff("node2")
    assert off.wait(timeout=TIMEOUT_S) == -signal.SIGKILL
    assert hosts.processes("node1") == [left.pid]
    hosts.down()
    assert left.wait(timeout=TIMEOUT_S) == -signal.SIGKILL


# Sleeping and waiting under a skewed clock must work.
CLOCKS = [
    sys.executable,
    "-c",
    "import threading, time; time.sleep(0.01); threading.Event().wait(0.01); print(time.time(), time.monotonic())",
]


def test_a_skewed_clock_is_off_by_the_hour_and_the_monotonic_clock_is_not(hosts: Hosts, tmp_path: Path) -> None:
    seconds = -3600
    hosts.skew("node2", seconds)
    here_wall, here_monotonic = time.time(), time.monotonic()
    for done in (ssh(hosts, "node2", *CLOCKS[:2], f'"{CLOCKS[2]}"'), hosts.run("node2", CLOCKS)):
        assert done.returncode == 0, done.stderr
        wall, monotonic = map(float, done.stdout.split())
        assert wall - here_wall == pytest.approx(seconds, abs=60)
        assert monotonic - here_monotonic == pytest.approx(0, abs=60)
    hosts.run("node2", ["sh", "-c", f"echo text > {tmp_path}/new"], check=True)
    assert (tmp_path / "new").stat().st_mtime == pytest.approx(here_wall, abs=60)
    assert float(ssh(hosts, "node1", "date", "+%s").stdout) == pytest.approx(here_wall, abs=60)
    hosts.skew("node2", 0)
    assert float(ssh(hosts, "node2", "date", "+%s").stdout) == pytest.approx(here_wall, abs=60)


def test_a_folder_that_is_not_shared_or_not_writable(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("text")
    hosts.unshare("node1", tmp_path / "data")
    assert hosts.run("node1", ["ls", tmp_path / "data"]).stdout == ""
    hosts.read_only("node2", tmp_path / "data")
    assert "Read-only file system" in hosts.run("node2", ["touch", tmp_path / "data" / "more"]).stderr
    hosts.unmount("node1", tmp_path / "data")
    assert hosts.run("node1", ["ls", tmp_path / "data"]).stdout == "file\n"


def test_a_booted_host_is_as_new(hosts: Hosts) -> None:
    hosts.skew("node2", 3600)
    hosts.hide("node2", "pdsh")
    hosts.resolve("node2", "node2", "127.0.1.1")
    hosts.poweroff("node2")
    hosts.boot("node2")
    assert float(ssh(hosts, "node2", "date", "+%s").stdout) == pytest.approx(time.time(), abs=60)
    assert ssh(hosts, "node2", "command", "-v", "pdsh").returncode == 0
    assert hosts.run("node2", ["getent", "ahostsv4", "node2"], check=True).stdout.split()[0] == hosts.address("node2")
