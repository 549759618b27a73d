"""Agents, transports and the harness killed while ranks ignore TERM: no process may be left on any host."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.outcome import Cause, Fault
from tests.cluster.campaigns import DUMMY, LONG, Campaign
from tests.cluster.hosts import Hosts
from tests.cluster.running import Started

INCONCLUSIVE = 3
# With a child in its own session and with an empty environment, and with shared memory that nobody else would remove.
STUBBORN = """\
import os, signal, subprocess, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
open("/dev/shm/psm_stubborn", "w").close()
print("rank", os.environ["RANK"], "is up", flush=True)
open(f"up{os.environ['RANK']}", "w").close()
time.sleep(600)
"""


@pytest.fixture
def campaign(hosts: Hosts, tmp_path: Path) -> Campaign:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    return Campaign(hosts, tmp_path)


def _stubborn(via: str = "auto") -> dict[str, Any]:
    plan = {**DUMMY, "workload": {"script": "stubborn.py", "reads": "none"}, "settings": {}, "place": {**DUMMY["place"], "via": via}}
    del plan["steps"]
    return plan


def _started(campaign: Campaign, via: str = "auto") -> Started:
    started = campaign.start(_stubborn(via))
    _wait_for_ranks(campaign, started)
    return started


def _wait_for_ranks(campaign: Campaign, started: Started) -> None:
    campaign.wait(lambda: all((campaign.folder / f"up{rank}").exists() for rank in range(2)), lambda: started.output)


def _assert_clean(campaign: Campaign) -> None:
    campaign.assert_nothing_left()
    for name in campaign.hosts.names:
        assert not campaign.hosts.processes(name, "sleep 600"), name
        assert campaign.hosts.run(name, ["ls", "/dev/shm"]).stdout == "", name


def _agent(campaign: Campaign, node: str) -> int:
    (agent,) = [pid for pid in campaign.hosts.processes(node, "-m seatrial.agent --call") if _is_agent(campaign, node, pid)]
    return agent


def _is_agent(campaign: Campaign, node: str, pid: int) -> bool:
    """Not the shell that sshd started for it."""
    argv = campaign.hosts.run(node, ["cat", f"/proc/{pid}/cmdline"]).stdout.split("\0")
    return "seatrial.agent" in argv


@pytest.mark.parametrize(("node", "via"), [("node2", "pdsh"), ("node1", "ssh")])
def test_an_agent_that_is_killed_leaves_nothing_on_its_host(campaign: Campaign, node: str, via: str) -> None:
    started = _started(campaign, via)
    campaign.hosts.kill(node, _agent(campaign, node))
    assert started.wait(60) == INCONCLUSIVE, started.output
    outcome = campaign.outcome()
    assert (outcome.cause, outcome.signature, outcome.fault) == (Cause.HOST_LOST, "node_gone", Fault.INFRASTRUCTURE), outcome
    assert outcome.host == node
    record = next(record for record in campaign.nodes().nodes if record.name == node)
    # The rank and its child.
    assert (record.ended, record.killed) == ("lost", 2), record
    assert "killed 2 processes still running there" in record.detail
    _assert_clean(campaign)


def test_an_agent_that_is_killed_where_there_is_no_ssh(campaign: Campaign) -> None:
    plan = {**_stubborn(), "place": {"kind": "pernode", "nodes": 2, "ranks": 2}}
    master = ["--master-addr", "node1", "--master-port", "29500"]
    second = campaign.start(plan, "--node-rank", "1", *master, host="node2")
    first = campaign.start(plan, "--node-rank", "0", *master, host="node1")
    _wait_for_ranks(campaign, first)
    campaign.hosts.kill("node2", _agent(campaign, "node2"))
    assert first.wait(60) == second.wait(60) == INCONCLUSIVE, first.output + second.output
    record = campaign.nodes().nodes[1]
    assert (record.ended, record.killed) == ("lost", 2), record
    _assert_clean(campaign)


@pytest.mark.parametrize("via", ["pdsh", "ssh"])
def test_a_harness_that_is_killed_leaves_nothing_on_any_host(campaign: Campaign, via: str) -> None:
    """Nor what started the agents; the agents themselves kill everything and log it."""
    started = _started(campaign, via)
    started.signal(signal.SIGKILL)
    _assert_clean(campaign)
    assert all("killing everything" in campaign.attempt().node(name).agent_log.read_text() for name in ("node1", "node2"))


def test_a_harness_that_is_killed_behind_a_cut_link_leaves_nothing(campaign: Campaign) -> None:
    started = _started(campaign, "ssh")
    campaign.hosts.cut("node2")
    started.signal(signal.SIGKILL)
    campaign.assert_nothing_left()


def test_pdsh_that_is_killed_leaves_no_ssh_behind_the_run(campaign: Campaign) -> None:
    # Without keep-alives, an ssh to a silent host lives until it is stopped.
    plan = {**LONG, "place": {**LONG["place"], "via": "pdsh", "ssh_args": ["-o", "ServerAliveInterval=0"]}}
    started = campaign.start(plan)
    campaign.wait_for_steps(started, ranks=2)
    (pdsh,) = campaign.hosts.processes("head", "pdsh -R")
    campaign.hosts.kill("head", pdsh)
    campaign.hosts.cut("node2")
    started.signal(signal.SIGINT)
    started.signal(signal.SIGINT)
    started.wait(60)
    assert campaign.hosts.commands("head", "seatrial.agent") == []
