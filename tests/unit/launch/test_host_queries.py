"""Queries to many hosts at once."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from seatrial.core.errors import LaunchError
from seatrial.core.hostfile import HostSpec
from seatrial.core.launcher_options import SSH_OPTIONS
from seatrial.launch import host_queries
from seatrial.launch.host_queries import HostSessions, answer_commands, own_host
from seatrial.machine.network import THIS_MACHINE
from tests.processes import is_gone, own_children
from tests.waiting import wait_until

REAL = (sys.executable, "-P", "-m", "seatrial.agent.query_handler")
READY = """echo '{"ready": true}'; """


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


def answering(before: str = "") -> tuple[str, ...]:
    return shell(READY + f"""n=0; while read line; do n=$((n+1)); {before} echo "{{\\"n\\": $n}}"; done""")


def ask_all(sessions: HostSessions, names: list[str], timeout_s: float = 30.0) -> dict[str, str]:
    return {name: reply.trouble for name, reply in sessions.ask({name: {"ask": "clock"} for name in names}, timeout_s).items()}


def test_a_real_answering_process_answers_and_its_clock_is_measured() -> None:
    with HostSessions({"here": REAL}) as sessions:
        reply = sessions.ask({"here": {"ask": "facts"}}, 30.0)["here"]
    assert reply.trouble == "" and reply.answer["seatrial"]
    assert reply.clock is not None and abs(reply.clock.offset_s) <= reply.clock.round_trip_s + 0.01


def test_all_queries_are_sent_before_any_answer_is_awaited(tmp_path: Path) -> None:
    # The first answers once the last has its query: sessions that took turns would never end.
    names = [f"node{number}" for number in range(64)]
    commands = {name: answering() for name in names}
    commands["node0"] = answering(f"until [ -e {tmp_path}/last ]; do sleep 0.01; done;")
    commands["node63"] = answering(f"touch {tmp_path}/last;")
    with HostSessions(commands) as sessions:
        assert ask_all(sessions, names) == dict.fromkeys(names, "")
        assert ask_all(sessions, names) == dict.fromkeys(names, "")


def test_sessions_that_do_not_start_answer_or_live_have_a_trouble() -> None:
    commands = {
        "sound": answering(),
        "mute": shell("exec sleep 60"),
        "denied": shell("echo 'debug: one' >&2; echo 'Permission denied (publickey).' >&2; exit 255"),
        "gone": ("/no/such/ssh", "node"),
        "ends": shell(READY + "read line; exit 3"),
    }
    with HostSessions(commands, start_s=0.5) as sessions:
        assert ask_all(sessions, list(commands), 20.0) == {
            "sound": "",
            "mute": "the session did not start within 0.5 s",
            "denied": "Permission denied (publickey). (ended with 255)",
            "gone": "/no/such/ssh: No such file or directory",
            "ends": "it ended with 3",
        }
        # Not waited for again, and the sound one still answers.
        assert ask_all(sessions, ["sound", "mute"], 20.0)["sound"] == ""


def test_an_answer_that_comes_too_late_is_not_mistaken_for_a_later_one() -> None:
    with HostSessions({"late": answering("sleep 0.3;"), "sound": answering()}) as sessions:
        assert ask_all(sessions, ["late", "sound"], 0.1) == {"late": "no answer within 0.1 s", "sound": ""}
        assert ask_all(sessions, ["late", "sound"], 5.0)["late"] == "no answer within 0.1 s"


def test_a_query_that_is_longer_than_a_pipe_goes_in_parts() -> None:
    # One reads late, so that the pipe is full for a while; the other answers meanwhile.
    late = shell(READY + """sleep 0.2; read line; echo "{\\"n\\": 1, \\"length\\": ${#line}}"; read line; echo '{"n": 2}'; read line""")
    query = {"ask": "names", "names": ["node"] * 50_000}
    with HostSessions({"late": late, "real": REAL}) as sessions:
        replies = sessions.ask({"late": query, "real": {**query, "ask": "clock"}}, 30.0)
        assert [reply.trouble for reply in replies.values()] == ["", ""]
        assert replies["late"].answer["length"] == len(json.dumps({**query, "n": 1}))
        clock = replies["real"].clock
        assert clock is not None and abs(clock.offset_s) <= clock.round_trip_s + 0.05
        assert ask_all(sessions, ["late", "real"]) == {"late": "", "real": ""}


def test_who_ends_while_a_query_is_on_its_way_is_a_trouble() -> None:
    with HostSessions({"ends": shell(READY + "sleep 0.2; exit 3"), "sound": answering()}) as sessions:
        replies = sessions.ask({"ends": {"ask": "names", "names": ["node"] * 50_000}, "sound": {"ask": "clock"}}, 30.0)
    assert replies["ends"].trouble in ("it ended with 3", "Broken pipe") and replies["sound"].trouble == ""


def test_room_is_made_for_the_pipes_of_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted_limits: list[int] = []
    monkeypatch.setattr(host_queries, "raise_fd_limit", lambda wanted: wanted_limits.append(wanted) or 200)
    with HostSessions({f"node{number}": answering() for number in range(10)}):
        assert wanted_limits == [3 * 10 + host_queries.OTHER_DESCRIPTORS]
    problem = "400 hosts at once need 1328 open files, and the limit is 200"
    with pytest.raises(LaunchError, match=problem), HostSessions({f"node{number}": ("/no/such",) for number in range(400)}):
        pass


def test_what_a_login_script_prints_is_skipped() -> None:
    noisy = shell("echo 'Welcome to node1!'; echo '[1, 2]'; " + READY + """read line; echo 'you have mail'; echo '{"n": 1, "x": 2}'""")
    with HostSessions({"node1": noisy}) as sessions:
        assert sessions.ask({"node1": {"ask": "clock"}}, 20.0)["node1"].answer == {"n": 1, "x": 2}


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    stubborn = shell(f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 60 & echo $! > {tmp_path}/child; " + READY + "wait")
    with HostSessions({"stubborn": stubborn, "sound": REAL}, start_s=20.0) as sessions:
        ask_all(sessions, ["sound", "stubborn"], 0.5)
        processes = own_children()
    assert len(processes) >= 2 and all(is_gone(process.pid) for process in processes)
    for name in ("pid", "child"):
        pid = int((tmp_path / name).read_text())
        # A killed process that is nobody's child here may take a moment to be gone; by itself it would end after 60 s.
        wait_until(partial(is_gone, pid), f"the {name} ends", timeout_s=20.0)


def test_sessions_that_cannot_all_be_opened_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []

    class Failing(HostSessions):
        def close(self) -> None:
            started.extend(self._sessions)
            super().close()

    with pytest.raises(TypeError), Failing({"a": answering(), "b": (1,)}):  # type: ignore[dict-item]
        pass
    assert started == ["a"]


def test_commands_for_this_host_and_others() -> None:
    hosts = (HostSpec(name="head"), HostSpec(name="node1"))
    commands = answer_commands(hosts, "head", python="/opt/my venv/bin/python", ssh_args=("-p", "2222"), env={"PYTHONPATH": "/a b:/c"})
    answerer = ("/opt/my venv/bin/python", "-P", "-m", "seatrial.agent.query_handler")
    assert commands["head"] == answerer
    *ssh, host, separator, remote = commands["node1"]
    assert ssh == ["ssh", "-p", "2222", *SSH_OPTIONS]
    assert (host, separator) == ("node1", "--")
    assert remote == "env 'PYTHONPATH=/a b:/c' '/opt/my venv/bin/python' -P -m seatrial.agent.query_handler"


def test_the_head_is_always_included() -> None:
    hosts = (HostSpec(name="node1"), HostSpec(name="node2"))
    assert own_host(hosts, lambda name: name == "node2") == "node2"
    assert own_host(hosts, lambda name: False) == THIS_MACHINE
    commands = answer_commands(hosts, THIS_MACHINE, env={})
    assert set(commands) == {THIS_MACHINE, "node1", "node2"}
    assert commands[THIS_MACHINE][0] == sys.executable and "env" not in commands["node1"][-1].split()
    assert os.sep not in THIS_MACHINE
