"""One line of a script's own output."""

from __future__ import annotations

import math

import pytest

from seatrial.errors import UsageError
from seatrial.log_lines import LONGEST_LINE, compile_patterns, plain, shortened, shown_lines, split_rank, told_in, values_in


def test_numbers_by_group_name_with_commas_and_without_colours() -> None:
    patterns = compile_patterns([r"step: (?P<step>[\d,]+)", r"loss: (?P<loss>\S+)"])
    assert values_in("\x1b[36mstep: 1,250  \x1b[32mloss: 3.5\x1b[39m", patterns) == {"step": 1250.0, "loss": 3.5}


def test_what_is_no_number_tells_nothing() -> None:
    patterns = compile_patterns([r"loss (?P<loss>\S+) step (?P<step>\d+)"])
    assert values_in("loss unknown step 4", patterns) == {"step": 4.0}
    assert math.isnan(values_in("loss nan step 4", patterns)["loss"])
    assert values_in("nothing here", patterns) == {}


def test_a_pause_is_no_number_and_a_length_may_be_unknown() -> None:
    patterns = compile_patterns([r"(?P<pause>\d+) tests", r"(?P<step>\d+)/(?P<total>\d+|\?)"])
    assert values_in("12 tests", patterns) == {}
    assert values_in("3/60", patterns) == {"step": 3.0, "total": 60.0}
    assert values_in("3/?", patterns) == {"step": 3.0}


def test_the_pattern_that_told_the_step_is_known() -> None:
    patterns = compile_patterns([r"loss (?P<loss>\d+)", r"step (?P<step>\d+)"])
    assert told_in("loss 2 step 3", patterns) == ({"loss": 2.0, "step": 3.0}, 1)
    assert told_in("loss 2", patterns) == ({"loss": 2.0}, None)


def test_a_group_that_took_no_part_is_not_there() -> None:
    assert values_in("step 3", compile_patterns([r"step (?P<step>\d+)(?: loss (?P<loss>\d+))?"])) == {"step": 3.0}


@pytest.mark.parametrize(
    ("pattern", "said"), [(r"(?P<step", "not a regular expression"), (r"(?P<stap>\d)", "group 'stap'"), (r"step \d", "no named group")]
)
def test_a_wrong_pattern_says_what_is_wrong(pattern: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compile_patterns([pattern])


def test_marks_and_long_lines() -> None:
    assert split_rank("[rank12]: text") == (12, "text")
    assert split_rank("[rank12]:text") == (12, "text")
    assert split_rank("text [rank1]: more") == (None, "text [rank1]: more")
    assert len(plain("x" * 10_000)) == LONGEST_LINE
    assert plain("up\x1b[A") == "up\x1b[A"


def test_lines_for_people_leave_the_launchers_own_out_and_are_not_endless() -> None:
    spawned = "[2026-11-15 17:02:18,004] [INFO] [launch.py:350:main] process 4101 spawned with command: " + "x" * 2000
    assert shown_lines(["train.py: error: no", spawned]) == ["train.py: error: no"]
    assert len(shown_lines([spawned])[0]) < 320 and "…" in shown_lines([spawned])[0]


def test_a_short_line_is_shown_as_it_is() -> None:
    assert shortened("x" * 300) == "x" * 300
