"""Where a campaign writes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import PlanError
from seatrial.plan.output_folder import LONGEST_NAME_BYTES, LONGEST_PATH_BYTES, ROOM_BYTES, output_folder
from seatrial.plan.schema import Plan, Workload

CWD = Path("/work")
NOW = datetime(2026, 2, 3, 4, 5, 6)


def plan(**keys: Any) -> Plan:
    return Plan(name="nightly", workload=Workload(module="dummy"), **keys)


@pytest.mark.parametrize(
    ("written", "asked", "folder"),
    [
        (None, None, "/work/outputs/nightly"),
        ("here", None, "/work/here"),
        ("here", Path("there"), "/work/there"),
        ("/data/x", None, "/data/x"),
        ("runs/{time}", None, "/work/runs/20260203_040506"),
        (None, Path("runs/{time}"), "/work/runs/20260203_040506"),
        ("a{{b}}", None, "/work/a{b}"),
        (None, Path("a{b}"), "/work/a{b}"),
    ],
)
def test_the_command_line_wins_over_the_plan(written: str | None, asked: Path | None, folder: str) -> None:
    assert output_folder(plan(output=written), asked, CWD, NOW) == Path(folder)


def test_a_home_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert output_folder(plan(output="~/out"), None, CWD) == Path("/home/ada/out")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\nb", "holds a line break or a tab"),
        ("a\x07", "holds the control character 0x07"),
        ("~nobody-of-that-name/out", "nobody's home folder is known by that name"),
        ("x" * (LONGEST_NAME_BYTES + 1), "one of its names has 256 bytes"),
        ("é" * 128, "one of its names has 256 bytes"),
        ("/".join(["x" * 200] * 20), "which leaves too little of the 4095"),
    ],
)
def test_what_can_be_no_folder_is_refused_under_the_name_it_was_given_by(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=f"^output: .*{says}"):
        output_folder(plan(output=text), None, CWD)
    with pytest.raises(PlanError, match=f"^--out: .*{says}"):
        output_folder(plan(), Path(text), CWD)


def test_there_is_room_left_for_the_files_in_it() -> None:
    rest = LONGEST_PATH_BYTES - ROOM_BYTES - len("/work/")
    names = "/".join(["x" * 100] * (rest // 101))
    assert output_folder(plan(output=names), None, CWD) == CWD / names
    with pytest.raises(PlanError, match="choose a shorter one"):
        output_folder(plan(output=f"{names}/{'y' * 101}"), None, CWD)
