"""Taking hosts: real agents, all of them on this machine, which is called by two of its names."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.core.control_connection.protocol import ControlClient, ControlEndpoint, VersionMismatchError
from seatrial.core.control_connection.server import ControlServer
from seatrial.core.errors import HostError, LaunchError, StoppedError
from seatrial.core.files import read_json
from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import AttemptPaths
from seatrial.core.ports import reserve_port
from seatrial.launch.agents import AgentProcess
from seatrial.launch.places import allocate
from seatrial.launch.places.allocation import nodes_of
from seatrial.launch.places.hosts import AllocatedHosts, agent_endpoints, agent_start_argv, wait_for_agents
from seatrial.launch.prepare import prepare_attempt
from seatrial.launch.transports import Exit, describe_exit
from seatrial.launch.transports.choice import LocalTransport
from seatrial.records.codec import from_json
from seatrial.records.launch import AgentEndpoint
from seatrial.records.plan import PlaceSpec, RunSpec
from tests.processes import is_gone, own_children, pids_in
from tests.unit.launch.factory import FakeStarter, attempt_in, hosts_allocation, make_spec, on_hosts, until_over
from tests.waiting import wait_until

HERE = (HostSpec(name="localhost", ranks=2), HostSpec(name="127.0.0.1", ranks=1))
PRINTS = "import os\nprint(os.environ['RANK'], os.environ['LOCAL_RANK'], os.environ['WORLD_SIZE'], os.environ['MASTER_PORT'])\n"
SLEEPS = "import os, time\nopen('pids', 'a').write(f'{os.getpid()}\\n')\ntime.sleep(600)\n"


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    attempt = attempt_in(tmp_path)
    attempt.folder.mkdir(parents=True)
    return attempt


def _spec(tmp_path: Path, text: str, **more: object) -> RunSpec:
    (tmp_path / "train.py").write_text(text)
    return on_hosts(make_spec(tmp_path, term_s=2.0), HERE, **more)


def test_a_run_on_two_hosts(tmp_path: Path, attempt: AttemptPaths) -> None:
    spec = _spec(tmp_path, PRINTS)
    with allocate(spec, attempt) as allocated:
        call = from_json(AgentEndpoint, read_json(attempt.node("localhost").call))
        mode = stat.S_IMODE(attempt.node("localhost").call.stat().st_mode)
        agents = allocated.start(prepare_attempt(spec, attempt, allocated.allocation, os.environ))
        reports = until_over(agents)
        agents.close()
        records = agents.nodes()
    assert (mode, call.holds_port, call.attempt, call.campaign) == (0o600, True, str(attempt.folder), str(tmp_path / "out"))
    assert not from_json(AgentEndpoint, read_json(attempt.node("127.0.0.1").call)).holds_port
    assert [(report.kind, report.returncode) for report in reports if report.kind != "started"] == [("exited", 0), ("gone", None)]
    assert (allocated.via, allocated.allocation.master_addr, allocated.allocation.ranks) == ("here", "127.0.0.1", 3)
    port = allocated.allocation.master_port
    assert (attempt.rank_logs / "rank1.log").read_text() == f"1 1 3 {port}\n"
    assert f"2 0 3 {port}" in attempt.node("127.0.0.1").launcher_log.read_text()
    assert [(record.name, record.first_rank, record.returncode, record.ended) for record in records] == [
        ("localhost", 0, 0, "exited"),
        ("127.0.0.1", 2, 0, "exited"),
    ]


STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPS}"


def test_what_a_killed_agent_leaves_is_ended_when_no_other_node_lives_on_its_host(
    tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.launch.agent_group.FAILED_GRACE_S", 0.1)
    spec = _spec(tmp_path, STUBBORN)
    with allocate(spec, attempt) as allocated:
        agents = allocated.start(prepare_attempt(spec, attempt, allocated.allocation, os.environ))
        wait_until(lambda: len(pids_in(tmp_path / "pids")) == 3, "all ranks are up")
        call = str(attempt.node("127.0.0.1").call)
        (agent,) = [child for child in own_children() if call in child.cmdline()]
        agent.kill()
        reports = until_over(agents)
        agents.close()
    assert [(report.kind, report.host) for report in reports if report.kind == "node_lost"] == [("node_lost", "127.0.0.1")]
    first, second = agents.nodes()
    assert (first.ended, first.returncode, first.killed) == ("exited", -9, 2), "it was stopped in order, and nobody else ended it"
    assert (second.ended, second.killed) == ("lost", 1) and "killed 1 process still running there" in second.detail
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))


def test_leaving_the_block_ends_everything(tmp_path: Path, attempt: AttemptPaths) -> None:
    spec = _spec(tmp_path, SLEEPS)
    with allocate(spec, attempt) as allocated:
        allocated.start(prepare_attempt(spec, attempt, allocated.allocation, os.environ))
        wait_until(lambda: len(pids_in(tmp_path / "pids")) == 3, "all ranks are up")
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))


def test_agents_that_never_get_an_order_end_by_themselves(tmp_path: Path, attempt: AttemptPaths) -> None:
    with pytest.raises(ZeroDivisionError), allocate(_spec(tmp_path, ""), attempt):
        raise ZeroDivisionError
    assert "closed" in attempt.node("localhost").agent_log.read_text() or "ended" in attempt.node("localhost").agent_log.read_text()


def test_a_host_whose_interpreter_lacks_seatrial_is_named(tmp_path: Path, attempt: AttemptPaths) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'python: No module named seatrial' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(HostError) as caught, allocate(_spec(tmp_path, "", python=str(fake)), attempt):
        pass
    assert (caught.value.host, caught.value.cause) == ("localhost", "import_error")
    for text in ("the agent ended with exit code 1", "No module named seatrial", "install Seatrial on localhost", "127.0.0.1"):
        assert text in str(caught.value)


def test_a_port_that_another_holds_is_reported_by_the_host(tmp_path: Path, attempt: AttemptPaths) -> None:
    with reserve_port() as other, pytest.raises(HostError) as caught, allocate(_spec(tmp_path, "", port=other.port), attempt):
        pass
    assert (caught.value.host, caught.value.cause) == ("localhost", "port_in_use")
    assert f"port {other.port} is in use" in str(caught.value)


def test_the_user_may_stop_while_hosts_are_started(tmp_path: Path, attempt: AttemptPaths) -> None:
    with pytest.raises(StoppedError, match="nothing was run"), allocate(_spec(tmp_path, ""), attempt, should_stop=lambda: True):
        pass


def test_on_this_machine_it_is_one_agent_as_ever(tmp_path: Path, attempt: AttemptPaths) -> None:
    (tmp_path / "train.py").write_text("print('well')\n")
    spec = make_spec(tmp_path)
    with allocate(spec, attempt) as allocated:
        agents = allocated.start(prepare_attempt(spec, attempt, allocated.allocation, os.environ))
        assert isinstance(agents, AgentProcess) and agents.nodes() == ()
        until_over(agents)
        agents.close()
    assert attempt.launcher_log.read_text() == "well\n"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (PlaceSpec(kind="slurmm"), "unknown place 'slurmm'"),
        (PlaceSpec(kind="hostfile", hostfile="/gone"), "no host given"),
        (PlaceSpec(kind="pernode", nodes=2, ranks=2), "needs the command on every node"),
    ],
)
def test_places_that_cannot_be_taken(tmp_path: Path, attempt: AttemptPaths, place: PlaceSpec, text: str) -> None:
    with pytest.raises(LaunchError, match=text), allocate(replace(make_spec(tmp_path), place=place), attempt):
        pass


def test_without_ssh_node_0_is_here_and_the_others_are_started_by_their_own_command(tmp_path: Path, attempt: AttemptPaths) -> None:
    (tmp_path / "train.py").write_text(PRINTS)
    spec = replace(make_spec(tmp_path, term_s=2.0), place=PlaceSpec(kind="pernode", nodes=2, ranks=2))
    own_command = LocalTransport(attempt.folder)
    starter = FakeStarter(lambda request: own_command.start([request]), sys.executable)
    with allocate(spec, attempt, pernode_server=starter) as allocated:
        agents = allocated.start(prepare_attempt(spec, attempt, allocated.allocation, os.environ))
        until_over(agents)
        agents.close()
    own_command.close()
    assert allocated.via == "pernode" and len(starter.started) == 1
    assert starter.started[0].argv[-2:] == ("--call", str(attempt.node("node1").call))
    assert {record.returncode for record in agents.nodes()} == {0}


NAMES = tuple(f"n{number:02}" for number in range(64))


def _logs(folder: Path) -> dict[str, Path]:
    return {name: folder / name for name in NAMES}


def _connect(server: ControlServer, name: str) -> ControlClient:
    return ControlClient.connect(
        ControlEndpoint(addresses=("127.0.0.1",), port=server.port, token="secret", node=name), {"host": f"host-{name}"}
    )


def test_a_host_whose_ssh_ended_before_it_connected_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "n05").write_text("ssh: connect to host n05 port 22: Connection refused\n")

    def exits() -> dict[str, Exit]:
        return {"n05": describe_exit("ssh", 255), "n00": describe_exit("ssh", 0)}

    with ControlServer("secret", NAMES) as server:
        connection = _connect(server, "n00")
        with pytest.raises(HostError) as caught:
            wait_for_agents(server, _logs(tmp_path), exits, lambda: False)
        connection.close()
    assert (caught.value.host, caught.value.cause) == ("n05", "host_lost")
    assert "n00" not in str(caught.value), "it has connected: how its ssh ended does not matter"


def test_a_host_that_disconnects_again_is_reported(tmp_path: Path) -> None:
    with ControlServer("secret", NAMES) as server:
        _connect(server, "n09").close()
        with pytest.raises(HostError, match="the agent of n09 connected and disconnected again") as caught:
            wait_for_agents(server, _logs(tmp_path), dict, lambda: False)
    assert caught.value.cause == "node_gone"


def test_a_host_with_another_version_is_reported_at_once(tmp_path: Path, harness_version: Callable[[str], None]) -> None:
    harness_version("9.9.9")
    with ControlServer("secret", NAMES) as server:
        with pytest.raises(VersionMismatchError):
            _connect(server, "n09")
        with pytest.raises(HostError, match=r"n09 runs Seatrial \S+ and the harness runs 9\.9\.9") as caught:
            wait_for_agents(server, _logs(tmp_path), dict, lambda: False)
    assert (caught.value.host, caught.value.cause) == ("n09", "node_not_started")


def test_hosts_that_do_not_connect_time_out(tmp_path: Path) -> None:
    times = iter([0.0, 59.0, 61.0, 61.0])
    with (
        ControlServer("secret", NAMES) as server,
        pytest.raises(HostError, match=r"n00 .*60 s.*n01"),
    ):
        wait_for_agents(server, _logs(tmp_path), dict, lambda: False, monotonic=lambda: next(times))


class FakeGroup:
    """Keeps its orders."""

    def start(self, orders: Mapping[str, object]) -> None:
        self.orders = orders


@pytest.mark.parametrize(("sends", "sent"), [(True, {"HF_TOKEN": "x"}), (False, None)])
def test_variables_travel_equal_to_every_host_unless_each_has_a_command_of_its_own(
    tmp_path: Path, sends: bool, sent: dict[str, str] | None
) -> None:
    spec = on_hosts(make_spec(tmp_path), (HostSpec(name="head"), HostSpec(name="node1")))
    group = FakeGroup()
    allocated = AllocatedHosts(hosts_allocation(spec), None, group, sends_environment=sends)  # type: ignore[arg-type]
    allocated.start(("first", "second"), {"HF_TOKEN": "x", "SSH_TTY": "/dev/pts/1"})  # type: ignore[arg-type]
    assert group.orders == {"head": ("first", sent), "node1": ("second", sent)}


def test_argv_that_starts_an_agent(tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = on_hosts(make_spec(tmp_path), (HostSpec(name="node1"),), python="/opt/py")
    call = str(attempt.node("node1").call)
    monkeypatch.setenv("PYTHONPATH", "/my code:/b")
    agent = ("/opt/py", "-P", "-m", "seatrial.agent", "--call", call)
    assert agent_start_argv(spec, attempt, None, "node1") == ("env", "PYTHONPATH=/my code:/b", *agent)
    monkeypatch.delenv("PYTHONPATH")
    assert agent_start_argv(spec, attempt, None, "node1") == agent
    here = replace(spec, place=PlaceSpec(kind="pernode", nodes=2, ranks=2))
    assert agent_start_argv(here, attempt, FakeStarter(python="/env/py"), "node1")[0] == "/env/py"


def test_the_endpoint_of_each_host(tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.places.hosts.harness_addresses", lambda host, name, interface: (f"to-{host}", interface))
    spec = on_hosts(make_spec(tmp_path), (HostSpec(name="localhost"), HostSpec(name="node2")), interface="ib", port=29500)
    nodes = nodes_of(spec.place)
    first, second = agent_endpoints(spec.place, attempt, nodes, frozenset({"localhost"}), None, 4000, "secret")
    assert (first.addresses, first.port, first.holds_port, first.rendezvous_port) == (("127.0.0.1",), 4000, True, 29500)
    assert (second.addresses, second.port, second.holds_port, second.rendezvous_port) == (("to-node2", "ib"), 4000, False, None)
    starter = FakeStarter()
    starter.master_addr = "10.5.5.5"
    *_, last = agent_endpoints(spec.place, attempt, nodes, frozenset({"localhost"}), starter, 4000, "secret")
    assert last.addresses[0] == "10.5.5.5" and not any(address.startswith("127.") for address in last.addresses)
