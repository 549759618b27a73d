"""One run: what it records, how it is followed, what it leaves behind. No process is started."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign import one_run
from seatrial.campaign.follow import HOSTS_KILL_TIMEOUT_S, KILL_TIMEOUT_S, Follower, clock_offsets
from seatrial.campaign.interrupts import Interrupts, Urgency
from seatrial.campaign.one_run import close_attempt, code_folder, link_counted, link_current, new_attempt, run_one
from seatrial.campaign.outcome_rules import Ending, RankEndings, judge_ending
from seatrial.core import files
from seatrial.core.control_connection.protocol import LEASE_S
from seatrial.core.errors import LaunchError, PortTakenError, StoppedError
from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import AttemptPaths, CampaignPaths, RunPaths
from seatrial.launch.agent_group import CLEANUP_TIMEOUT_S
from seatrial.launch.agents import Agents
from seatrial.launch.places import AllocatedRun
from seatrial.machine.provenance import compute_fingerprint, with_host_facts
from seatrial.records.attempt import HostFacts, Provenance
from seatrial.records.launch import AgentReport, NodeRecord
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import RunSpec, WorkloadSpec
from tests.unit.analyse import factory
from tests.unit.collect import on_disk
from tests.unit.launch.factory import hosts_allocation, make_spec, on_hosts
from tests.unit.results.campaigns import TOKEN, spec


class FixedUrgency(Interrupts):
    """A user who asks for the same all the time."""

    def __init__(self, urgency: Urgency = Urgency.NONE) -> None:
        self._urgency = urgency

    @property
    def urgency(self) -> Urgency:
        return self._urgency


def refused(monkeypatch: pytest.MonkeyPatch, attempt: AttemptPaths, error: LaunchError, run: RunSpec | None = None) -> RunOutcome:
    """The outcome where the place cannot be allocated."""

    @contextlib.contextmanager
    def allocate(*_: Any, **__: Any) -> Iterator[None]:
        raise error
        yield

    monkeypatch.setattr(one_run, "allocate", allocate)
    return close_attempt(attempt, run_one(run or spec("mb8", 1), attempt, FixedUrgency(), lambda *_: None, lambda: None))


def test_attempts_never_share_a_folder(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "mb8_r1")
    assert [new_attempt(run).number for _ in range(3)] == [1, 2, 3]


def test_a_run_that_cannot_be_started_is_an_outcome_with_its_spec_and_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = new_attempt(CampaignPaths(tmp_path).run("mb8_r1"))
    found = refused(monkeypatch, attempt, PortTakenError(f"29500 is taken by --hub-token {TOKEN}"))
    assert (found.outcome, found.cause) == (Outcome.FAILED, Cause.PORT_IN_USE)
    assert json.loads(attempt.outcome.read_text())["cause"] == "port_in_use"
    assert files.read_json(attempt.spec)["run"] == "mb8_r1"
    assert TOKEN not in attempt.outcome.read_text() + attempt.spec.read_text()


def test_the_spec_that_was_prepared_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = new_attempt(CampaignPaths(tmp_path).run("mb8_r1"))
    attempt.spec.write_text('{"prepared": true}')
    refused(monkeypatch, attempt, LaunchError("no program"))
    assert files.read_json(attempt.spec) == {"prepared": True}


class TwoHosts(Agents):
    """Agents of two hosts whose run ends well at once; `looked` is what the file of the hosts held while they were at work."""

    alive = True

    def __init__(self, attempt: AttemptPaths) -> None:
        self._attempt = attempt
        self.looked: Any = None

    def poll(self) -> list[AgentReport]:
        return self.wait(0.0)

    def wait(self, timeout_s: float) -> list[AgentReport]:
        self.looked = files.read_json(self._attempt.nodes_record)
        return [AgentReport(kind="exited", t=1.0, returncode=0), AgentReport(kind="gone", t=1.0)]

    def nodes(self) -> tuple[NodeRecord, ...]:
        return tuple(NodeRecord(name=name, ended="exited" if self.looked else "") for name in ("node1", "node2"))

    def close(self) -> list[AgentReport]:
        return []


def test_a_run_on_hosts_records_provenance_and_its_hosts_from_its_start_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = on_hosts(make_spec(tmp_path), (HostSpec(name="node1", ranks=1), HostSpec(name="node2", ranks=1)))
    attempt = new_attempt(CampaignPaths(tmp_path / "out").run(run.run))
    agents = TwoHosts(attempt)

    @contextlib.contextmanager
    def allocate(*_: Any, **__: Any) -> Iterator[AllocatedRun]:
        yield AllocatedRun(hosts_allocation(run, port=29650), lambda orders: agents, via="pdsh")

    monkeypatch.setattr(one_run, "allocate", allocate)
    monkeypatch.setattr(one_run, "gather_provenance", lambda cwd, devices, *, plan_hash, **_: Provenance(host="head", plan_hash=plan_hash))
    outcome = run_one(run, attempt, FixedUrgency(), lambda *_: None, lambda: None, "f00d")
    assert outcome.outcome is Outcome.OK
    came_from = files.read_json(attempt.provenance)
    assert (came_from["host"], came_from["plan_hash"]) == ("head", "f00d")
    found = files.read_json(attempt.nodes_record)
    assert (found["via"], found["master_addr"], found["master_port"]) == ("pdsh", "node1", 29650)
    assert [(node["name"], node["ended"]) for node in found["nodes"]] == [("node1", "exited"), ("node2", "exited")]
    assert [node["ended"] for node in agents.looked["nodes"]] == ["", ""]


def test_an_interrupted_attempt_does_not_hide_the_one_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CampaignPaths(tmp_path).run("mb8_r1")
    refused(monkeypatch, new_attempt(run), LaunchError("no program"))
    shown = run.folder / "spec.json"
    assert shown.resolve() == run.attempt(1).spec.resolve()
    refused(monkeypatch, new_attempt(run), StoppedError("asked to stop"))
    assert shown.resolve() == run.attempt(1).spec.resolve()
    refused(monkeypatch, new_attempt(run), LaunchError("no program"))
    assert shown.resolve() == run.attempt(3).spec.resolve()


def test_links_show_the_attempt_that_reports_show(tmp_path: Path) -> None:
    """A job of the plan as it was may end after the run's next attempt; and a plan may be changed back."""
    was, now = spec("mb8", 1), replace(spec("mb8", 1), hash="changed")
    attempts = [AttemptPaths(Path(on_disk.write_attempt(tmp_path, one, number=at).folder)) for at, one in enumerate((was, now), start=1)]
    run, shown = RunPaths(attempts[0].folder.parent), attempts[0].folder.parent / "spec.json"
    for attempt in attempts:
        attempt.outcome.unlink(missing_ok=True)
    ended = [RunOutcome(run=was.run, attempt=at, hash=one.hash, outcome=Outcome.OK) for at, one in enumerate((was, now), start=1)]
    close_attempt(attempts[1], ended[1])
    close_attempt(attempts[0], ended[0])
    assert shown.resolve() == attempts[1].spec.resolve()
    link_counted(run, was.hash)
    assert shown.resolve() == attempts[0].spec.resolve()


