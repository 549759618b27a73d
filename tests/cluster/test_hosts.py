"""Hosts of the test cluster: names, folders, commands and processes, seen from inside."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import Hosts
from tests.cluster.reaching import PATIENCE_S, ssh
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


def test_pdsh_reaches_all(hosts: Hosts) -> None:
    done = hosts.run("head", ["pdsh", "-S", "-R", "ssh", "-w", "node[1-2]", "hostname"], check=True)
    assert sorted(done.stdout.splitlines()) == ["node1: node1", "node2: node2"]


def test_no_packet_finds_a_way_out(hosts: Hosts) -> None:
    done = hosts.run("head", ["ip", "route", "get", "192.0.2.1"])
    assert done.returncode != 0
    assert "unreachable" in done.stderr


def test_a_home_of_their_own_and_no_other(hosts: Hosts) -> None:
    settings = hosts.run("head", ["ssh", "-G", "node1"], check=True).stdout
    assert f"{hosts.state.home}/.ssh/known_hosts" in hosts.run("head", ["sh", "-c", "echo ~root/.ssh/known_hosts"], check=True).stdout
    assert "batchmode yes" in settings
    assert "stricthostkeychecking true" in settings


def test_tmp_run_and_shared_memory_are_each_hosts_own_and_the_folder_is_shared(hosts: Hosts, tmp_path: Path) -> None:
    for folder in ("/tmp", "/run/local", "/dev/shm"):
        hosts.run("node1", ["touch", f"{folder}/left-by-node1"], check=True)
        assert hosts.run("node2", ["test", "-e", f"{folder}/left-by-node1"]).returncode == 1
        assert not Path(folder, "left-by-node1").exists()
    hosts.run("node1", ["touch", tmp_path / "for-all"], check=True)
    assert ssh(hosts, "node2", "test", "-e", str(tmp_path / "for-all")).returncode == 0


def test_exit_codes_are_true(hosts: Hosts) -> None:
    assert hosts.run("node1", ["sh", "-c", "exit 7"]).returncode == 7
    assert hosts.run("node1", ["sh", "-c", "kill -9 $$"]).returncode == -signal.SIGKILL
    assert hosts.run("node1", ["no-such-program"]).returncode == 127


def test_a_command_gets_what_it_is_given_and_nothing_of_ours(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_TESTS", "1")
    shown = 'echo "$GIVEN,$OF_THE_TESTS"; pwd; cat'
    done = hosts.run("node1", ["sh", "-c", shown], env={"GIVEN": "x y"}, cwd=tmp_path.parent, input="words")
    assert done.stdout == f"x y,\n{tmp_path.parent}\nwords"


def test_a_command_out_of_time_is_killed_inside_with_all_it_started(hosts: Hosts) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        hosts.run("node1", ["sh", "-c", "echo begun; sleep 77 & sleep 77"], timeout=0.5)
    assert caught.value.output == "begun\n"
    wait_until(lambda: hosts.processes("node1", "sleep 77") == [], f"gone: {hosts.commands('node1')}")


def test_signals_reach_the_process_inside(hosts: Hosts) -> None:
    script = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('ready', flush=True)\ntime.sleep(99)"
    started = hosts.start("node1", [sys.executable, "-c", script])
    wait_until(lambda: started.output == "ready\n", "ready")
    assert started.pid is not None
    assert hosts.processes("node1", "time.sleep(99)") == [started.pid]
    started.signal(signal.SIGSTOP)
    wait_until(lambda: hosts.run("node1", ["ps", "-o", "state=", str(started.pid)]).stdout.strip() == "T", "stopped")
    started.signal(signal.SIGCONT)
    started.signal(signal.SIGTERM)
    assert started.wait(timeout=PATIENCE_S) == 9


def stopped_command(hosts: Hosts, host: str) -> Started:
    started = hosts.start(host, ["sh", "-c", "kill -STOP $$; sleep 99"])
    wait_until(lambda: hosts.run(host, ["ps", "-o", "state=", str(started.pid)]).stdout.strip() == "T", "stopped")
    return started


def test_a_stopped_command_is_killed_and_holds_nothing_up(hosts: Hosts) -> None:
    killed, off, left = (stopped_command(hosts, host) for host in ("node1", "node2", "node1"))
    killed.kill()
    assert not killed.running
    hosts.poweroff("node2")
    assert off.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert hosts.processes("node1") == [left.pid]
    hosts.down()
    assert left.wait(timeout=PATIENCE_S) == -signal.SIGKILL


def test_processes_are_found_by_environment_and_killed_by_number(hosts: Hosts) -> None:
    started = hosts.start("node2", ["sleep", "99"], env={"MARK": "of-this-test"})
    wait_until(lambda: hosts.processes("node2", "MARK=of-this-test") == [started.pid], "found")
    assert hosts.processes("node1") == []
    hosts.kill("node2", hosts.processes("node2")[0])
    assert started.wait(timeout=PATIENCE_S) == -signal.SIGKILL
