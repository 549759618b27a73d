"""How the agent speaks: reports to whoever gave the order, notes on standard error, and neither holds it up."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from seatrial.agent import reports
from seatrial.agent.reports import flush_reports, note, report, report_to
from tests.unit.agent.apart import FakeHarness, apart


def test_a_report_has_both_clocks_and_its_facts() -> None:
    with FakeHarness() as harness:
        report("exited", returncode=3, detail="why")
        assert flush_reports()
    (sent,) = harness.sent
    assert (sent.kind, sent.returncode, sent.detail) == ("exited", 3, "why") and sent.t > 1e9 and sent.m > 0


def test_the_last_one_named_gets_them() -> None:
    with FakeHarness() as first, FakeHarness() as second:
        report_to(second)
        report("gone")
        assert not first.sent and len(second.sent) == 1


def test_where_nobody_is_named_they_go_to_standard_output() -> None:
    def act() -> Any:
        read_end, write_end = os.pipe()
        os.dup2(write_end, 1)
        reports._to.clear()
        report("exited", returncode=3)
        return [flush_reports(), os.read(read_end, 65536).decode()]

    flushed, said = apart(act)
    told = json.loads(said)
    assert flushed and said.endswith("\n") and (told["kind"], told["returncode"]) == ("exited", 3)


def test_a_note_is_one_line_with_the_time(capfd: pytest.CaptureFixture[str]) -> None:
    note("a disk is full: é")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d a disk is full: é\n", capfd.readouterr().err)


def test_a_standard_error_that_is_gone_ends_nothing() -> None:
    def act() -> Any:
        os.close(2)
        note("nobody reads this")
        return "alive"

    assert apart(act) == "alive"
