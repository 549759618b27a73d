"""Ending what lost hosts still run: what is told of it, whatever those hosts do. Times are passed in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from seatrial.errors import HostError
from seatrial.launch.transports.leftovers import PATIENCE_S, Leftovers, killed_by_report
from seatrial.launch.transports.transport import Ended, Errand, Start, ending
from seatrial.records.codec import to_json
from seatrial.records.command import AgentReport

WORDS = ("python", "--end", "/my out/attempt-1")


class _Errand:
    def __init__(self) -> None:
        self.how: Ended | None = None
        self.dropped = False

    def ended(self) -> Ended | None:
        return self.how

    def drop(self) -> None:
        self.dropped = True


class _Transport:
    kind = "simulated"

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self.begun: dict[str, _Errand] = {}

    def start(self, starts: Sequence[Start]) -> None:
        raise AssertionError

    def ended(self) -> dict[str, Ended]:
        raise AssertionError

    def errand(self, start: Start) -> Errand:
        if self.trouble:
            raise HostError(self.trouble, host=start.host, cause="node_not_started")
        assert start.host not in self.begun and start.words == WORDS
        return self.begun.setdefault(start.host, _Errand())

    def close(self, after_run: bool = True) -> None:
        raise AssertionError


class _Setting:
    def __init__(self, folder: Path, trouble: str = "") -> None:
        self.folder, self.transport, self.now = folder, _Transport(trouble), 0.0
        names = ("n1", "n2", "n3")
        self.leftovers = Leftovers([(self.transport, names)], self.start_of, monotonic=lambda: self.now)

    def start_of(self, name: str) -> Start:
        return Start(host=name, words=WORDS, log=self.folder / name)

    def says(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)


def _report(killed: int) -> str:
    return f"Warning: a banner\n{json.dumps(to_json(AgentReport(kind='gone', t=0.0, killed=killed)))}\n"


def test_all_at_once_and_each_told_once(tmp_path: Path) -> None:
    lab = _Setting(tmp_path)
    for name in ("n1", "n2", "n3", "n1"):
        lab.leftovers.begin(name, silent=False)
    assert list(lab.transport.begun) == ["n1", "n2", "n3"] and lab.leftovers.over() == []
    lab.says("n2", _report(0))
    assert lab.leftovers.over() == [("n2", 0, "nothing ran on there")]
    lab.says("n3", _report(1))
    lab.says("n1", _report(12))
    assert lab.leftovers.over() == [("n1", 12, "killed 12 processes that ran on there"), ("n3", 1, "killed 1 process that ran on there")]
    lab.now = 1e9
    assert lab.leftovers.over() == []


def test_patience_ends_for_a_host_that_does_not_answer(tmp_path: Path) -> None:
    lab = _Setting(tmp_path)
    lab.leftovers.begin("n1", silent=True)
    lab.now = PATIENCE_S - 0.1
    assert lab.leftovers.over() == []
    lab.now = PATIENCE_S
    ((name, killed, words),) = lab.leftovers.over()
    assert (name, killed, lab.transport.begun["n1"].dropped) == ("n1", 0, True)
    assert words == (
        "it could not be reached to end what is left there: no answer within 10 s; its agent ends it when it hears nothing for 20 s"
    )


def test_an_ssh_that_fails_is_told_with_its_words_and_what_to_do(tmp_path: Path) -> None:
    lab = _Setting(tmp_path)
    lab.leftovers.begin("n1", silent=False)
    lab.says("n1", "ssh: connect to host n1 port 22: No route to host\r\n")
    lab.transport.begun["n1"].how = ending("ssh", 255)
    ((_, _, words),) = lab.leftovers.over()
    assert "ssh ended with exit code 255 (ssh: connect to host n1 port 22: No route to host)" in words
    assert "`python --end '/my out/attempt-1'` is typed there" in words


def test_what_cannot_even_be_tried_is_told(tmp_path: Path) -> None:
    lab = _Setting(tmp_path, trouble="the command on n1 has ended")
    lab.leftovers.begin("n1", silent=False)
    ((name, killed, words),) = lab.leftovers.over()
    assert (name, killed) == ("n1", 0) and "the command on n1 has ended" in words


@pytest.mark.parametrize("text", ["", "{", "{}\n", '{"kind": 5}\n', "[" * 5000, '{"kind": "gone"}\n', "{" * 5000])
def test_what_is_no_report_counts_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    assert killed_by_report(tmp_path / "log") is None and killed_by_report(tmp_path / "none") is None