def test_links_of_an_earlier_attempt_that_the_newest_lacks_are_removed_and_files_stay(tmp_path: Path) -> None:
    first = AttemptPaths(Path(on_disk.write_attempt(tmp_path, spec("mb8", 1)).folder))
    first.launcher_log.write_text("1")
    run = RunPaths(first.folder.parent)
    mine = run.folder / "notes.txt"
    mine.write_text("mine")
    link_current(run, first)
    assert (run.folder / "launcher.log").read_text() == "1"
    second = AttemptPaths(Path(on_disk.write_attempt(tmp_path, spec("mb8", 1), number=2).folder))
    link_current(run, second)
    assert not (run.folder / "launcher.log").is_symlink()
    assert (run.folder / "spec.json").resolve() == second.spec.resolve()
    assert mine.read_text() == "mine"


def test_a_file_of_the_users_under_such_a_name_is_not_written_over(tmp_path: Path) -> None:
    attempt = AttemptPaths(Path(on_disk.write_attempt(tmp_path, spec("mb8", 1)).folder))
    mine = attempt.folder.parent / "spec.json"
    mine.write_text("mine")
    link_current(RunPaths(attempt.folder.parent), attempt)
    assert mine.read_text() == "mine"


HEAD = Provenance(host="head", cpu="slow", cpu_count=2, gpu_uuid_list="GPU-1", git_commit_hash="abc", fingerprint="old")
NODE1 = HostFacts(
    name="node1", host="n1", cpu="fast", cpu_count=64, gpus=("H200", "H200"), driver_version="580", packages={"torch": "2.13"}
)
NODE2 = HostFacts(name="node2", host="n2", cpu="fast", cpu_count=64, gpus=("H200", "H200"), driver_version="570")


def test_a_run_on_one_machine_is_left_as_it_is() -> None:
    assert with_host_facts(HEAD, [], {"node1": NODE1}) is HEAD
    assert with_host_facts(HEAD, ["node1"], {}) is HEAD


def test_the_machine_is_that_of_node_0() -> None:
    found = with_host_facts(HEAD, ["node1", "node2"], {"node2": NODE2, "node1": NODE1})
    assert (found.host, found.cpu, found.cpu_count, found.gpu_name, found.driver_version) == ("n1", "fast", 64, "H200", "580")
    assert found.gpu_uuid_list == "" and found.git_commit_hash == "abc"
    assert list(found.hosts) == ["node1", "node2"] and found.hosts["node2"]["driver_version"] == "570"
    assert found.fingerprint == compute_fingerprint(found) != compute_fingerprint(HEAD)


