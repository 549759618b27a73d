"""Failures as they are told: together where they are one, with whose fault it is and what fits."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.records.caution import Caution
from seatrial.records.outcome import Cause, Outcome
from seatrial.report.digest.cautions import warnings
from seatrial.report.digest.failures import RUN_AGAIN, WHAT_FITS, failures
from tests.unit.report import factory


def test_what_fits_stands_with_the_failure_and_not_among_the_cautions() -> None:
    runs = (factory.measured("mb32", 1, how=Outcome.FAILED, cause=Cause.CUDA_OOM),)
    fits = Caution(kind=WHAT_FITS, subject="mb32", text="mb 16 ended ok.")
    results = dataclasses.replace(factory.results(runs=runs), cautions=(fits,))
    (failure,) = failures(results)
    assert failure.remarks == ("mb 16 ended ok.",)
    assert WHAT_FITS not in {caution.kind for caution in warnings(results)}


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
