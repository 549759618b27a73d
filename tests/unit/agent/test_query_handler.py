"""Answers to the doctor's queries about a host."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.agent import connectivity, query_handler
from seatrial.agent.connectivity import describe_error, run_concurrently
from seatrial.agent.query_handler import (
    QueryHandler,
    check_paths,
    find_programs,
    hash_code,
    measure_space,
    read_facts,
    read_gpus,
    resolve_names,
)
from seatrial.core import ports
from seatrial.core.launcher_options import ssh_command
from seatrial.machine.gpus import HUNG_DRIVER, Driver
from seatrial.records.attempt import HostFacts
from seatrial.records.codec import from_json

FILE = ".seatrial-trial-x-1"


@pytest.fixture
def answerer() -> Iterator[QueryHandler]:
    one = QueryHandler()
    yield one
    one.close()


@pytest.fixture
def other() -> Iterator[QueryHandler]:
    one = QueryHandler()
    yield one
    one.close()


def test_facts_are_a_record(answerer: QueryHandler) -> None:
    answer = answerer.answer({"ask": "facts"})
    facts = from_json(HostFacts, answer)
    assert (facts.host, facts.uid) == (socket.gethostname(), os.geteuid())
    assert facts.seatrial and facts.cpu_count > 0 and facts.memory_bytes > 0 and "lo" in facts.interfaces
    assert answer["received_t"] <= answer["sent_t"]


def test_parts_are_answered_by_name(answerer: QueryHandler) -> None:
    answer = answerer.answer({"n": 7, "ask": "all", "parts": {"a": {"ask": "clock"}, "b": {"ask": "nonsense"}, "c": "no query"}})
    assert answer["n"] == 7 and answer["parts"]["a"] == {}
    assert "does not know the query 'nonsense'" in answer["parts"]["b"]["trouble"] and "c" not in answer["parts"]


def test_an_error_is_reported(answerer: QueryHandler) -> None:
    assert "KeyError" in answerer.answer({"ask": "put"})["trouble"]
    assert "trouble" in answerer.answer({})


def test_a_port_is_reached_with_the_token_and_free_afterwards(answerer: QueryHandler, other: QueryHandler) -> None:
    port = answerer.answer({"ask": "listen", "token": "secret"})["port"]
    targets = {
        "right": {"addresses": ["127.0.0.1"], "port": port, "token": "secret"},
        "wrong": {"addresses": ["127.0.0.1"], "port": port, "token": "another"},
        "one of two": {"addresses": ["127.0.0.9.9.invalid", "127.0.0.1"], "port": port, "token": "secret"},
        "nowhere": {"addresses": [], "port": port, "token": "secret"},
    }
    answer = other.answer({"ask": "reach", "targets": targets})
    assert answer["troubles"] == {"wrong": "127.0.0.1: another program answers there", "nowhere": "no address is known"}
    assert answer["at"] == {"right": "127.0.0.1", "one of two": "127.0.0.1"}
    answerer.answer({"ask": "close"})
    # Reserved as a run does it: no connection may linger there.
    ports.reserve_port(port).close()


def test_the_speed_of_a_link_is_measured_both_ways_and_the_port_is_free_afterwards(answerer: QueryHandler, other: QueryHandler) -> None:
    port = answerer.answer({"ask": "listen", "token": "t", "word": "w"})["port"]
    target = {"addresses": ["127.0.0.1"], "port": port, "token": "t", "word": "w"}
    answer = other.answer({"ask": "speed", "target": target, "seconds": 0.2, "bytes": 1 << 20})
    assert answer["to"] > 1 << 20 and answer["from"] > 1 << 20
    answerer.answer({"ask": "close"})
    ports.reserve_port(port).close()
    assert "Connection refused" in other.answer({"ask": "speed", "target": target, "seconds": 0.2, "bytes": 1 << 20})["trouble"]


def test_nothing_is_sent_without_the_word(answerer: QueryHandler) -> None:
    for request in (b"another send 1 9999\n", b"w send\n", b"w send x y\n", b"\xff\n", b"x" * 600):
        port = answerer.answer({"ask": "listen", "token": "t", "word": "w"})["port"]
        with socket.create_connection(("127.0.0.1", port), 10) as stranger:
            assert stranger.recv(2) == b"t\n"
            stranger.sendall(request)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    # An empty word authorises nothing.
    port = answerer.answer({"ask": "listen", "token": "t"})["port"]
    target = {"addresses": ["127.0.0.1"], "port": port, "token": "t", "word": ""}
    assert "trouble" in answerer.answer({"ask": "speed", "target": target, "seconds": 0.1, "bytes": 1000})


def test_a_silent_link_times_out(answerer: QueryHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectivity, "TRANSFER_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = {"addresses": ["127.0.0.1"], "port": mute.getsockname()[1], "token": "t", "word": "w"}
        answer = answerer.answer({"ask": "speed", "target": target, "seconds": 0.1, "bytes": 1000})
    assert "timed out" in answer["trouble"]


def test_the_digest_of_the_code(answerer: QueryHandler, tmp_path: Path) -> None:
    (tmp_path / "seatrial").mkdir()
    (tmp_path / "seatrial" / "a.py").write_text("1")
    seen = {hash_code.__wrapped__(tmp_path)}
    (tmp_path / "seatrial" / "a.txt").write_text("no code")
    assert hash_code.__wrapped__(tmp_path) in seen
    (tmp_path / "seatrial" / "a.py").rename(tmp_path / "seatrial" / "b.py")
    seen.add(hash_code.__wrapped__(tmp_path))
    (tmp_path / "seatrial" / "b.py").write_text("2")
    seen.add(hash_code.__wrapped__(tmp_path))
    assert len(seen) == 3
    assert answerer.answer({"ask": "facts"})["code"] == hash_code()


def test_a_closed_port_is_refused(answerer: QueryHandler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert answerer.answer({"ask": "listen", "port": port})["trouble"] == "Address already in use"
    answer = answerer.answer({"ask": "reach", "targets": {"a": {"addresses": ["127.0.0.1"], "port": port, "token": "x"}}})
    assert answer["troubles"] == {"a": "127.0.0.1: Connection refused"}


def test_a_silent_listener_is_no_answer(answerer: QueryHandler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = {"addresses": ["127.0.0.1"], "port": mute.getsockname()[1], "token": "x"}
        answer = answerer.answer({"ask": "reach", "limit_s": 0.1, "targets": {"a": target}})
    assert answer["troubles"] == {"a": "127.0.0.1: no answer within 0.1 s"}


def test_ports_of_a_plan(answerer: QueryHandler) -> None:
    with socket.create_server(("", 0)) as taken:
        base = taken.getsockname()[1]
        port = answerer.answer({"ask": "listen", "base": base})["port"]
    assert base < port < base + ports.NUM_PORTS


def test_files_are_seen_replaced_and_removed(
    answerer: QueryHandler, other: QueryHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_handler, "FILE_TIMEOUT_S", 0.0)
    put = {"ask": "put", "folder": str(tmp_path), "name": FILE}
    look: dict[str, Any] = {"ask": "look", "folder": str(tmp_path)}
    assert "trouble" not in answerer.answer({**put, "text": "one"})
    assert other.answer({**look, "wanted": {FILE: "one"}})["troubles"] == {}
    assert other.answer({**look, "wanted": {FILE: ["one", "two"]}})["troubles"] == {}
    assert other.answer({**look, "wanted": {FILE: "two"}})["troubles"] == {FILE: "stale content is read there"}
    answerer.answer({**put, "text": "two"})
    assert other.answer({**look, "wanted": {FILE: "two"}})["troubles"] == {}
    assert other.answer({**look, "wanted": {FILE + "0": "x"}})["troubles"] == {FILE + "0": "No such file or directory"}
    answerer.answer({"ask": "close"})
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_seen_by_others(answerer: QueryHandler, other: QueryHandler, tmp_path: Path) -> None:
    lock = {"folder": str(tmp_path), "name": ".seatrial-trial-x.lock"}
    assert "trouble" not in answerer.answer({"ask": "lock", **lock})
    assert other.answer({"ask": "is_held", **lock})["held"] is True
    (tmp_path / ".seatrial-trial-y.lock").touch()
    assert other.answer({"ask": "is_held", **lock, "name": ".seatrial-trial-y.lock"})["held"] is False


@pytest.mark.parametrize("name", ["results.json", "../.seatrial-trial-x", ".seatrial-trial-/../x"])
def test_only_test_files_can_be_touched(answerer: QueryHandler, tmp_path: Path, name: str) -> None:
    for ask in ("put", "lock", "is_held"):
        assert "is not a test file" in answerer.answer({"ask": ask, "folder": str(tmp_path), "name": name})["trouble"]
    assert "is not a test file" in answerer.answer({"ask": "look", "folder": str(tmp_path), "wanted": {name: ""}})["trouble"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_reported(answerer: QueryHandler, tmp_path: Path) -> None:
    answer = answerer.answer({"ask": "put", "folder": str(tmp_path / "no"), "name": FILE})
    assert answer["trouble"] == f"in {tmp_path / 'no'} no file can be written: No such file or directory"


def test_ssh_is_tried_without_a_password(answerer: QueryHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "ssh"
    fake.write_text('#!/bin/sh\necho "$@" > "$0.argv"\necho "Permission denied (publickey)." >&2\nexit 255\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = answerer.answer({"ask": "ssh", "host": "node1", "args": ["-p", "2222"]})
    assert answer["trouble"] == "Permission denied (publickey)."
    assert (tmp_path / "ssh.argv").read_text() == f"{' '.join(ssh_command('node1', ['true'], ['-p', '2222'])[1:])}\n"


def test_the_process_answers_and_ends_when_its_input_does(tmp_path: Path) -> None:
    put = {"n": 1, "ask": "put", "folder": str(tmp_path), "name": FILE, "text": "x"}
    queries = "".join(f"{line}\n" for line in ("not JSON", json.dumps(put), json.dumps({"n": 2, "ask": "clock"})))
    command = [sys.executable, "-P", "-m", "seatrial.agent.query_handler"]
    done = subprocess.run(command, input=queries, capture_output=True, text=True, timeout=60, check=True)
    ready, first, second = map(json.loads, done.stdout.splitlines())
    assert ready["ready"] is True and ready["host"] == socket.gethostname()
    assert (first["n"], second["n"], done.stderr) == (1, 2, "")
    assert list(tmp_path.iterdir()) == [], "the end of the input removes what was put"


def test_a_process_that_is_ended_cleans_up_too(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "seatrial.agent.query_handler"]
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


LONG_S = 60.0


def test_all_run_concurrently() -> None:
    both = threading.Barrier(2, timeout=LONG_S)

    def meet() -> dict[str, int]:
        return {"place": both.wait()}

    answer = run_concurrently({"one": (meet, LONG_S), "two": (meet, LONG_S)})
    assert {answer["one"]["place"], answer["two"]["place"]} == {0, 1}


def test_one_that_hangs_times_out_and_its_late_answer_changes_nothing() -> None:
    over = threading.Event()

    def hang() -> dict[str, str]:
        over.wait(LONG_S)
        return {"late": "word"}

    answer = run_concurrently({"hung": (hang, 0.0), "well": (dict, LONG_S)})
    over.set()
    assert answer == {"hung": {"trouble": "no answer within 0 s"}, "well": {}}


@pytest.mark.parametrize(
    ("error", "description"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (OSError(98, "Address already in use (while attempting to bind on address ('', 1))"), "Address already in use"),
        (OSError("no number"), "OSError: no number"),
        (ValueError("odd"), "ValueError: odd"),
        (KeyError(), "KeyError"),
    ],
)
def test_errors_are_described(error: BaseException, description: str) -> None:
    assert describe_error(error) == description


def test_facts_of_a_named_interpreter() -> None:
    answer = read_facts({"program": [sys.executable], "cwd": "/", "variables": {"PYTHONNOUSERSITE": "1"}})
    assert answer["python"] == ".".join(map(str, sys.version_info[:3])) and isinstance(answer["packages"], dict)
    assert answer["uid"] == os.geteuid() and answer["code"] and answer["interfaces"]["lo"]


def test_what_cannot_be_read_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("uid not found")

    def unreadable() -> str:
        raise OSError("stale file handle")

    monkeypatch.setattr(query_handler, "read_boot_id", lambda: "")
    monkeypatch.setattr(getpass, "getuser", unknown)
    monkeypatch.setattr(query_handler, "hash_code", unreadable)
    answer = read_facts({})
    assert (answer["boot_id"], answer["user"], answer["code"]) == ("", "", "") and answer["host"]


def _driver(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    monkeypatch.setattr(query_handler, "read_driver", lambda: driver)


def test_a_host_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(monkeypatch, Driver(problem="no library", no_driver=True))
    assert read_gpus({}) == {"gpus": [], "driver_version": "", "driver_cuda": ""}


def test_gpus_by_name_and_a_hung_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    two = (SimpleNamespace(name="H100"), SimpleNamespace(name="A100"))
    _driver(monkeypatch, Driver(gpus=two, version="570.1", cuda="12.8"))  # type: ignore[arg-type]
    assert read_gpus({}) == {"gpus": ["H100", "A100"], "driver_version": "570.1", "driver_cuda": "12.8"}
    _driver(monkeypatch, HUNG_DRIVER)
    assert read_gpus({})["trouble"] == HUNG_DRIVER.problem


def test_names_and_this_hosts_own(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"me": ["10.0.0.1", "10.0.0.1", "fd00::1"], "other": ["10.0.0.2"]}

    def resolve(name: str, *more: object) -> list[tuple[object, ...]]:
        if name not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", (address, 0)) for address in known[name]]

    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert resolve_names({"names": ["other", "nobody", "other"]}) == {
        "own": "me",
        "addresses": {"me": ["10.0.0.1", "fd00::1"], "other": ["10.0.0.2"], "nobody": []},
        "troubles": {"nobody": "Name or service not known"},
    }


def test_programs_on_the_runs_path_or_beside_the_interpreter(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "start"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    query = {"programs": ["start", "sh"], "found_beside": ["start"], "path": "bin", "cwd": str(tmp_path)}
    assert find_programs(query) == {"where": {"start": str(program), "sh": ""}}
    assert find_programs({}) == {"where": {}}


def test_paths_of_each_kind(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.py", tmp_path / "data"
    script.write_text("print()\n")
    folder.mkdir()
    missing = str(tmp_path / "missing")
    answer = check_paths({"paths": {str(script): "file", str(folder): "folder", missing: "any", f"{script}/": "folder"}})
    assert answer["digests"] == {str(script): hashlib.sha256(b"print()\n").hexdigest()}
    assert answer["troubles"][missing] == f"{missing}: No such file or directory"
    assert set(answer["troubles"]) == {missing, f"{script}/"}
    wrong = check_paths({"paths": {str(script): "folder", str(folder): "file"}})
    assert wrong == {"troubles": {str(script): f"{script} is not a folder", str(folder): f"{folder} is not a file"}, "digests": {}}


def test_an_unreadable_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    # Root may read everything.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert check_paths({"paths": {str(secret): "file"}})["troubles"] == {str(secret): f"{secret} may not be read"}


def test_space_of_folders(tmp_path: Path) -> None:
    answer = measure_space({"folders": [str(tmp_path), "/no/such/folder"]})["folders"]
    assert 0 < answer[str(tmp_path)]["free_bytes"] <= answer[str(tmp_path)]["total_bytes"] and answer[str(tmp_path)]["writable"] is True
    assert answer["/no/such/folder"] == {"trouble": "No such file or directory"}
    assert measure_space({}) == {"folders": {}}
