"""Failures as they are told: together where they are one, with whose fault it is and what fits."""

from __future__ import annotations

import dataclasses

from seatrial.records.caution import Caution
from seatrial.records.outcome import Cause, Outcome
from seatrial.report import digest
from seatrial.report.failures import RUN_AGAIN, WHAT_FITS, failures
from tests.unit.report import factory


def test_what_fits_stands_with_the_failure_and_not_among_the_cautions() -> None:
    runs = (factory.measured("mb32", 1, how=Outcome.FAILED, cause=Cause.CUDA_OOM),)
    fits = Caution(kind=WHAT_FITS, subject="mb32", text="mb 16 ended ok.")
    results = dataclasses.replace(factory.results(runs=runs), cautions=(fits,))
    (failure,) = failures(results)
    assert failure.remarks == ("mb 16 ended ok.",)
    assert WHAT_FITS not in {caution.kind for caution in digest.warnings(results)}


def test_the_platforms_fault_asks_for_a_re_run() -> None:
    runs = tuple(factory.measured("mb32", repeat, how=Outcome.FAILED, cause=Cause.IO_ERROR) for repeat in (1, 2))
    (failure,) = failures(factory.results(runs=runs))
    assert failure.runs == ("mb32_r1", "mb32_r2")
    assert failure.remarks == (RUN_AGAIN,)
