"""What went wrong, on a terminal."""

from __future__ import annotations

import dataclasses

from seatrial.records.caution import Caution
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.report.terminal.troubles import LOG_LINES, MOST_CAUTIONS, MOST_FAILURES, causes, warned
from tests.unit.report import factory
from tests.unit.report.terminal.on_paper import lines


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


def test_nothing_where_nothing_is_amiss() -> None:
    assert lines(causes(factory.empty_results(), 80)) == [] and lines(warned(factory.empty_results(), 80)) == []


def test_a_failure_its_action_and_the_last_lines_of_its_log() -> None:
    heading, first, detail, *rest = lines(causes(factory.results(), 200), 200)
    assert heading == "Failures" and first == "x mb8_nw2_r2: failed after 12.0 s, cuda_oom"
    assert factory.OOM_LINE in detail and rest[0] == "  What to do: Lower micro_batch, or raise the ZeRO stage."
    assert len(rest) == 1 + LOG_LINES and rest[-1] == f"  | {factory.OOM_LINE}"


def test_of_many_causes_the_rest_is_counted() -> None:
    found = lines(causes(failed(MOST_FAILURES + 2), 100))
    assert sum(line.startswith("x ") for line in found) == MOST_FAILURES
    assert found[-1] == "and 2 more causes: see the summary"


def test_cautions_name_whom_they_are_about() -> None:
    found = lines(warned(factory.results(), 100))
    assert found[0] == "Cautions" and any(line.endswith(f"({factory.ODD})") for line in found)


def test_of_many_cautions_the_rest_is_counted() -> None:
    assert lines(warned(warned_of(MOST_CAUTIONS), 100))[-1] == f"! Beware of {MOST_CAUTIONS - 1}."
    assert lines(warned(warned_of(MOST_CAUTIONS + 1), 100))[-1] == "and 1 more: see the summary"
