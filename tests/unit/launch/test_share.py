"""A node's share of a campaign without ssh, against a gate over loopback; agents are small programs of the test's own."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import CampaignError, UsageError
from seatrial.launch.answering import Answering
from seatrial.launch.gate import Gate
from seatrial.launch.gate_file import write_gate
from seatrial.launch.share import Share
from seatrial.launch.started_agents import StartedAgents
from seatrial.paths import CampaignPaths
from tests import waiting

PATIENCE_S = 60.0
wait_until = partial(waiting.wait_until, patience_s=PATIENCE_S)
QUICK = [sys.executable, "-S", "-c", "import os; print('from', os.environ['NAME'])"]
STANDING = [sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"]
ECHO = (sys.executable, "-S", "-c", "import sys\nfor line in sys.stdin: print(line, end='', flush=True)")


class Taken(threading.Thread):
    """A share that takes part, beside the test."""

    def __init__(self, share: Share) -> None:
        super().__init__(daemon=True)
        self._share = share
        self.ended: Any = None
        self.start()

    def run(self) -> None:
        try:
            with self._share:
                self.ended = self._share.take_part()
        except Exception as error:
            self.ended = error


@pytest.fixture
def paths(tmp_path: Path) -> CampaignPaths:
    return CampaignPaths(tmp_path)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def gate(paths: CampaignPaths) -> Iterator[Gate]:
    silent: Callable[[Any], None] = lambda _: None  # noqa: E731
    with Gate(paths, nodes=2, address="127.0.0.1", port=0, plan="demo", digest="abc", say=silent, how_to_start=str) as opened:
        write_gate(paths, opened.addresses, opened.port, opened._token, "demo")
        yield opened


def new_share(paths: CampaignPaths, said: list[str], digest: str = "abc", **more: Any) -> Share:
    return Share(paths, "node1", digest=digest, say=said.append, **more)


def taken(gate: Gate, paths: CampaignPaths, said: list[str]) -> Taken:
    part = Taken(new_share(paths, said))
    wait_until(lambda: not gate.missing())
    return part


def log_of(paths: CampaignPaths, run: str = "mb8_r1") -> Path:
    log = paths.run(run).attempt(1).node("node1").folder / "start.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


def test_it_starts_what_it_is_told_and_ends_with_the_campaigns_code(gate: Gate, paths: CampaignPaths, said: list[str]) -> None:
    part = taken(gate, paths, said)
    gate.start("node1", QUICK, {"NAME": "node 0"}, log_of(paths))
    wait_until(lambda: "mb8_r1: over here" in said)
    assert log_of(paths).read_text() == "from node 0\n"
    assert said.index("mb8_r1: started here") < said.index("mb8_r1: over here")
    gate.over(3)
    part.join(PATIENCE_S)
    assert part.ended == 3 and said[-1] == "node1: the campaign is over (exit code 3)"


def test_an_agent_that_cannot_start_or_fails_is_told_to_node_0(gate: Gate, paths: CampaignPaths, said: list[str]) -> None:
    part = taken(gate, paths, said)
    gate.start("node1", ["/no/such/python"], {}, log_of(paths))
    wait_until(lambda: "could not be started" in gate.trouble("node1"))
    gate.start("node1", [sys.executable, "-S", "-c", "raise SystemExit(7)"], {}, log_of(paths))
    wait_until(lambda: gate.trouble("node1") == "the agent on node1 ended with 7")
    gate.start("node1", QUICK, {"NAME": "x"}, paths.folder / "not" / "there" / "start.log")
    wait_until(lambda: "No such file or directory" in gate.trouble("node1"))
    gate.over(0)
    part.join(PATIENCE_S)
    assert part.ended == 0


def test_when_node_0_is_gone_nothing_stays(gate: Gate, paths: CampaignPaths, said: list[str]) -> None:
    part = taken(gate, paths, said)
    gate.start("node1", STANDING, {}, log_of(paths))
    wait_until(lambda: log_of(paths).exists() and log_of(paths).read_text() == "up\n")
    (_, _, agent), *_ = part._share._agents._running
    # As one that was killed: without a word.
    gate._is_over = True
    gate._board.close()
    part.join(PATIENCE_S)
    assert isinstance(part.ended, CampaignError) and "node 0 is gone" in str(part.ended)
    assert agent.returncode == -signal.SIGTERM


def test_a_command_that_is_stopped_ends_its_agent(
    gate: Gate, paths: CampaignPaths, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    share = new_share(paths, said)
    agents: list[Any] = []

    def stopped_by_the_user(caller: Any) -> None:
        if agents:
            raise KeyboardInterrupt
        share._do(caller, {"kind": "start", "argv": STANDING, "env": {}, "log": str(log_of(paths))})
        agents.append(share._agents._running[0][2])

    monkeypatch.setattr(share, "_wait", stopped_by_the_user)
    with pytest.raises(KeyboardInterrupt), share:
        share.take_part()
    assert agents[0].returncode == -signal.SIGTERM
    wait_until(lambda: gate.lost() or gate.missing())


def test_another_plan_is_refused_with_both_hashes(gate: Gate, paths: CampaignPaths, said: list[str]) -> None:
    with pytest.raises(UsageError, match="hash xyz here, abc there"), new_share(paths, said, "xyz") as share:
        share.take_part()


def test_another_version_is_refused(gate: Gate, paths: CampaignPaths, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.share.__version__", "0.0.0")
    with pytest.raises(UsageError, match=r"Seatrial 0\.0\.0 is installed here"), new_share(paths, said) as share:
        share.take_part()


def test_what_a_dead_campaign_left_is_passed_over(paths: CampaignPaths, said: list[str]) -> None:
    write_gate(paths, ["127.0.0.1"], 9, "an old token", "demo")
    seconds = iter(range(1000))
    with (
        pytest.raises(CampaignError, match=r"nothing was heard of node 0 within .*is the command on node 0 running.*is .* the same folder"),
        new_share(paths, said, patience_s=30.0, monotonic=lambda: next(seconds), sleep=lambda s: None) as share,
    ):
        share.take_part()
    assert said[0].startswith("node1: waiting for node 0 (") and "127.0.0.1:9" in said[0]
    assert 1 < len(said) < 5, "said again now and then, not all the time"


def test_a_stale_file_is_left_for_the_new_one(gate: Gate, paths: CampaignPaths, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = paths.gate.read_text()
    monkeypatch.setattr("seatrial.line.caller.time.sleep", lambda s: pytest.fail("the dead one's address is tried once"))
    write_gate(paths, ["127.0.0.1"], 9, "an old token", "demo")
    share = new_share(paths, said, digest="xyz", sleep=lambda s: paths.gate.write_text(fresh))
    with pytest.raises(UsageError, match="hash xyz here, abc there"), share:
        share.take_part()


def test_it_waits_for_the_folder_and_then_goes_on(gate: Gate, paths: CampaignPaths, said: list[str]) -> None:
    hidden = paths.gate.rename(paths.folder / "hidden")

    def found_later(seconds_s: float) -> None:
        hidden.rename(paths.gate)

    share = new_share(paths, said, sleep=found_later)
    gate.over(0)
    with share:
        part = threading.Thread(
            target=lambda: (wait_until(lambda: not gate.missing()), gate._board.send("node1", {"kind": "over", "code": 2}))
        )
        part.start()
        assert share.take_part() == 2
        part.join(PATIENCE_S)
    shared = f"it must run, with {paths.folder} as the same shared folder"
    assert said[0] == f"node1: waiting for node 0 ({paths.gate} is not there; {shared})"


def test_questions_are_answered_by_a_child(gate: Gate, paths: CampaignPaths, said: list[str]) -> None:
    part = taken(gate, paths, said)
    part._share._answering = Answering(ECHO)
    gate._questions._here = Answering(ECHO)
    for question in ({"ask": "facts"}, {"ask": "again"}):
        replies = gate.ask({"node0": question, "node1": question}, PATIENCE_S)
        assert [replies[node].told["ask"] for node in gate.nodes] == [question["ask"]] * 2
        assert not any(reply.trouble for reply in replies.values())
    part._share._answering.close()
    part._share._answering = Answering((sys.executable, "-S", "-c", "pass"))
    assert "has ended by itself" in gate.ask({"node1": {"ask": "facts"}}, PATIENCE_S)["node1"].trouble
    gate.over(0)
    part.join(PATIENCE_S)


def test_a_child_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.answering.LEAVE_PATIENCE_S", 0.2)
    answering = Answering(tuple(STANDING))
    answering.ask(1, {"ask": "facts"})
    process = answering._process
    assert process is not None
    answering.close()
    assert process.returncode == -signal.SIGKILL


def test_agents_that_do_not_end_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.started_agents.AGENT_ENDS_WITHIN_S", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    agents = StartedAgents(tmp_path)
    log = log_of(CampaignPaths(tmp_path))
    agents.start({"argv": [sys.executable, "-S", "-c", deaf], "env": {}, "log": str(log)})
    process = agents._running[0][2]
    wait_until(lambda: log.read_text() == "up\n")
    assert os.getsid(process.pid) == process.pid, "Ctrl-C in the terminal must not reach it"
    agents.end()
    assert process.returncode == -signal.SIGKILL and agents.ended() == []


def test_a_message_that_is_none_is_only_trouble(gate: Gate, paths: CampaignPaths, said: list[str]) -> None:
    part = taken(gate, paths, said)
    for message in ({"kind": "start"}, {"kind": "start", "argv": 3, "env": {}, "log": "x"}, {"kind": "ask"}, {"kind": "unheard_of"}):
        gate._board.send("node1", json.loads(json.dumps(message)))
    wait_until(lambda: sum("could not be started" in line for line in said) == 2)
    gate.over(0)
    part.join(PATIENCE_S)
    assert part.ended == 0
