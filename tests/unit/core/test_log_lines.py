"""Lines of a script's own output, and expressions with a bound on their time."""

from __future__ import annotations

import math
import re
import threading
from functools import partial

import pytest

from seatrial.core.errors import UsageError
from seatrial.core.log_lines import (
    LONGEST_LINE,
    TimedPattern,
    compile_patterns,
    line_values,
    lines_to_show,
    parse_line,
    split_rank,
    strip_colours,
    timed_out_patterns,
    timed_patterns,
)


@pytest.mark.parametrize(
    ("patterns", "line", "values"),
    [
        (
            [r"step: (?P<step>[\d,]+)", r"loss: (?P<loss>\S+)"],
            "\x1b[36mstep: 1,250  \x1b[32mloss: 3.5\x1b[39m",
            {"step": 1250.0, "loss": 3.5},
        ),
        ([r"loss (?P<loss>\S+) step (?P<step>\d+)"], "loss unknown step 4", {"step": 4.0}),
        ([r"loss (?P<loss>\S+)"], "nothing here", {}),
        ([r"(?P<pause>\d+) tests"], "12 tests", {}),
        ([r"(?P<step>\d+)/(?P<total>\d+|\?)"], "3/?", {"step": 3.0}),
        ([r"step (?P<step>\d+)(?: loss (?P<loss>\d+))?"], "step 3", {"step": 3.0}),
        ([r"step (?P<step>\d+)"], f"step {10**13}", {}),
    ],
)
def test_numbers_of_a_line_by_group_name(patterns: list[str], line: str, values: dict[str, float]) -> None:
    assert line_values(line, compile_patterns(patterns)) == values


def test_the_pattern_that_found_the_step_is_known() -> None:
    patterns = compile_patterns([r"loss (?P<loss>\w+)", r"step (?P<step>\d+)"])
    assert parse_line("loss 2 step 3", patterns) == ({"loss": 2.0, "step": 3.0}, 1)
    assert parse_line("loss 2", patterns) == ({"loss": 2.0}, None)
    assert math.isnan(line_values("loss nan", patterns)["loss"])


@pytest.mark.parametrize("pattern", [r"(?P<step", r"(?P<stap>\d)", r"step \d"])
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        compile_patterns([pattern])


def test_marks_and_long_lines() -> None:
    assert split_rank("[rank12]: text") == (12, "text")
    assert split_rank("[rank12]:text") == (12, "text")
    assert split_rank("text [rank1]: more") == (None, "text [rank1]: more")
    assert len(strip_colours("x" * 10_000)) == LONGEST_LINE
    assert strip_colours("up\x1b[A") == "up\x1b[A"


def test_lines_for_people_leave_the_launchers_own_out_and_are_not_endless() -> None:
    spawned = "[2026-11-15 17:02:18,004] [INFO] [launch.py:350:main] process 4101 spawned with command: " + "x" * 2000
    assert lines_to_show(["train.py: error: no", spawned]) == ["train.py: error: no"]
    assert len(lines_to_show([spawned])[0]) < 320 and "…" in lines_to_show([spawned])[0]
    assert lines_to_show(["x" * 300]) == ["x" * 300]


CATASTROPHE = r"^(?P<step>([a-z])+.)+[A-Z]([a-z])+$"
TRAP = "a" * 5000


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_expression_that_never_ends_times_out(in_thread: bool) -> None:
    pattern = TimedPattern(re.compile(CATASTROPHE), longest_s=0.05)
    found: list[dict[str, float]] = []
    act = partial(found.extend, map(partial(line_values, patterns=[pattern]), (TRAP, "aaaaAa")))
    if in_thread:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join(60.0)
    else:
        act()
    assert found == [{}, {}], "it is not tried again"
    assert pattern.timed_out and timed_out_patterns([pattern]) == (CATASTROPHE,)


def test_a_sound_expression_searches_as_ever() -> None:
    (pattern,) = timed_patterns([r"(?i)STEP (?P<step>\d+)"])
    assert [line_values(f"step {step}", [pattern]) for step in (1, 2)] == [{"step": 1.0}, {"step": 2.0}]
    assert not pattern.timed_out and timed_out_patterns([pattern]) == ()


def test_many_slow_searches_are_too_much_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("seatrial.core.log_lines.time.perf_counter", lambda: float(next(clock)))
    pattern = TimedPattern(re.compile("a"))
    for _ in range(40):
        pattern.search("a")
    assert pattern.timed_out
