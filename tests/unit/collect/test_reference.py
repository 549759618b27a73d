"""The pages made from the registry say all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seatrial.collect.harmless import HARMLESS
from seatrial.collect.reference import markdown
from seatrial.records.outcome import Cause
from seatrial.signatures.registry import signatures, slow_signs
from seatrial.signatures.signature import STAGE1

ROOT = Path(__file__).parents[3]


def test_the_page_tells_every_entry_and_every_cause() -> None:
    text = markdown()
    told = [entry for entry in signatures() if _cell(entry.symptom) in text and _cell(entry.action) in text]
    assert told == list(signatures())
    assert [cause for cause in Cause if cause is not Cause.NONE and f"| `{cause.value}`" not in text] == []
    assert [entry.id for entry in HARMLESS if f"`{entry.id}`" not in text] == []


def test_the_page_tells_whose_fault_and_has_the_signs_of_slowness_apart() -> None:
    text = markdown()
    wrong = [one for one in signatures() if one.cause is not Cause.NONE and f"{_cell(one.action)} | `{one.cause.value}`" not in text]
    assert wrong == []
    assert all(f"| {fault} |" in text for fault in ("infrastructure", "configuration", "code", "unknown"))
    slow = text.split("## Signs of slowness")[1].split("\n## ")[0]
    assert [entry.id for entry in slow_signs() if f"| `{entry.id}` |" not in slow] == []
    assert sum(line.startswith("| ") for line in slow.splitlines()) == len(slow_signs()) + 1


def test_the_page_of_stage_1_tells_its_entries_and_no_others() -> None:
    text = markdown(STAGE1)
    told = {entry.id for entry in signatures() if _cell(entry.symptom) in text}
    assert told == {entry.id for entry in signatures() if STAGE1 in entry.topics}
    assert "[docs/troubleshooting.md](../../../docs/troubleshooting.md)" in text


@pytest.mark.parametrize("page", ["docs/troubleshooting.md", "runbooks/stage1/docs/troubleshooting.md"])
def test_every_row_of_a_page_has_the_cells_of_its_head(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    columns = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert set(columns) <= {4, 5, 6} and len(rows) > 20


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
