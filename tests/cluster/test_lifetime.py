"""A cluster lives as long as its owner, and nothing is left after it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import state as registry
from tests.cluster.conftest import Build
from tests.cluster.connectivity import TIMEOUT_S, ssh
from tests.cluster.hosts import cluster
from tests.cluster.running import processes_of
from tests.waiting import wait_until


def test_tcp_retries2_can_be_set(build: Build) -> None:
    seen = [build(nodes=0, tcp_retries2=chosen).run("head", ["sysctl", "-n", "net.ipv4.tcp_retries2"]).stdout for chosen in (None, 5)]
    assert seen == ["15\n", "5\n"]


def test_two_clusters_at_once_do_not_see_each_other(build: Build) -> None:
    one, other = build(nodes=1), build(nodes=1)
    assert one.address("node1") == other.address("node1")
    one.cut("node1")
    assert ssh(one, "node1", "true").returncode == 255
    assert ssh(other, "node1", "true").returncode == 0
    one.run("head", ["touch", "/run/local/of-one"], check=True)
    assert other.run("head", ["test", "-e", "/run/local/of-one"]).returncode == 1


def namespaces() -> set[str]:
    """Of every process on the machine."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/*"):
        try:
            found.add(str(path.readlink()))
        except OSError:
            continue
    return found


def own_mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def test_nothing_is_left_after_down(tmp_path: Path) -> None:
    mounts, links = own_mounts(), sorted(path.name for path in Path("/sys/class/net").iterdir())
    with contextlib.ExitStack() as held:
        with cluster(2, tmp_path) as hosts:
            inits = [state.init for state in hosts.state.hosts.values()]
            paths = [path for init in inits if init for path in Path(f"/proc/{init.pid}/ns").iterdir()]
            # While they are open, the kernel does not give their numbers to other namespaces, such as another worker's.
            for path in paths:
                held.enter_context(path.open("rb"))
            theirs = {str(path.readlink()) for path in paths} - {str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
            assert len(theirs) >= 15
            hosts.start("node1", ["sh", "-c", "trap '' TERM HUP; sleep 99 & setsid sleep 99 & wait"])
            hosts.disk("node1", tmp_path / "disk")
            hosts.hide("node2", "pdsh")
            hosts.poweroff("head")
            assert own_mounts() == mounts
        assert not theirs & namespaces()
    assert own_mounts() == mounts
    assert sorted(path.name for path in Path("/sys/class/net").iterdir()) == links
    assert hosts.state.id not in [found.id for found in registry.living()]
    assert not (registry.REGISTRY / f"{hosts.state.id}.json").exists()


def test_a_failing_test_takes_its_cluster_down(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), cluster(1, tmp_path) as hosts:
        raise RuntimeError
    assert not hosts.state.keeper.alive()


OWNER = """
import sys, time
from pathlib import Path
from tests.cluster.hosts import cluster
with cluster(1, Path(sys.argv[1])) as hosts:
    hosts.start("node1", sys.argv[2:])
    print(hosts.state.id, flush=True)
    time.sleep(99)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_cluster_does_not_outlive_its_owner(tmp_path: Path, number: int) -> None:
    argv = [sys.executable, "-c", OWNER, str(tmp_path), "sleep", "99"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[2]) as owner:
        assert owner.stdout is not None
        cluster_id = owner.stdout.readline().strip()
        found = next(one for one in registry.living() if one.id == cluster_id)
        inits = [host.init for host in found.hosts.values()]
        assert all(init is not None and init.alive() for init in inits)
        os.kill(owner.pid, number)
        owner.wait(timeout=TIMEOUT_S)
    wait_until(lambda: not found.keeper.alive() and not any(init.alive() for init in inits if init), "all have ended")
    assert cluster_id not in [one.id for one in registry.living()]
    assert not (registry.REGISTRY / f"{cluster_id}.json").exists()


def test_what_outlived_its_owner_is_ended_when_the_next_is_built(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OWNER, str(tmp_path), "sh", "-c", "kill -STOP $$; sleep 99"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as owner:
        assert owner.stdout is not None
        cluster_id = owner.stdout.readline().strip()
        found = next(one for one in registry.living() if one.id == cluster_id)
        wait_until(lambda: "T" in states_of(found, "node1"), "the command has stopped")
        owner.kill()
    with cluster(0, tmp_path):
        assert not found.keeper.alive()
        assert cluster_id not in [one.id for one in registry.living()]


def states_of(found: registry.ClusterState, host: str) -> list[str]:
    return [Path(f"/proc/{seen.outer}/stat").read_text().rpartition(")")[2].split()[0] for seen in processes_of(found, host)]


def test_by_hand(tmp_path: Path) -> None:
    def do(*verb: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tests.cluster", *verb]
        return subprocess.run(argv, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=False)

    built = do("up", "--nodes", "1", "--folder", str(tmp_path / "hosts"))
    assert built.returncode == 0, built.stderr
    chosen = ("--id", built.stdout.split("cluster ")[1].split()[0])
    try:
        assert do(*chosen, "exec", "head", "--", "ssh", "node1", "hostname").stdout == "node1\n"
        assert do(*chosen, "exec", "node1", "--", "sh", "-c", "exit 5").returncode == 5
        assert do(*chosen, "refuse-ssh", "node1").returncode == 0
        assert do(*chosen, "exec", "head", "--", "ssh", "node1", "true").returncode == 255
        assert do(*chosen, "skew", "node1", "3600").returncode == 0
        assert float(do(*chosen, "exec", "node1", "--", "date", "+%s").stdout) > time.time() + 3000
        assert do(*chosen, "poweroff", "node1").returncode == 0
        assert "host node1 is off" in do(*chosen, "exec", "node1", "--", "true").stderr
        assert f"{chosen[1]}  head (node1)" in do("list").stdout
        assert do(*chosen, "boot", "node1").returncode == 0
        assert do(*chosen, "exec", "head", "--", "ssh", "node1", "true").returncode == 0
    finally:
        assert do(*chosen, "down").returncode == 0
    assert chosen[1] not in do("list").stdout
    assert list((tmp_path / "hosts").iterdir()) == []
