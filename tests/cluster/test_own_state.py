"""What one host of the test cluster has to itself: clock, disks, programs, files, and a boot."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.cluster.hosts import Hosts
from tests.cluster.reaching import ssh
from tests.cluster.state import ClusterError

# Sleeping and waiting under a skewed clock take as long as under a right one.
CLOCKS = [
    sys.executable,
    "-c",
    "import threading, time; time.sleep(0.01); threading.Event().wait(0.01); print(time.time(), time.monotonic())",
]


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_skewed_clock_is_off_by_the_hour_and_the_monotonic_clock_is_not(hosts: Hosts, tmp_path: Path, seconds: int) -> None:
    hosts.skew("node2", seconds)
    here_wall, here_monotonic = time.time(), time.monotonic()
    for done in (ssh(hosts, "node2", *CLOCKS[:2], f'"{CLOCKS[2]}"'), hosts.run("node2", CLOCKS)):
        assert done.returncode == 0, done.stderr
        wall, monotonic = map(float, done.stdout.split())
        assert wall - here_wall == pytest.approx(seconds, abs=60)
        assert monotonic - here_monotonic == pytest.approx(0, abs=60)
    hosts.run("node2", ["sh", "-c", f"echo words > {tmp_path}/new"], check=True)
    assert (tmp_path / "new").stat().st_mtime == pytest.approx(here_wall, abs=60)
    assert float(ssh(hosts, "node1", "date", "+%s").stdout) == pytest.approx(here_wall, abs=60)
    hosts.skew("node2", 0)
    assert float(ssh(hosts, "node2", "date", "+%s").stdout) == pytest.approx(here_wall, abs=60)


def test_a_full_disk_has_no_room_on_one_host_only(hosts: Hosts, tmp_path: Path) -> None:
    shared = tmp_path / "out"
    hosts.disk("node2", shared, size="1m")
    assert hosts.run("node2", ["touch", shared / "first"]).returncode == 0
    assert not (shared / "first").exists()
    hosts.fill("node2", shared)
    full = ssh(hosts, "node2", f"echo words > {shared}/more")
    assert full.returncode != 0
    assert "No space left on device" in full.stderr
    hosts.run("node1", ["sh", "-c", f"echo words > {shared}/more"], check=True)
    hosts.unfill("node2", shared)
    hosts.run("node2", ["sh", "-c", f"echo words > {shared}/more"], check=True)
    with pytest.raises(ClusterError, match="no disk of node1's own"):
        hosts.fill("node1", shared)


def test_a_folder_that_is_not_shared_or_not_writable(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words").write_text("words")
    hosts.unshare("node1", tmp_path / "data")
    assert hosts.run("node1", ["ls", tmp_path / "data"]).stdout == ""
    hosts.read_only("node2", tmp_path / "data")
    assert "Read-only file system" in hosts.run("node2", ["touch", tmp_path / "data" / "more"]).stderr
    hosts.unmount("node1", tmp_path / "data")
    assert hosts.run("node1", ["ls", tmp_path / "data"]).stdout == "words\n"


def test_a_hidden_program_is_not_there(hosts: Hosts) -> None:
    for program in ("pdsh", "ssh", "rsync" if Path("/usr/bin/rsync").exists() else "scp"):
        hosts.hide("node2", program)
        assert hosts.run("node2", [program]).returncode == 127
        assert "not found" in ssh(hosts, "node2", program).stderr
        assert hosts.run("node1", ["sh", "-c", f"command -v {program}"]).returncode == 0
    assert hosts.run("node2", ["hostname"]).stdout == "node2\n"


def test_a_file_of_its_own(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "version").write_text("1.0")
    hosts.replace("node2", tmp_path / "version", "2.0")
    seen = {host: hosts.run(host, ["cat", tmp_path / "version"]).stdout for host in hosts.names}
    assert seen == {"head": "1.0", "node1": "1.0", "node2": "2.0"}


def test_a_booted_host_is_as_new(hosts: Hosts) -> None:
    hosts.skew("node2", 3600)
    hosts.hide("node2", "pdsh")
    hosts.resolve("node2", "node2", "127.0.1.1")
    hosts.poweroff("node2")
    hosts.boot("node2")
    assert float(ssh(hosts, "node2", "date", "+%s").stdout) == pytest.approx(time.time(), abs=60)
    assert ssh(hosts, "node2", "command", "-v", "pdsh").returncode == 0
    assert hosts.run("node2", ["getent", "ahostsv4", "node2"], check=True).stdout.split()[0] == hosts.address("node2")
