"""The answerer: every question, in this process and through its pipes; nothing stays open or on disk, and nothing hangs it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial import ports
from seatrial.agent import answers
from seatrial.agent.answering import sockets, speed, trials
from seatrial.agent.answering.code import code_digest
from seatrial.agent.answers import Answerer
from seatrial.options.ssh import ssh_words
from seatrial.records.codec import from_json
from seatrial.records.host_facts import HostFacts

FILE = ".seatrial-trial-x-1"


@pytest.fixture
def answerer() -> Iterator[Answerer]:
    one = Answerer()
    yield one
    one.close()


@pytest.fixture
def other() -> Iterator[Answerer]:
    one = Answerer()
    yield one
    one.close()


def test_facts_are_a_record(answerer: Answerer) -> None:
    told = answerer.answer({"ask": "facts"})
    facts = from_json(HostFacts, told)
    assert (facts.host, facts.uid) == (socket.gethostname(), os.geteuid())
    assert facts.seatrial and facts.cpu_count > 0 and facts.memory_bytes > 0 and "lo" in facts.interfaces
    assert told["received_t"] <= told["sent_t"]


def test_parts_are_answered_at_once_and_by_name(answerer: Answerer) -> None:
    told = answerer.answer({"n": 7, "ask": "all", "parts": {"a": {"ask": "clock"}, "b": {"ask": "nonsense"}, "c": "no question"}})
    assert told["n"] == 7 and told["parts"]["a"] == {}
    assert "does not know the question 'nonsense'" in told["parts"]["b"]["trouble"] and "c" not in told["parts"]


def test_what_hangs_is_told_of_and_holds_up_nobody(answerer: Answerer, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setitem(answerer._questions, "facts", lambda question: {"over": over.wait(60)})
    monkeypatch.setitem(answers.LIMITS_S, "facts", 0.05)
    told = answerer.answer({"ask": "all", "parts": {"hung": {"ask": "facts"}, "sound": {"ask": "clock"}}})
    over.set()
    assert told["parts"] == {"hung": {"trouble": "no answer within 0.05 s"}, "sound": {}}


def test_what_breaks_is_told_of(answerer: Answerer) -> None:
    assert "KeyError" in answerer.answer({"ask": "put"})["trouble"]
    assert "trouble" in answerer.answer({})


def test_names(answerer: Answerer) -> None:
    told = answerer.answer({"ask": "names", "names": ["localhost", "no-such-host.invalid"]})
    assert told["own"] == socket.gethostname() and "127.0.0.1" in told["addresses"]["localhost"]
    assert told["addresses"]["no-such-host.invalid"] == [] and "no-such-host.invalid" in told["troubles"]


def test_programs_paths_and_space(answerer: Answerer, tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    told = answerer.answer({"ask": "programs", "programs": ["tool", "gone"], "path": str(tmp_path), "cwd": "/"})
    assert told["where"] == {"tool": str(program), "gone": ""}
    paths = {str(program): "file", str(tmp_path): "folder", str(tmp_path / "no"): "any", str(program) + "/": "any"}
    told = answerer.answer({"ask": "paths", "paths": {**paths, str(tmp_path) + "/.": "file"}})
    assert set(told["troubles"]) == {str(tmp_path / "no"), str(tmp_path) + "/."}
    disks = answerer.answer({"ask": "space", "folders": [str(tmp_path), "/no/such"]})["folders"]
    assert disks[str(tmp_path)]["free_bytes"] > 0 and disks["/no/such"]["trouble"] == "No such file or directory"


def test_a_port_is_reached_by_who_knows_the_token_and_is_free_afterwards(answerer: Answerer, other: Answerer) -> None:
    port = answerer.answer({"ask": "listen", "token": "secret"})["port"]
    targets = {
        "right": {"addresses": ["127.0.0.1"], "port": port, "token": "secret"},
        "wrong": {"addresses": ["127.0.0.1"], "port": port, "token": "another"},
        "one of two": {"addresses": ["127.0.0.9.9.invalid", "127.0.0.1"], "port": port, "token": "secret"},
        "nowhere": {"addresses": [], "port": port, "token": "secret"},
    }
    told = other.answer({"ask": "reach", "targets": targets})
    assert told["troubles"] == {"wrong": "127.0.0.1: somebody else answers there", "nowhere": "no address is known"}
    assert told["at"] == {"right": "127.0.0.1", "one of two": "127.0.0.1"}
    answerer.answer({"ask": "close"})
    # Reserved as a run does it: no connection may linger there.
    ports.reserve_port(port).close()


def test_the_speed_of_a_link_is_told_both_ways_and_the_port_is_free_afterwards(answerer: Answerer, other: Answerer) -> None:
    port = answerer.answer({"ask": "listen", "token": "t", "word": "w"})["port"]
    target = {"addresses": ["127.0.0.1"], "port": port, "token": "t", "word": "w"}
    told = other.answer({"ask": "speed", "target": target, "seconds": 0.2, "bytes": 1 << 20})
    assert told["to"] > 1 << 20 and told["from"] > 1 << 20
    answerer.answer({"ask": "close"})
    ports.reserve_port(port).close()
    assert "Connection refused" in other.answer({"ask": "speed", "target": target, "seconds": 0.2, "bytes": 1 << 20})["trouble"]


def test_nobody_is_sent_anything_who_does_not_know_the_word(answerer: Answerer) -> None:
    for said in (b"another send 1 9999\n", b"w send\n", b"w send x y\n", b"\xff\n", b"x" * 600):
        port = answerer.answer({"ask": "listen", "token": "t", "word": "w"})["port"]
        with socket.create_connection(("127.0.0.1", port), 10) as stranger:
            assert stranger.recv(2) == b"t\n"
            stranger.sendall(said)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    # Without a word there are no trials.
    port = answerer.answer({"ask": "listen", "token": "t"})["port"]
    target = {"addresses": ["127.0.0.1"], "port": port, "token": "t", "word": ""}
    assert "trouble" in answerer.answer({"ask": "speed", "target": target, "seconds": 0.1, "bytes": 1000})


def test_a_link_that_brings_nothing_is_told_of(answerer: Answerer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = {"addresses": ["127.0.0.1"], "port": mute.getsockname()[1], "token": "t", "word": "w"}
        told = answerer.answer({"ask": "speed", "target": target, "seconds": 0.1, "bytes": 1000})
    assert "timed out" in told["trouble"]


def test_what_is_counted_is_what_came_in_the_time() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"x" * 1000)
        assert speed._rate(here, 0.05, 1 << 20) == pytest.approx(1000 / 0.05, rel=0.9)
        there.sendall(b"x" * 1000)
        assert speed._rate(here, 5.0, 1000) > 0, "the bytes are over before the seconds"
        there.close()
        assert speed._rate(here, 5.0, 1000) == 0


def test_digests_of_code_and_scripts(answerer: Answerer, tmp_path: Path) -> None:
    (tmp_path / "seatrial").mkdir()
    (tmp_path / "seatrial" / "a.py").write_text("1")
    seen = {code_digest.__wrapped__(tmp_path)}
    (tmp_path / "seatrial" / "a.txt").write_text("no code")
    assert code_digest.__wrapped__(tmp_path) in seen
    (tmp_path / "seatrial" / "a.py").rename(tmp_path / "seatrial" / "b.py")
    seen.add(code_digest.__wrapped__(tmp_path))
    (tmp_path / "seatrial" / "b.py").write_text("2")
    seen.add(code_digest.__wrapped__(tmp_path))
    assert len(seen) == 3
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    told = answerer.answer({"ask": "paths", "paths": {str(script): "file", str(tmp_path): "folder", str(tmp_path / "x"): "file"}})
    assert told["digests"] == {str(script): hashlib.sha256(b"pass\n").hexdigest()}
    assert answerer.answer({"ask": "facts"})["code"] == code_digest()


def test_a_closed_port_is_refused_in_words(answerer: Answerer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert answerer.answer({"ask": "listen", "port": port})["trouble"] == "Address already in use"
    told = answerer.answer({"ask": "reach", "targets": {"a": {"addresses": ["127.0.0.1"], "port": port, "token": "x"}}})
    assert told["troubles"] == {"a": "127.0.0.1: Connection refused"}


def test_who_says_nothing_is_no_answer(answerer: Answerer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = {"addresses": ["127.0.0.1"], "port": mute.getsockname()[1], "token": "x"}
        told = answerer.answer({"ask": "reach", "limit_s": 0.1, "targets": {"a": target}})
    assert told["troubles"] == {"a": "127.0.0.1: no answer within 0.1 s"}


def test_ports_of_a_plan(answerer: Answerer) -> None:
    with socket.create_server(("", 0)) as taken:
        base = taken.getsockname()[1]
        port = answerer.answer({"ask": "listen", "base": base})["port"]
    assert base < port < base + ports.NUM_PORTS
    assert sockets._wanted({"any": True}) == [0] and sockets._wanted({})[-1] == 0


def test_files_are_seen_replaced_and_removed(answerer: Answerer, other: Answerer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "LOOK_FOR_S", 0.0)
    put = {"ask": "put", "folder": str(tmp_path), "name": FILE}
    look: dict[str, Any] = {"ask": "look", "folder": str(tmp_path)}
    assert "trouble" not in answerer.answer({**put, "text": "one"})
    assert other.answer({**look, "wanted": {FILE: "one"}})["troubles"] == {}
    assert other.answer({**look, "wanted": {FILE: ["one", "two"]}})["troubles"] == {}
    assert other.answer({**look, "wanted": {FILE: "two"}})["troubles"] == {FILE: "an older text is seen there"}
    answerer.answer({**put, "text": "two"})
    assert other.answer({**look, "wanted": {FILE: "two"}})["troubles"] == {}
    assert other.answer({**look, "wanted": {FILE + "0": "x"}})["troubles"] == {FILE + "0": "No such file or directory"}
    answerer.answer({"ask": "close"})
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_for_others_until_it_is_let_go(answerer: Answerer, other: Answerer, tmp_path: Path) -> None:
    lock = {"folder": str(tmp_path), "name": ".seatrial-trial-x.lock"}
    assert "trouble" not in answerer.answer({"ask": "lock", **lock})
    assert other.answer({"ask": "is_held", **lock})["held"] is True
    os.close(answerer._trials._locked.pop())
    assert other.answer({"ask": "is_held", **lock})["held"] is False


@pytest.mark.parametrize("name", ["results.json", "../.seatrial-trial-x", ".seatrial-trial-/../x"])
def test_nothing_but_trial_files_can_be_touched(answerer: Answerer, tmp_path: Path, name: str) -> None:
    for ask in ("put", "lock", "is_held"):
        assert "is no file of a trial" in answerer.answer({"ask": ask, "folder": str(tmp_path), "name": name})["trouble"]
    assert "is no file of a trial" in answerer.answer({"ask": "look", "folder": str(tmp_path), "wanted": {name: ""}})["trouble"]
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_is_told_with_what_could_not_be_done(answerer: Answerer, tmp_path: Path) -> None:
    told = answerer.answer({"ask": "put", "folder": str(tmp_path / "no"), "name": FILE})
    assert told["trouble"] == f"in {tmp_path / 'no'} no file can be written: No such file or directory"


def test_ssh_is_asked_without_a_password(answerer: Answerer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "ssh"
    fake.write_text('#!/bin/sh\necho "$@" > "$0.words"\necho "Permission denied (publickey)." >&2\nexit 255\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = answerer.answer({"ask": "ssh", "host": "node1", "args": ["-p", "2222"]})
    assert told["trouble"] == "Permission denied (publickey)."
    assert (tmp_path / "ssh.words").read_text() == f"{' '.join(ssh_words('node1', ['true'], ['-p', '2222'])[1:])}\n"


def test_the_process_answers_and_ends_when_its_input_does(tmp_path: Path) -> None:
    put = {"n": 1, "ask": "put", "folder": str(tmp_path), "name": FILE, "text": "x"}
    questions = "".join(f"{line}\n" for line in ("not JSON", json.dumps(put), json.dumps({"n": 2, "ask": "clock"})))
    command = [sys.executable, "-P", "-m", "seatrial.agent.answers"]
    done = subprocess.run(command, input=questions, capture_output=True, text=True, timeout=60, check=True)
    ready, first, second = map(json.loads, done.stdout.splitlines())
    assert ready["ready"] is True and ready["host"] == socket.gethostname()
    assert (first["n"], second["n"], done.stderr) == (1, 2, "")
    assert list(tmp_path.iterdir()) == [], "the end of the input removes what was put"


def test_a_process_that_is_ended_cleans_up_too(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "seatrial.agent.answers"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps({"ask": "put", "folder": str(tmp_path), "name": FILE}) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.readline()
        assert list(tmp_path.iterdir()) == [tmp_path / FILE]
        process.terminate()
        process.wait(60)
    assert list(tmp_path.iterdir()) == []


def test_the_function_for_who_has_no_pipe(tmp_path: Path) -> None:
    answers.answer({"ask": "put", "folder": str(tmp_path), "name": FILE})
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert "trouble" not in answers.answer({"ask": "close"})
    assert list(tmp_path.iterdir()) == []
