"""Durations, sizes, numbers and names as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.core.errors import UsageError
from seatrial.core.text import (
    convert_unit,
    count,
    count_were,
    format_bytes,
    format_duration,
    format_estimate,
    format_hms,
    format_number,
    join_names,
    parse_duration_s,
    parse_limit_s,
)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5h", 5400), ("1h30m", 5400), ("250ms", 0.25), ("2 d", 172800), ("15min", 900)]
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "1h x", "-3s"])
def test_a_bad_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (float("nan"), "–"), (0.25, "250 ms"), (12.34, "12.3 s"), (245, "4m 05s"), (7380, "2h 03m"), (59.99, "60.0 s")],
)
def test_format_duration(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [
        (170.0, 210.0, "3m 05s (2m 50s–3m 30s)"),
        (184.9, 185.1, "3m 05s"),
        (None, 210.0, "3m 05s"),
        (170.0, None, "3m 05s"),
    ],
)
def test_an_estimate_has_its_ends_where_they_say_something(low_s: float | None, high_s: float | None, text: str) -> None:
    assert format_estimate(185.0, low_s, high_s) == text
    assert format_estimate(None, None, None) == "–"


@given(st.floats(min_value=0, max_value=1e7))
def test_hms_never_shows_less_than_is_left(seconds: float) -> None:
    hours, minutes, rest = map(int, format_hms(seconds).split(":"))
    assert 0 <= hours * 3600 + minutes * 60 + rest - seconds <= 1


def test_format_bytes() -> None:
    assert [format_bytes(count) for count in (512, 1536, 3 << 30, 5 << 40)] == ["512 B", "1.5 KiB", "3.0 GiB", "5.0 TiB"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.410012, "0.41"),
        (4.75198, "4.752"),
        (1270.0, "1,270"),
        (12345.6, "12,346"),
        (0.0, "0"),
        (1.0, "1"),
        (0.041113, "0.04111"),
        (100.0, "100"),
    ],
)
def test_format_number(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "written", "unit", "found"),
    [(1.5, "s", "ms", 1500.0), (0.5, "ratio", "%", 50.0), (2.0, "GiB", "MiB", 2048.0), (1.0, "s", "MiB", None), (1.0, "x", "x", 1.0)],
)
def test_converted(value: float, written: str, unit: str, found: float | None) -> None:
    assert convert_unit(value, written, unit) == found


def test_a_limit_is_positive_and_an_error_names_the_option() -> None:
    assert parse_limit_s("15m", "--budget") == 900.0
    for wrong in ("0", "soon"):
        with pytest.raises(UsageError, match=r"^--budget"):
            parse_limit_s(wrong, "--budget")


def test_counts_and_lists_of_names() -> None:
    assert [count(number, "run") for number in (0, 1, 3)] == ["0 runs", "1 run", "3 runs"]
    assert [count_were(number, "run") for number in (1, 3)] == ["1 run was", "3 runs were"]
    names = ["a", "b", "c", "d", "e", "f"]
    assert [join_names(names[:length]) for length in (0, 1, 4)] == ["", "a", "a, b, c, d"]
    assert join_names(names) == "a, b, c, d and 2 more" and join_names(names, 1) == "a and 5 more"
