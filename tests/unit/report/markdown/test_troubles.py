"""What went wrong, in summary.md."""

from __future__ import annotations

import dataclasses
import re

from seatrial.log_lines import LONGEST_SHOWN
from seatrial.records.caution import Caution
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.report.markdown.troubles import LOG_LINES, MOST_CAUTIONS, MOST_FAILURES, cautions_section, failures_section
from tests.unit.report import factory


def failed(*tails: tuple[str, ...], telling: tuple[str, ...] = ()) -> CampaignResults:
    """A run for each, which ended for a reason of its own."""
    runs = [
        factory.measured(
            "mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.EXCEPTION, detail=f"reason {chr(97 + at)}", log_tail=tail, telling=telling
        )
        for at, tail in enumerate(tails)
    ]
    return factory.results(runs=tuple(runs))


def test_nothing_is_amiss() -> None:
    assert list(failures_section(factory.empty_results())) == ["## Failures", "No current run failed."]
    assert list(cautions_section(factory.empty_results())) == ["## Cautions", "None."]


def test_a_failure_with_its_action_and_the_end_of_its_log() -> None:
    heading, title, told, last, log = failures_section(factory.results())
    assert heading == "## Failures" and title == "### cuda_oom: mb8_nw2_r2" and last == "Last lines of mb8_nw2_r2:"
    assert told.startswith("Ended failed after 12.0 s.") and told.endswith("What to do: Lower micro_batch, or raise the ZeRO stage.")
    assert log.splitlines()[-2] == factory.OOM_LINE, "inside a code block nothing is escaped"


def test_the_telling_lines_stand_for_the_log_where_there_are_any() -> None:
    blocks = list(failures_section(failed(("a", "b"), telling=("this is why",))))
    assert blocks[-2:] == ["The most telling lines:", "```text\nthis is why\n```"]


def test_of_a_long_log_the_last_lines_are_shown_and_long_ones_cut() -> None:
    tail = (*(f"line {at}" for at in range(LOG_LINES)), f"begin {'x' * LONGEST_SHOWN} end")
    lines = list(failures_section(failed(tail)))[-1].splitlines()
    assert len(lines) == LOG_LINES + 2 and lines[1] == "line 1" and re.fullmatch("begin x+ … x+ end", lines[-2])


def test_of_many_causes_the_rest_is_counted() -> None:
    blocks = list(failures_section(failed(*[("a",)] * (MOST_FAILURES + 3))))
    assert blocks[-1] == "3 more causes are left out here: `skipped_runs.tsv` has the runs."


def test_cautions_are_escaped_and_name_whom_they_are_about() -> None:
    _, text = cautions_section(factory.results())
    assert text.splitlines()[0] == "- drift: The machine grew 3 % slower over the campaign."
    assert text.splitlines()[1].endswith("(\\[b\\]mb8\\|\\`nw0\\`\\<i\\>)")


def test_of_many_cautions_the_rest_is_counted() -> None:
    many = tuple(Caution(kind="k", text=f"Beware of {at}.") for at in range(MOST_CAUTIONS + 1))
    _, text = cautions_section(dataclasses.replace(factory.empty_results(), cautions=many))
    assert text.endswith("- and 1 more: `summary.json` has them") and text.count("\n") == MOST_CAUTIONS
