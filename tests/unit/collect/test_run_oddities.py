"""What a run did beside its training is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.run_oddities import LOOKED_AT_BYTES, left_behind, not_text
from seatrial.records.outcome import Outcome, RunOutcome


def ended(outcome: Outcome, killed: int) -> RunOutcome:
    return RunOutcome(run="a_r1", attempt=1, hash="h", outcome=outcome, killed=killed)


def test_processes_that_outlived_a_good_run_are_counted() -> None:
    (caution,) = left_behind("a_r1", ended(Outcome.OK, 2))
    assert caution.numbers == {"killed": 2} and caution.text.startswith("2 processes of this run went on after its end")


@pytest.mark.parametrize("outcome", [None, ended(Outcome.OK, 0), ended(Outcome.FAILED, 3)])
def test_nothing_is_said_of_a_run_that_left_none_or_failed(outcome: RunOutcome | None) -> None:
    assert list(left_behind("a_r1", outcome)) == []


@pytest.mark.parametrize("place", ["beginning", "end"])
def test_bytes_that_are_no_text_are_counted_at_either_end(tmp_path: Path, place: str) -> None:
    log, text, rubbish = tmp_path / "launcher.log", "step 1: ä\n".encode() * (LOOKED_AT_BYTES // 5), b"\xff\xfe\x00" * 100
    log.write_bytes(rubbish + text if place == "beginning" else text + rubbish)
    (caution,) = not_text("a_r1", log)
    assert caution.numbers == {"bytes": 300, "of": 2 * LOOKED_AT_BYTES}


@pytest.mark.parametrize("content", [b"", "Übung ✓ 日本\n".encode() * 40_000, b"one odd byte \xff\n"])
def test_text_is_text_wherever_it_is_cut(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "launcher.log").write_bytes(content)
    assert list(not_text("a_r1", tmp_path / "launcher.log")) == []
    assert list(not_text("a_r1", tmp_path / "missing.log")) == []
