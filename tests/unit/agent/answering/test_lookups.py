"""Names, programs, paths and space on this host, with words for each that is not as it should be."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from seatrial.agent.answering.lookups import names, paths, programs, space


def test_this_hosts_own_name_is_asked_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"me": ["10.0.0.1", "10.0.0.1", "fd00::1"], "other": ["10.0.0.2"]}

    def resolve(name: str, *more: object) -> list[tuple[object, ...]]:
        if name not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", (address, 0)) for address in known[name]]

    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert names({"names": ["other", "nobody", "other"]}) == {
        "own": "me",
        "addresses": {"me": ["10.0.0.1", "fd00::1"], "other": ["10.0.0.2"], "nobody": []},
        "troubles": {"nobody": "Name or service not known"},
    }


def test_programs_on_the_runs_path_alone_unless_they_may_lie_beside_the_interpreter(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "start"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    asked = {"programs": ["start", "sh"], "found_beside": ["start"], "path": "bin", "cwd": str(tmp_path)}
    assert programs(asked) == {"where": {"start": str(program), "sh": ""}}
    assert programs({}) == {"where": {}}


def test_paths_of_each_kind(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.py", tmp_path / "data"
    script.write_text("print()\n")
    folder.mkdir()
    missing = str(tmp_path / "missing")
    told = paths({"paths": {str(script): "file", str(folder): "folder", missing: "any", f"{script}/": "folder"}})
    assert told["digests"] == {str(script): hashlib.sha256(b"print()\n").hexdigest()}
    assert told["troubles"][missing] == f"{missing}: No such file or directory"
    assert set(told["troubles"]) == {missing, f"{script}/"}
    wrong = paths({"paths": {str(script): "folder", str(folder): "file"}})
    assert wrong == {"troubles": {str(script): f"{script} is no folder", str(folder): f"{folder} is no file"}, "digests": {}}


def test_what_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    # Root may read everything.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert paths({"paths": {str(secret): "file"}})["troubles"] == {str(secret): f"{secret} may not be read"}


def test_space_of_a_folder_and_of_one_that_is_not_there(tmp_path: Path) -> None:
    told = space({"folders": [str(tmp_path), "/no/such/folder"]})["folders"]
    assert 0 < told[str(tmp_path)]["free_bytes"] <= told[str(tmp_path)]["total_bytes"] and told[str(tmp_path)]["writable"] is True
    assert told["/no/such/folder"] == {"trouble": "No such file or directory"}
    assert space({}) == {"folders": {}}
