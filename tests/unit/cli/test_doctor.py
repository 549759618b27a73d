"""`seatrial doctor` as people and programs read it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from seatrial.cli import doctor
from seatrial.cli.main import run_command
from seatrial.preflight.question import Section
from seatrial.records.check import Check

SECTIONS = (
    Section(
        subject="output",
        checks=(
            Check(name="output folder", ok=True, found="/data/out can be written to", prevents="PermissionError", fix="choose another"),
            Check(
                name="disk space",
                ok=False,
                found="1.0 MiB free in /data",
                prevents="OSError: [Errno 28] No space left on device",
                fix="free at least 200.0 MiB or choose another disk with --out",
            ),
        ),
    ),
    Section(
        subject="load",
        checks=(
            Check(
                name="other processes",
                ok=False,
                found="2.0 of 2 cores in use by others: python (pid 22072) 98 %, python (pid 22425) 98 %, stress (pid 1) 4 %",
                prevents="step times that are the neighbour's too",
                fix="end them",
                refuses=False,
            ),
            Check(name="a name that is far too long for its column", ok=True, found="fine", prevents="nothing", fix="none"),
        ),
    ),
)
SHOWN = """\
output
  ✓ output folder    /data/out can be written to
  ✗ disk space       1.0 MiB free in /data
      would end in: OSError: [Errno 28] No space left on device
      fix:          free at least 200.0 MiB or choose another disk with --out
load
  ! other processes  2.0 of 2 cores in use by others: python (pid 22072) 98 %,
                     python (pid 22425) 98 %, stress (pid 1) 4 %
      would end in: step times that are the neighbour's too
      fix:          end them
  ✓ a name that is far too long for its column
                     fine
"""


def shown(width: int, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="replace")
    doctor._print_sections(Console(file=stream, width=width, markup=False, highlight=False), SECTIONS)
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_the_table_at_80_columns() -> None:
    assert shown(80) == SHOWN


def test_a_narrow_terminal_still_shows_every_word() -> None:
    text = shown(40)
    assert text.split() == SHOWN.split()
    assert max(len(line) for line in text.splitlines() if "too long" not in line) <= 40


def test_a_terminal_without_the_marks_gets_plain_ones() -> None:
    text = shown(80, "ascii")
    assert "?" not in text and "  ok output folder" in text and "  X disk space" in text and "  ! other" in text


def test_the_ending_counts() -> None:
    assert doctor._ending(SECTIONS, 0.34) == "4 checks in 0.3 s: 1 would refuse a campaign, 1 warning"
    assert doctor._ending((), 0.1) == "0 checks in 0.1 s: a campaign may start"


def test_this_host_in_general(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["doctor", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["refused"], document["plan"]) == (0, None) and document["took_s"] > 0
    assert {"subject", "status", "name", "ok", "found", "prevents", "fix", "refuses"} <= set(document["checks"][0])
    assert {check["subject"] for check in document["checks"]} >= {"GPUs", "telemetry", "names", "load"}
    assert "a campaign may start" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_would_be_refused_exits_2(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text("name: p\nworkload: {script: gone.py}\noutput: out\n")
    # The plan itself wants the script's bytes, so it must be there when the plan is read.
    (tmp_path / "gone.py").write_text("")
    (tmp_path / "bad.yaml").write_text("name: p\nworkload: dummy\nlauncher: {kind: python, program: [./no-such-python]}\noutput: out\n")
    assert run_command(["doctor", "plan.yaml", "--fast"]) == 0
    assert run_command(["doctor", "bad.yaml", "--fast", "--json"]) == 2
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [check["name"] for check in document["checks"] if check["status"] == "refused"] == ["program ./no-such-python"]
