"""What a mark says when it is pointed at."""

from __future__ import annotations

from seatrial.report.html.specs.tooltip import (
    COUNTED,
    SECONDS,
    interval_text,
    nearest_tooltip,
    number,
    number_text,
    spelt_seconds,
    tooltip,
    word,
)


def test_window_and_n_always_stand_last() -> None:
    assert tooltip([]) == list(COUNTED)
    assert [one["field"] for one in tooltip([word("run", "run"), number("ms", "ms")])] == ["run", "ms", "window", "n"]


def test_a_number_has_a_format_and_a_word_none() -> None:
    assert number("ms", "ms", ".1%")["format"] == ".1%" and "format" not in word("run", "run")


def test_near_a_mark_what_is_missing_is_a_dash_and_names_are_text() -> None:
    told = nearest_tooltip([word("run", 'a "run"'), number("ms", "ms")])["value"]["expr"]
    assert '"a \\"run\\"": isValid((datum.datum || datum)["run"])' in told, "a quote in a title ends no text"
    assert told.count(": '–'") == 2 and told.startswith("{") and told.endswith("}")


def test_a_bound_that_is_missing_is_said_and_not_shown_as_nothing() -> None:
    made = interval_text("low", "high", "interval")
    assert (
        made["as"] == "interval"
        and made["calculate"].endswith(": 'none'")
        and "isValid(datum.low) && isValid(datum.high)" in made["calculate"]
    )
    assert number_text("error_s", "error")["calculate"].endswith(": 'not known'")


def test_a_moment_is_one_time_and_a_span_two() -> None:
    told = spelt_seconds("begin", "end")["calculate"]
    assert told.startswith(f"format(datum.begin, '{SECONDS}')") and "? '' : ' to ' +" in told and told.endswith("' s since launch'")
