"""Several things at once: each within its own limit, and none breaks or holds up another."""

from __future__ import annotations

import threading

import pytest

from seatrial.agent.answering.at_once import at_once, words_of

LONG_S = 60.0


def test_nothing_to_do() -> None:
    assert at_once({}) == {}


def test_all_are_under_way_together() -> None:
    both = threading.Barrier(2, timeout=LONG_S)

    def meet() -> dict[str, int]:
        return {"place": both.wait()}

    told = at_once({"one": (meet, LONG_S), "two": (meet, LONG_S)})
    assert {told["one"]["place"], told["two"]["place"]} == {0, 1}


def test_one_that_hangs_is_told_of_and_its_late_word_changes_nothing() -> None:
    over = threading.Event()

    def hang() -> dict[str, str]:
        over.wait(LONG_S)
        return {"late": "word"}

    told = at_once({"hung": (hang, 0.0), "well": (dict, LONG_S)})
    over.set()
    assert told == {"hung": {"trouble": "no answer within 0 s"}, "well": {}}


def test_one_that_breaks_tells_why() -> None:
    def broken() -> dict[str, str]:
        raise FileNotFoundError(2, "No such file or directory", "/x")

    assert at_once({"it": (broken, LONG_S)}) == {"it": {"trouble": "No such file or directory"}}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (OSError(98, "Address already in use (while attempting to bind on address ('', 1))"), "Address already in use"),
        (OSError("no number"), "OSError: no number"),
        (ValueError("odd"), "ValueError: odd"),
        (KeyError(), "KeyError"),
    ],
)
def test_an_error_in_words(error: BaseException, words: str) -> None:
    assert words_of(error) == words
