"""What is said of a campaign that was made from a folder of the original scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.original.cautions import NAMED_STRAYS, made_from, run_cautions, stray_cautions
from seatrial.collect.original.launcher_log import Block
from seatrial.collect.original.manifest_rows import Row
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.runs import OriginalRun
from seatrial.collect.original.text_lines import TextLines
from seatrial.collect.original.train_log import Segment
from seatrial.records.original_names import MADE_FROM

CELLS = {"group": "g", "repeat": "1", "status": "success", "exit_code": "0", "world_size": "2"}
WHOLE = OriginalAttempt(row=Row(cells=CELLS), segment=Segment(("Step 1: Loss 1.0",)), block=Block(meta={}))
SAID = TextLines(lines=("something",))


def kinds(*attempts: OriginalAttempt, zone_s: float | None = 0.0, **changes: Any) -> list[str]:
    values = {"group": "g", "repeat": 1, "folder": Path("g_r1"), "attempts": attempts or (WHOLE,), "launcher": SAID, "train": SAID}
    found = list(run_cautions(OriginalRun(**{**values, **changes}), zone_s))
    assert all(caution.subject == "g_r1" and caution.text.endswith(".") for caution in found)
    return [caution.kind for caution in found]


def test_nothing_is_amiss_with_a_whole_run() -> None:
    assert kinds() == []


def test_where_it_was_made_from_and_where_it_lies() -> None:
    caution = made_from(Path("/data/stage1"), Path("/data/stage1/seatrial"))
    assert caution.kind == MADE_FROM and "/data/stage1:" in caution.text and "/data/stage1/seatrial." in caution.text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"folder": None, "launcher": TextLines(), "train": TextLines()}, ["original_log_missing"]),
        ({"launcher": TextLines()}, ["original_log_missing"]),
        ({"train": TextLines()}, ["original_log_missing"]),
        ({"launcher": TextLines(problem="Is a directory")}, ["unreadable_file"]),
        ({"train": TextLines(lines=("x",), left_out_bytes=10)}, ["large_log"]),
        ({"zone_s": None}, ["original_zone"]),
    ],
)
def test_files_that_are_missing_unreadable_or_silent(changes: dict[str, Any], expected: list[str]) -> None:
    assert kinds(**changes) == expected


def test_a_failed_run_need_not_have_a_log_of_the_trainer() -> None:
    failed = OriginalAttempt(row=Row(cells={**CELLS, "status": "failed", "exit_code": "1"}))
    assert kinds(failed, train=TextLines()) == []


def test_rows_and_attempts_that_do_not_go_together() -> None:
    assert kinds(WHOLE, WHOLE) == ["original_appended"]
    assert kinds(OriginalAttempt(block=Block(meta={"world_size": "2"}))) == ["original_no_row"]
    assert kinds(OriginalAttempt(row=Row(cells={**CELLS, "exit_code": "137"}))) == ["original_status"]
    assert kinds(OriginalAttempt(row=Row(cells={name: cell for name, cell in CELLS.items() if name != "world_size"}))) == [
        "original_world_size"
    ]


def test_strays_are_named_up_to_so_many() -> None:
    assert list(stray_cautions([])) == []
    (few,) = stray_cautions(["a", "b"])
    (many,) = stray_cautions([f"s{number}" for number in range(NAMED_STRAYS + 2)])
    assert few.text.startswith("a, b: passed over") and "s3 and 2 more: passed over" in many.text
    assert many.numbers == {"folders": NAMED_STRAYS + 2}
