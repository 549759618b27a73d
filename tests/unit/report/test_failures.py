"""Failures and cautions, and how the terminal and summary.md show them."""

from __future__ import annotations

import dataclasses
import re

import pytest

from seatrial.core.log_lines import LONGEST_SHOWN
from seatrial.records.caution import Caution
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.report.markdown_sections import LOG_LINES as LOG_LINES_troubles
from seatrial.report.markdown_sections import failures_section as failures_section_troubles
from seatrial.report.terminal_sections import MAX_CAUTIONS, MAX_FAILURES, cautions_section, failures_section
from seatrial.report.view.campaign import shown_cautions
from seatrial.report.view.problems import RUN_AGAIN, WHAT_FITS, failures
from tests.unit.report import factory
from tests.unit.report.console import lines


def test_what_fits_is_with_the_failure_and_not_among_the_cautions() -> None:
    runs = (factory.measured("mb32", 1, how=Outcome.FAILED, cause=Cause.CUDA_OOM),)
    fits = Caution(kind=WHAT_FITS, subject="mb32", text="mb 16 ended ok.")
    results = dataclasses.replace(factory.results(runs=runs), cautions=(fits,))
    (failure,) = failures(results)
    assert failure.remarks == ("mb 16 ended ok.",)
    assert WHAT_FITS not in {caution.kind for caution in shown_cautions(results)}


def test_the_platforms_fault_asks_for_a_re_run() -> None:
    runs = tuple(factory.measured("mb32", repeat, how=Outcome.FAILED, cause=Cause.IO_ERROR) for repeat in (1, 2))
    (failure,) = failures(factory.results(runs=runs))
    assert failure.runs == ("mb32_r1", "mb32_r2")
    assert failure.remarks == (RUN_AGAIN,)


def test_two_runs_have_two_times() -> None:
    failed = [
        factory.measured("mb32", at, how=Outcome.FAILED, cause=Cause.EXCEPTION, duration_s=length) for at, length in ((1, 31.0), (2, 12.0))
    ]
    (failure,) = failures(factory.results(runs=tuple(failed)))
    assert (failure.duration_s, failure.longest_s, failure.after) == (12.0, 31.0, "12.0 s to 31.0 s")
    (one,) = failures(factory.results(runs=(failed[0],)))
    assert one.after == "31.0 s"


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("bind on node-1:29501 failed", "bind on node-1:29502 failed", True),
        ("port 40001 is taken", "port 40002 is taken", True),
        ("10.0.0.1:40001 refused", "10.0.0.1:40002 refused", True),
        ("train.py:1200 broke", "train.py:1300 broke", False),
    ],
)
def test_failures_that_differ_in_a_port_are_one(one: str, other: str, together: bool) -> None:
    """Each start has a port of its own."""
    runs = tuple(
        factory.measured("mb32", at, how=Outcome.FAILED, cause=Cause.EXCEPTION, detail=detail, port=29500 + at)
        for at, detail in ((1, one), (2, other))
    )
    found = failures(factory.results(runs=runs))
    assert len(found) == (1 if together else 2) and found[0].detail == one


def failed(count: int) -> CampaignResults:
    """So many runs that ended each for a reason of its own."""
    runs = [
        factory.measured("mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.EXCEPTION, detail=f"reason {chr(97 + at)}", log_tail=tuple("abcde"))
        for at in range(count)
    ]
    return factory.results(runs=tuple(runs))


def warned_of(count: int) -> CampaignResults:
    cautions = tuple(Caution(kind=f"kind_{at}", text=f"Beware of {at}.") for at in range(count))
    return dataclasses.replace(factory.empty_results(), cautions=cautions)


def test_of_many_causes_the_rest_is_counted() -> None:
    found = lines(failures_section(failed(MAX_FAILURES + 2), 100))
    assert sum(line.startswith("x ") for line in found) == MAX_FAILURES
    assert found[-1] == "and 2 more causes: see the summary"


def test_of_many_cautions_the_rest_is_counted() -> None:
    assert lines(cautions_section(warned_of(MAX_CAUTIONS), 100))[-1] == f"! Beware of {MAX_CAUTIONS - 1}."
    assert lines(cautions_section(warned_of(MAX_CAUTIONS + 1), 100))[-1] == "and 1 more: see the summary"


def failed_troubles(*tails: tuple[str, ...], telling: tuple[str, ...] = ()) -> CampaignResults:
    """A run for each, which ended for a reason of its own."""
    runs = [
        factory.measured(
            "mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.EXCEPTION, detail=f"reason {chr(97 + at)}", log_tail=tail, telling=telling
        )
        for at, tail in enumerate(tails)
    ]
    return factory.results(runs=tuple(runs))


def test_the_telling_lines_are_for_the_log_where_there_are_any() -> None:
    blocks = list(failures_section_troubles(failed_troubles(("a", "b"), telling=("this is why",))))
    assert blocks[-2:] == ["Log lines that explain it:", "```text\nthis is why\n```"]


def test_of_a_long_log_the_last_lines_are_shown_and_long_ones_cut() -> None:
    tail = (*(f"line {at}" for at in range(LOG_LINES_troubles)), f"begin {'x' * LONGEST_SHOWN} end")
    lines = list(failures_section_troubles(failed_troubles(tail)))[-1].splitlines()
    assert len(lines) == LOG_LINES_troubles + 2 and lines[1] == "line 1" and re.fullmatch("begin x+ … x+ end", lines[-2])
