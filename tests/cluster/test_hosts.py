"""Each means of the test cluster does what it says, seen from inside the hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import state as registry
from tests.cluster.conftest import Build
from tests.cluster.hosts import Hosts, cluster
from tests.cluster.running import Started, processes_of
from tests.cluster.state import ClusterError

PATIENCE_S = 15.0
SILENCE_S = 1.5

LISTEN = """
import socket, sys, threading
def serve(port):
    server = socket.create_server(("0.0.0.0", port))
    server.listen()
    kept = []
    while True:
        kept.append(server.accept())
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
# Sleeping and waiting under a skewed clock take as long as under a right one.
CLOCKS = [
    sys.executable,
    "-c",
    "import threading, time; time.sleep(0.01); threading.Event().wait(0.01); print(time.time(), time.monotonic())",
]


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.02)


def listen(hosts: Hosts, host: str, *ports: int) -> Started:
    server = hosts.start(host, [sys.executable, "-c", LISTEN, *map(str, ports)])
    eventually(lambda: all(hosts.listens(host, port) for port in ports), f"{host} listens: {server.output}")
    return server


def connect(hosts: Hosts, source: str, to: str, port: int) -> str:
    return hosts.run(source, [sys.executable, "-c", CONNECT, to, str(port), str(SILENCE_S)], check=True).stdout.strip()


def ssh(hosts: Hosts, host: str, *command: str) -> subprocess.CompletedProcess[str]:
    return hosts.run("head", ["ssh", "-o", "ConnectTimeout=2", host, *command], timeout=30)


def held_connection(hosts: Hosts) -> Started:
    """From head to node2, open and quiet."""
    listen(hosts, "node2", 5000)
    held = hosts.start("head", [sys.executable, "-c", HOLD, "node2", "5000"])
    eventually(lambda: held.output == "connected\n", f"head is connected: {held.output}")
    return held


def hears_nothing(held: Started) -> bool:
    try:
        held.wait(timeout=SILENCE_S)
    except subprocess.TimeoutExpired:
        return held.output == "connected\n"
    return False


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
    eventually(lambda: hosts.processes("node1", "sleep 77") == [], f"gone: {hosts.commands('node1')}")


def test_signals_reach_the_process_inside(hosts: Hosts) -> None:
    script = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('ready', flush=True)\ntime.sleep(99)"
    started = hosts.start("node1", [sys.executable, "-c", script])
    eventually(lambda: started.output == "ready\n", "ready")
    assert started.pid is not None
    assert hosts.processes("node1", "time.sleep(99)") == [started.pid]
    started.signal(signal.SIGSTOP)
    eventually(lambda: hosts.run("node1", ["ps", "-o", "state=", str(started.pid)]).stdout.strip() == "T", "stopped")
    started.signal(signal.SIGCONT)
    started.signal(signal.SIGTERM)
    assert started.wait(timeout=PATIENCE_S) == 9


def stopped_command(hosts: Hosts, host: str) -> Started:
    started = hosts.start(host, ["sh", "-c", "kill -STOP $$; sleep 99"])
    eventually(lambda: hosts.run(host, ["ps", "-o", "state=", str(started.pid)]).stdout.strip() == "T", "stopped")
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
    eventually(lambda: hosts.processes("node2", "MARK=of-this-test") == [started.pid], "found")
    assert hosts.processes("node1") == []
    hosts.kill("node2", hosts.processes("node2")[0])
    assert started.wait(timeout=PATIENCE_S) == -signal.SIGKILL


def test_a_cut_link_is_silence_and_heals(hosts: Hosts) -> None:
    held = held_connection(hosts)
    hosts.cut("node2")
    assert hears_nothing(held)
    assert ssh(hosts, "node2", "true").returncode == 255
    assert ssh(hosts, "node1", "true").returncode == 0
    hosts.uncut("node2")
    eventually(lambda: ssh(hosts, "node2", "true").returncode == 0, "node2 is back")
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
    eventually(lambda: ssh(hosts, "node2", "hostname").stdout == "node2\n", "node2 is back")


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
        eventually(lambda: hosts.processes("node2", "cat") == [], "all is received")
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


def test_how_long_the_kernel_tries_can_be_chosen(build: Build) -> None:
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
    with cluster(2, tmp_path) as hosts:
        inits = [state.init for state in hosts.state.hosts.values()]
        theirs = {str(path.readlink()) for init in inits if init for path in Path(f"/proc/{init.pid}/ns").iterdir()}
        theirs -= {str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_cluster_does_not_outlive_its_owner(tmp_path: Path, number: int) -> None:
    words = [sys.executable, "-c", OWNER, str(tmp_path), "sleep", "99"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[2]) as owner:
        assert owner.stdout is not None
        cluster_id = owner.stdout.readline().strip()
        found = next(one for one in registry.living() if one.id == cluster_id)
        inits = [host.init for host in found.hosts.values()]
        assert all(init is not None and init.alive() for init in inits)
        os.kill(owner.pid, number)
        owner.wait(timeout=PATIENCE_S)
    eventually(lambda: not found.keeper.alive() and not any(init.alive() for init in inits if init), "all have ended")
    assert cluster_id not in [one.id for one in registry.living()]
    assert not (registry.REGISTRY / f"{cluster_id}.json").exists()


def test_what_outlived_its_owner_goes_when_the_next_is_built(tmp_path: Path) -> None:
    words = [sys.executable, "-c", OWNER, str(tmp_path), "sh", "-c", "kill -STOP $$; sleep 99"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as owner:
        assert owner.stdout is not None
        cluster_id = owner.stdout.readline().strip()
        found = next(one for one in registry.living() if one.id == cluster_id)
        eventually(lambda: "T" in states_of(found, "node1"), "the command has stopped")
        owner.kill()
    with cluster(0, tmp_path):
        assert not found.keeper.alive()
        assert cluster_id not in [one.id for one in registry.living()]


def states_of(found: registry.ClusterState, host: str) -> list[str]:
    return [Path(f"/proc/{seen.outer}/stat").read_text().rpartition(")")[2].split()[0] for seen in processes_of(found, host)]


def test_by_hand(tmp_path: Path) -> None:
    def do(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tests.cluster", *words]
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