def test_a_harness_on_node_0_keeps_its_own_facts() -> None:
    found = with_host_facts(HEAD, ["a", "node2"], {"a": HostFacts(name="a", host="head", cpu="other"), "node2": NODE2})
    assert found.gpu_uuid_list == "GPU-1" and found.cpu == "slow" and len(found.hosts) == 2


def test_clock_offsets_by_rank_where_they_were_measured() -> None:
    nodes = (
        NodeRecord(name="a", first_rank=0, ranks=2, clock_offset_s=0.5),
        NodeRecord(name="b", first_rank=2, ranks=1, clock_offset_s=None),
        NodeRecord(name="c", first_rank=3, ranks=1, clock_offset_s=-3600.0),
    )
    assert clock_offsets(nodes) == {0: 0.5, 1: 0.5, 3: -3600.0}


@pytest.mark.parametrize(
    ("script", "args", "folder"),
    [
        ("train.py", (), "."),
        ("repo/train.py", (), "repo"),
        ("python", ("-u", "repo/train.py", "--data", "other.py"), "repo"),
        ("repo/no_such.py", (), "."),
        ("my_program", ("repo",), "."),
    ],
)
def test_the_code_folder_is_that_of_the_script(tmp_path: Path, script: str, args: tuple[str, ...], folder: str) -> None:
    (tmp_path / "repo").mkdir()
    for name in ("train.py", "repo/train.py", "other.py"):
        (tmp_path / name).write_text("")
    run = replace(factory.spec(), cwd=str(tmp_path), workload=WorkloadSpec(name="x", script=script, args=args))
    assert code_folder(run).resolve() == (tmp_path / folder).resolve()


NODES = (NodeRecord(name="node1"), NodeRecord(name="node2", node_rank=1, first_rank=1))


class ScriptedAgents:
    """Give `reports` and then none; every wait lets one second go by on the test's clock."""

    def __init__(self, nodes: tuple[NodeRecord, ...], reports: Sequence[AgentReport]) -> None:
        self._nodes, self._reports = nodes, list(reports)
        self.now_m = 0.0
        self.killed_m: float | None = None

    def wait(self, timeout_s: float) -> list[AgentReport]:
        self.now_m += 1.0
        reports, self._reports = self._reports, []
        return reports

    def nodes(self) -> tuple[NodeRecord, ...]:
        return self._nodes

    def kill(self) -> None:
        self.killed_m = self.now_m

    def stacks(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


def follow(folder: Path, agents: ScriptedAgents, urgency: Urgency = Urgency.NONE) -> Ending:
    given: Any = agents
    interrupts = FixedUrgency(urgency)
    follower = Follower(factory.spec(), AttemptPaths(folder), interrupts, lambda *_: None, lambda: None, monotonic=lambda: agents.now_m)
    return follower.follow(lambda: given)


@pytest.mark.parametrize(("silent", "signature"), [(False, "node_gone"), (True, "node_silent")])
def test_whether_a_lost_host_was_silent_is_what_the_report_says_and_not_its_text(tmp_path: Path, silent: bool, signature: str) -> None:
    text = "it closed; its last message: no heartbeat from the harness for 21 s"
    lost = AgentReport(kind="node_lost", t=1.0, host="node2", detail=text, silent=silent)
    ending = follow(tmp_path, ScriptedAgents(NODES, [lost, AgentReport(kind="gone", t=1.0)]))
    assert [(host.host, host.silent) for host in ending.lost_hosts] == [("node2", silent)]
    assert judge_ending(ending, RankEndings(), world_size=2, steps=None).signature == signature


@pytest.mark.parametrize(("nodes", "timeout_s"), [((), KILL_TIMEOUT_S), (NODES, HOSTS_KILL_TIMEOUT_S)])
def test_the_end_of_many_hosts_is_waited_for_longer(tmp_path: Path, nodes: tuple[NodeRecord, ...], timeout_s: float) -> None:
    agents = ScriptedAgents(nodes, [])
    ending = follow(tmp_path, agents, Urgency.KILL)
    assert ending.agent_lost and agents.killed_m is not None
    assert agents.now_m - agents.killed_m == pytest.approx(timeout_s, abs=1.0)
    assert HOSTS_KILL_TIMEOUT_S > LEASE_S + CLEANUP_TIMEOUT_S


def test_an_oom_counter_that_rose_is_part_of_the_ending(tmp_path: Path) -> None:
    exited = AgentReport(kind="exited", t=1.0, returncode=-9, oom_kills="oom_kill 3 → 4 in its cgroup")
    ending = follow(tmp_path, ScriptedAgents((), [exited, AgentReport(kind="gone", t=1.0)]))
    assert (ending.returncode, ending.oom_kills) == (-9, "oom_kill 3 → 4 in its cgroup")
