"""Taking hosts: real agents, all of them on this machine, which is called by two of its names."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.errors import HostError, LaunchError, StoppedError
from seatrial.files import read_json
from seatrial.launch.agent_process import AgentProcess
from seatrial.launch.nodes import nodes_of
from seatrial.launch.places import hosts as hosts_place
from seatrial.launch.places.calling import all_called
from seatrial.launch.places.calls import calls_for
from seatrial.launch.places.registry import take
from seatrial.launch.prepare import prepare_all
from seatrial.launch.transports.transport import Ended, ending
from seatrial.line.caller import Caller
from seatrial.line.switchboard import Switchboard
from seatrial.paths import AttemptPaths
from seatrial.ports import reserve_port
from seatrial.records.codec import from_json
from seatrial.records.line import Call, NodeCall
from seatrial.records.run_spec import HostSpec, PlaceSpec, RunSpec
from tests.processes import is_gone, pids_in
from tests.unit.launch.factory import attempt_in, hosts_allocation, make_spec, on_hosts, until_over
from tests.waiting import wait_until

HERE = (HostSpec(name="localhost", ranks=2), HostSpec(name="127.0.0.1", ranks=1))
TELLS = "import os\nprint(os.environ['RANK'], os.environ['LOCAL_RANK'], os.environ['WORLD_SIZE'], os.environ['MASTER_PORT'])\n"
SLEEPS = "import os, time\nopen('pids', 'a').write(f'{os.getpid()}\\n')\ntime.sleep(600)\n"


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    made = attempt_in(tmp_path)
    made.folder.mkdir(parents=True)
    return made


def _spec(tmp_path: Path, text: str, **more: object) -> RunSpec:
    (tmp_path / "train.py").write_text(text)
    return on_hosts(make_spec(tmp_path, term_s=2.0), HERE, **more)


def test_a_run_on_two_hosts(tmp_path: Path, attempt: AttemptPaths) -> None:
    spec = _spec(tmp_path, TELLS)
    with take(spec, attempt) as taken:
        call = from_json(NodeCall, read_json(attempt.node("localhost").call))
        mode = stat.S_IMODE(attempt.node("localhost").call.stat().st_mode)
        agents = taken.start(prepare_all(spec, attempt, taken.allocation, os.environ))
        said = until_over(agents)
        agents.close()
        records = agents.nodes()
    assert (mode, call.holds_port, call.attempt, call.campaign) == (0o600, True, str(attempt.folder), str(tmp_path / "out"))
    assert not from_json(NodeCall, read_json(attempt.node("127.0.0.1").call)).holds_port
    assert [(report.kind, report.returncode) for report in said if report.kind != "started"] == [("exited", 0), ("gone", None)]
    assert (taken.via, taken.allocation.master_addr, taken.allocation.ranks) == ("here", "127.0.0.1", 3)
    port = taken.allocation.master_port
    assert (attempt.rank_logs / "rank1.log").read_text() == f"1 1 3 {port}\n"
    assert f"2 0 3 {port}" in attempt.node("127.0.0.1").launcher_log.read_text()
    assert [(record.name, record.first_rank, record.returncode, record.ended) for record in records] == [
        ("localhost", 0, 0, "exited"),
        ("127.0.0.1", 2, 0, "exited"),
    ]


def test_what_a_failing_host_leaves_running_elsewhere_is_stopped(
    tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.launch.fold.FAILED_NODE_GRACE_S", 0.1)
    spec = _spec(tmp_path, f"import os, sys\nif os.environ['RANK'] == '2': sys.exit(7)\n{SLEEPS}")
    with take(spec, attempt) as taken:
        agents = taken.start(prepare_all(spec, attempt, taken.allocation, os.environ))
        said = until_over(agents)
        agents.close()
    assert [report.returncode for report in said if report.kind == "exited"] == [7]
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))


STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPS}"


def test_what_a_killed_agent_leaves_is_ended_when_no_other_node_lives_on_its_host(
    tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.launch.fold.FAILED_NODE_GRACE_S", 0.1)
    spec = _spec(tmp_path, STUBBORN)
    with take(spec, attempt) as taken:
        agents = taken.start(prepare_all(spec, attempt, taken.allocation, os.environ))
        wait_until(lambda: len(pids_in(tmp_path / "pids")) == 3, "all ranks are up")
        (here,) = [transport for transport, _ in taken.start.__self__.chosen.by]  # type: ignore[attr-defined]
        os.kill(here._children["127.0.0.1"]._process.pid, signal.SIGKILL)
        said = until_over(agents)
        agents.close()
    assert [(report.kind, report.host) for report in said if report.kind == "node_lost"] == [("node_lost", "127.0.0.1")]
    first, second = agents.nodes()
    assert (first.ended, first.returncode, first.killed) == ("exited", -9, 2), "it was stopped in order, and nobody else ended it"
    assert (second.ended, second.killed) == ("lost", 1) and "killed 1 process that ran on there" in second.detail
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))


def test_leaving_the_block_ends_everything(tmp_path: Path, attempt: AttemptPaths) -> None:
    spec = _spec(tmp_path, SLEEPS)
    with take(spec, attempt) as taken:
        taken.start(prepare_all(spec, attempt, taken.allocation, os.environ))
        wait_until(lambda: len(pids_in(tmp_path / "pids")) == 3, "all ranks are up")
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))


def test_agents_that_never_get_an_order_end_by_themselves(tmp_path: Path, attempt: AttemptPaths) -> None:
    with pytest.raises(ZeroDivisionError), take(_spec(tmp_path, ""), attempt):
        raise ZeroDivisionError
    assert "closed" in attempt.node("localhost").agent_log.read_text() or "ended" in attempt.node("localhost").agent_log.read_text()


def test_a_host_whose_interpreter_lacks_seatrial_is_named(tmp_path: Path, attempt: AttemptPaths) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'python: No module named seatrial' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(HostError) as caught, take(_spec(tmp_path, "", python=str(fake)), attempt):
        pass
    assert (caught.value.host, caught.value.cause) == ("localhost", "import_error")
    for words in ("the agent ended with exit code 1", "No module named seatrial", "install Seatrial on localhost", "127.0.0.1"):
        assert words in str(caught.value)


def test_a_port_that_another_holds_is_told_by_the_host(tmp_path: Path, attempt: AttemptPaths) -> None:
    with reserve_port() as other, pytest.raises(HostError) as caught, take(_spec(tmp_path, "", port=other.port), attempt):
        pass
    assert (caught.value.host, caught.value.cause) == ("localhost", "port_in_use")
    assert f"port {other.port} is in use" in str(caught.value)


def test_the_user_may_stop_while_hosts_are_started(tmp_path: Path, attempt: AttemptPaths) -> None:
    with pytest.raises(StoppedError, match="nothing was run"), take(_spec(tmp_path, ""), attempt, should_stop=lambda: True):
        pass


def test_on_this_machine_it_is_one_agent_as_ever(tmp_path: Path, attempt: AttemptPaths) -> None:
    (tmp_path / "train.py").write_text("print('well')\n")
    spec = make_spec(tmp_path)
    with take(spec, attempt) as taken:
        agents = taken.start(prepare_all(spec, attempt, taken.allocation, os.environ))
        assert isinstance(agents, AgentProcess) and agents.nodes() == ()
        until_over(agents)
        agents.close()
    assert attempt.launcher_log.read_text() == "well\n"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (PlaceSpec(kind="slurmm"), "place 'slurmm' is not known"),
        (PlaceSpec(kind="hostfile", hostfile="/gone"), "no host is known"),
        (PlaceSpec(kind="pernode", nodes=2, ranks=2), "needs the command on every node"),
    ],
)
def test_places_that_cannot_be_taken(tmp_path: Path, attempt: AttemptPaths, place: PlaceSpec, words: str) -> None:
    with pytest.raises(LaunchError, match=words), take(replace(make_spec(tmp_path), place=place), attempt):
        pass


class _Gate:
    """Starts what it is told by itself, as the shares of other nodes would."""

    nodes = ("node0", "node1")
    master_addr = "127.0.0.1"

    def __init__(self, start: Callable[[Sequence[str], str], None]) -> None:
        self._start = start

    def start(self, node: str, argv: Sequence[str], env: Mapping[str, str], log: str) -> None:
        self._start(argv, log)

    def trouble(self, node: str) -> str:
        return ""

    def python_of(self, node: str) -> str:
        return sys.executable


def test_without_ssh_node_0_is_here_and_the_others_are_started_by_their_own_command(tmp_path: Path, attempt: AttemptPaths) -> None:
    (tmp_path / "train.py").write_text(TELLS)
    spec = replace(make_spec(tmp_path, term_s=2.0), place=PlaceSpec(kind="pernode", nodes=2, ranks=2))
    started: list[hosts_place.Start] = []

    def start(argv: Sequence[str], log: str) -> None:
        started.append(hosts_place.Start(host="node1", words=tuple(argv), log=Path(log)))
        share.start(started)

    share = hosts_place.choose(spec.place, [], ["node1"], attempt.folder, lambda host: ()).by[0][0]
    with take(spec, attempt, gate=_Gate(start)) as taken:
        agents = taken.start(prepare_all(spec, attempt, taken.allocation, os.environ))
        until_over(agents)
        agents.close()
    share.close()
    assert taken.via == "pernode" and len(started) == 1
    assert started[0].words[-2:] == ("--call", str(attempt.node("node1").call))
    assert {record.returncode for record in agents.nodes()} == {0}


NAMES = tuple(f"n{number:02}" for number in range(64))


def _logs(folder: Path) -> dict[str, Path]:
    return {name: folder / name for name in NAMES}


def test_64_hosts_have_called(tmp_path: Path) -> None:
    with Switchboard("secret", NAMES) as board:
        callers = [_caller(board, name) for name in reversed(NAMES)]
        hellos = all_called(board, _logs(tmp_path), dict, lambda: False)
        assert {name: hello["host"] for name, hello in hellos.items()} == {name: f"host-{name}" for name in NAMES}
        for caller in callers:
            caller.close()


def _caller(board: Switchboard, name: str) -> Caller:
    return Caller.connect(Call(addresses=("127.0.0.1",), port=board.port, token="secret", node=name), {"host": f"host-{name}"})


def test_a_host_whose_ssh_ended_before_it_called_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "n05").write_text("ssh: connect to host n05 port 22: Connection refused\n")

    def ended() -> dict[str, Ended]:
        return {"n05": ending("ssh", 255), "n00": ending("ssh", 0)}

    with Switchboard("secret", NAMES) as board:
        caller = _caller(board, "n00")
        with pytest.raises(HostError) as caught:
            all_called(board, _logs(tmp_path), ended, lambda: False)
        caller.close()
    assert (caught.value.host, caught.value.cause) == ("n05", "host_lost")
    assert "n00" not in str(caught.value), "it has called: what became of its ssh is of no interest"


def test_a_host_that_goes_again_is_told(tmp_path: Path) -> None:
    with Switchboard("secret", NAMES) as board:
        _caller(board, "n09").close()
        with pytest.raises(HostError, match="the agent of n09 called and went again") as caught:
            all_called(board, _logs(tmp_path), dict, lambda: False)
    assert caught.value.cause == "node_gone"


def test_silence_ends_with_patience(tmp_path: Path) -> None:
    times = iter([0.0, 59.0, 61.0, 61.0])
    with (
        Switchboard("secret", NAMES) as board,
        pytest.raises(HostError, match=r"the agent of n00 did not call within 60 s; so it is on n01"),
    ):
        all_called(board, _logs(tmp_path), dict, lambda: False, monotonic=lambda: next(times))


class _Told:
    """A group that keeps what it is told."""

    def go(self, orders: Mapping[str, object]) -> None:
        self.orders = orders


@pytest.mark.parametrize(("sends", "sent"), [(True, {"HF_TOKEN": "x"}), (False, None)])
def test_variables_travel_alike_to_every_host_unless_each_has_a_command_of_its_own(
    tmp_path: Path, sends: bool, sent: dict[str, str] | None
) -> None:
    spec = on_hosts(make_spec(tmp_path), (HostSpec(name="head"), HostSpec(name="node1")))
    group = _Told()
    taken = hosts_place.TakenHosts(hosts_allocation(spec), None, group, sends_environment=sends)  # type: ignore[arg-type]
    taken.start(("first", "second"), {"HF_TOKEN": "x", "SSH_TTY": "/dev/pts/1"})  # type: ignore[arg-type]
    assert group.orders == {"head": ("first", sent), "node1": ("second", sent)}


def test_words_that_start_an_agent(tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = on_hosts(make_spec(tmp_path), (HostSpec(name="node1"),), python="/opt/py")
    call = str(attempt.node("node1").call)
    monkeypatch.setenv("PYTHONPATH", "/my code:/b")
    agent = ("/opt/py", "-P", "-m", "seatrial.agent", "--call", call)
    assert hosts_place.call_words(spec, attempt, None, "node1") == ("env", "PYTHONPATH=/my code:/b", *agent)
    monkeypatch.delenv("PYTHONPATH")
    assert hosts_place.call_words(spec, attempt, None, "node1") == agent
    end = hosts_place._end_start(spec, attempt, None, "node1")
    assert end.words == (*agent[:-2], "--end", str(attempt.folder)) and end.log == attempt.node("node1").start_log
    here = replace(spec, place=PlaceSpec(kind="pernode", nodes=2, ranks=2))
    assert hosts_place.call_words(here, attempt, _Gate(lambda argv, log: None), "node1")[0] == sys.executable


def test_how_each_host_is_told_to_call(tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.places.calls.addresses_for", lambda host, name, interface: (f"to-{host}", interface))
    spec = on_hosts(make_spec(tmp_path), (HostSpec(name="localhost"), HostSpec(name="node2")), interface="ib", port=29500)
    nodes = nodes_of(spec.place)
    first, second = calls_for(spec.place, attempt, nodes, frozenset({"localhost"}), None, 4000, "secret")
    assert (first.addresses, first.port, first.holds_port, first.rendezvous_port) == (("127.0.0.1",), 4000, True, 29500)
    assert (second.addresses, second.port, second.holds_port, second.rendezvous_port) == (("to-node2", "ib"), 4000, False, None)
    gate = _Gate(lambda argv, log: None)
    gate.master_addr = "10.5.5.5"
    *_, last = calls_for(spec.place, attempt, nodes, frozenset({"localhost"}), gate, 4000, "secret")
    assert last.addresses[0] == "10.5.5.5" and not any(address.startswith("127.") for address in last.addresses)
