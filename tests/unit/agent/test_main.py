"""The agent as a program, under the name that starts it by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.agent.__main__ import main
from seatrial.files import write_json
from seatrial.records.codec import to_json
from tests.unit.agent.runs import attempt_of, order_for


@pytest.mark.parametrize("words", [(), ("/no/such/agent.json",), ("--call",), ("--what", "x", "y")])
def test_other_words_are_answered_by_those_that_were_expected(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seatrial.agent", *words]) == 1
    assert capsys.readouterr().err.startswith("seatrial.agent: expected one argument, the path of an attempt's agent.json, or two:")


def test_an_order_is_carried_out_and_told_of_line_by_line(tmp_path: Path) -> None:
    order = order_for(tmp_path, "print('well')")
    write_json(attempt_of(order).agent_order, to_json(order))
    argv = [sys.executable, "-P", "-m", "seatrial.agent.__main__", str(attempt_of(order).agent_order)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        reports = [json.loads(line) for line in agent.stdout]
    assert agent.returncode == 0 and [report["kind"] for report in reports] == ["started", "exited", "gone"]
    assert attempt_of(order).launcher_log.read_text() == "well\n"
