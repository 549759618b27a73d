"""What a host tells of itself; what it cannot read is empty, and nothing fails for it."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from seatrial.agent.answering import facts as module
from seatrial.agent.answering.facts import facts, gpus
from seatrial.machine.gpus import HUNG, Driver


def test_the_runs_own_interpreter_is_told_of_where_one_is_named() -> None:
    told = facts({"program": [sys.executable], "cwd": "/", "variables": {"PYTHONNOUSERSITE": "1"}})
    assert told["python"] == ".".join(map(str, sys.version_info[:3])) and isinstance(told["packages"], dict)
    assert told["uid"] == os.geteuid() and told["code"] and told["interfaces"]["lo"]


def test_what_cannot_be_read_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("uid not found")

    def unreadable() -> str:
        raise OSError("stale file handle")

    monkeypatch.setattr(module, "boot_id", lambda: "")
    monkeypatch.setattr(getpass, "getuser", unknown)
    monkeypatch.setattr(module, "code_digest", unreadable)
    told = facts({})
    assert (told["boot_id"], told["user"], told["code"]) == ("", "", "") and told["host"]


def _driver(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    monkeypatch.setattr(module, "read_driver", lambda: driver)


def test_a_host_without_a_driver_has_no_gpus_and_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(monkeypatch, Driver(problem="no library", no_driver=True))
    assert gpus({}) == {"gpus": [], "driver_version": "", "driver_cuda": ""}


def test_gpus_by_name_and_the_trouble_of_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    two = (SimpleNamespace(name="H100"), SimpleNamespace(name="A100"))
    _driver(monkeypatch, Driver(gpus=two, version="570.1", cuda="12.8"))  # type: ignore[arg-type]
    assert gpus({}) == {"gpus": ["H100", "A100"], "driver_version": "570.1", "driver_cuda": "12.8"}
    _driver(monkeypatch, HUNG)
    assert gpus({})["trouble"] == HUNG.problem
