"""One run from its spec to its outcome, as far as no process is needed: what could not be started, what is written last, what is shown."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial import files
from seatrial.campaign import one_run
from seatrial.campaign.interrupts import Interrupts, Urgency
from seatrial.campaign.one_run import link_current, new_attempt, run_one
from seatrial.errors import LaunchError, PortTakenError, StoppedError
from seatrial.launch.agents import Agents
from seatrial.launch.places.registry import Taken
from seatrial.paths import AttemptPaths, CampaignPaths, RunPaths
from seatrial.records.command import AgentReport, Provenance
from seatrial.records.nodes import NodeRecord
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import HostSpec, RunSpec
from tests.unit.campaign.made_campaign import TOKEN, spec
from tests.unit.collect import on_disk
from tests.unit.launch.factory import hosts_allocation, make_spec, on_hosts


class NoWish(Interrupts):
    """A user who asks for nothing."""

    def __init__(self) -> None: ...

    @property
    def urgency(self) -> Urgency:
        return Urgency.NONE


def refused(monkeypatch: pytest.MonkeyPatch, attempt: AttemptPaths, error: LaunchError, run: RunSpec | None = None) -> RunOutcome:
    """The outcome where the place says no."""

    @contextlib.contextmanager
    def take(*_: Any, **__: Any) -> Iterator[None]:
        raise error
        yield

    monkeypatch.setattr(one_run, "take", take)
    return run_one(run or spec("mb8", 1), attempt, NoWish(), lambda *told: None, lambda: None)


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


def test_a_run_on_hosts_leaves_what_it_came_from_and_its_hosts_from_its_beginning_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = on_hosts(make_spec(tmp_path), (HostSpec(name="node1", ranks=1), HostSpec(name="node2", ranks=1)))
    attempt = new_attempt(CampaignPaths(tmp_path / "out").run(run.run))
    agents = TwoHosts(attempt)

    @contextlib.contextmanager
    def take(*_: Any, **__: Any) -> Iterator[Taken]:
        yield Taken(hosts_allocation(run, port=29650), lambda orders: agents, via="pdsh")

    monkeypatch.setattr(one_run, "take", take)
    monkeypatch.setattr(one_run, "gather", lambda cwd, devices, *, plan_hash, **_: Provenance(host="head", plan_hash=plan_hash))
    outcome = run_one(run, attempt, NoWish(), lambda *told: None, lambda: None, "f00d")
    assert outcome.outcome is Outcome.OK
    came_from = files.read_json(attempt.provenance)
    assert (came_from["host"], came_from["plan_hash"]) == ("head", "f00d")
    found = files.read_json(attempt.nodes_record)
    assert (found["via"], found["master_addr"], found["master_port"]) == ("pdsh", "node1", 29650)
    assert [(node["name"], node["ended"]) for node in found["nodes"]] == [("node1", "exited"), ("node2", "exited")]
    assert [node["ended"] for node in agents.looked["nodes"]] == ["", ""]


def test_one_that_was_broken_off_does_not_hide_the_one_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CampaignPaths(tmp_path).run("mb8_r1")
    refused(monkeypatch, new_attempt(run), LaunchError("no program"))
    shown = run.folder / "spec.json"
    assert shown.resolve() == run.attempt(1).spec.resolve()
    refused(monkeypatch, new_attempt(run), StoppedError("asked to stop"))
    assert shown.resolve() == run.attempt(1).spec.resolve()
    refused(monkeypatch, new_attempt(run), LaunchError("no program"))
    assert shown.resolve() == run.attempt(3).spec.resolve()


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
