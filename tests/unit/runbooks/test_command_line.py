"""Words of the small programs: wrong ones are a UsageError that says what to type, and what is said ends no program."""

from __future__ import annotations

import argparse
import io
import os

import pytest

from seatrial.errors import UsageError
from seatrial_runbooks.stage1.command_line import StrictParser, count, limit, say


def parser() -> StrictParser:
    found = StrictParser("what it does", "an example")
    found.add_argument("--output-root")
    found.add_argument("--repeats", type=count)
    found.add_argument("--max-cv", type=limit)
    return found


def test_words_are_taken() -> None:
    options = parser().parse(["--output-root", "out", "--repeats", "3", "--max-cv", "0"])
    assert (options.output_root, options.repeats, options.max_cv) == ("out", 3, 0.0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--output-rot=out"], "unknown word '--output-rot=out': did you mean '--output-root'?"),
        (["--output"], "unknown word '--output'"),
        (["--xyzzy"], "unknown word '--xyzzy': see --help"),
        (["--repeats", "0"], "'0' is no count: expected a whole number from 1 on; see --help"),
        (["--repeats", "٣"], "is no count"),
        (["--max-cv", "-1"], "'-1' is no limit"),
        (["--max-cv", "nan"], "'nan' is no limit: expected a number from 0 on, such as 1.5; see --help"),
    ],
)
def test_wrong_words_are_answered(words: list[str], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        parser().parse(words)
    assert says in str(refused.value)


def test_numbers() -> None:
    assert (limit("1e3"), count("12")) == (1000.0, 12)
    with pytest.raises(argparse.ArgumentTypeError):
        limit("inf")


def test_a_letter_that_the_terminal_does_not_know() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    say("ü\n", stream)
    stream.seek(0)
    assert stream.read() == "\\xfc\n"


def test_a_reader_that_has_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        say("nobody reads this\n", stream)
        say("nor this\n", stream)
