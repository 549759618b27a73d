"""Reading beside the server: new versions when something changed, trouble as a sentence, nothing read while nobody asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from seatrial.errors import CampaignError
from seatrial.web.looker import Looker, Shown
from seatrial.web.now import Now
from seatrial.web.pace import Pace
from seatrial.web.packed import Packed
from tests.unit.web.served import PAGE, fake_source, served, shown
from tests.waiting import wait_until


def asked(looker: Looker) -> Looker:
    looker.asked()
    return looker


def failing(*troubles: Exception | None) -> Callable[[str], Shown]:
    """A source that raises these one after another, and shows the campaign where there is None."""
    left = iter(troubles)

    def read(version: str) -> Shown:
        if trouble := next(left):
            raise trouble
        return shown(version)

    return read


def test_data_are_read_again_only_when_something_changed() -> None:
    marks = iter([1, 1, 2, 2])
    made: list[str] = []

    def counted(version: str) -> Shown:
        made.append(version)
        return shown(version)

    looker = Looker(fake_source(mark=lambda: next(marks), shown=counted), Pace(every_s=0, largest_share=1))
    versions = []
    for _ in range(4):
        asked(looker).look_at_data()
        versions.append(looker.asked().version)
    assert versions == [1, 1, 2, 2] and made == ["1", "2"]


def test_nothing_is_read_while_nobody_asks() -> None:
    read = threading.Event()
    with Looker(fake_source(mark=read.set)) as looker:
        looker.look_at_data()
        assert not read.is_set() and looker._seen.now is None
        looker.asked()
        assert read.wait(60)


def test_trouble_is_told_beside_the_last_data_and_passes() -> None:
    broken = failing(None, CampaignError("the plan is torn"), ValueError("odd"), None)
    marks = iter(range(9))
    looker = Looker(fake_source(mark=lambda: next(marks), shown=broken), Pace(every_s=0, largest_share=1))
    told = []
    for _ in range(4):
        asked(looker).look_at_data()
        seen = looker.asked()
        told.append((seen.version, seen.problem, seen.shown is not None))
    assert told[0] == (1, "", True)
    assert told[1] == (1, "the plan is torn", True)
    assert told[2][0] == 1 and "ValueError: odd" in told[2][1]
    assert told[3] == (2, "", True)


def test_after_trouble_the_same_mark_is_read_again() -> None:
    looker = Looker(fake_source(shown=failing(ValueError("odd"), None)), Pace(every_s=0, largest_share=1))
    asked(looker).look_at_data()
    asked(looker).look_at_data()
    assert looker.asked().version == 1 and looker.asked().problem == ""


def test_a_folder_that_is_again_as_it_was_is_read_again_and_the_trouble_goes() -> None:
    marks, broken = iter([1, 2, 1]), failing(None, CampaignError("the plan is torn"), None)
    looker = Looker(fake_source(mark=lambda: next(marks), shown=broken), Pace(every_s=0, largest_share=1))
    problems = []
    for _ in range(3):
        asked(looker).look_at_data()
        problems.append(looker.asked().problem)
    assert problems == ["", "the plan is torn", ""]


def test_a_state_that_cannot_be_read_keeps_the_last_one_and_says_so() -> None:
    good = fake_source().now()
    answers = iter([lambda: good, lambda: 1 / 0, lambda: good])
    looker = Looker(fake_source(now=lambda: next(answers)()))
    told = []
    for _ in range(3):
        looker.look_at_state()
        told.append((looker.asked().now, looker.asked().state_problem))
    assert told[0] == told[2] == (good, "")
    assert told[1][0] == good and "ZeroDivisionError" in told[1][1]
    assert looker.silent_s == 0


def test_an_old_state_is_not_shown_as_a_new_one() -> None:
    with served(fake_source(now=lambda: 1 / 0)) as client:
        client.enter()
        wait_until(lambda: "ZeroDivisionError" in client.ask("/state.json").text)


class Panic(BaseException):
    """What polars raises when its own code fails is no Exception."""


def test_a_panic_ends_no_thread_and_nobody_waits_for_ever() -> None:
    troubles = iter([Panic("index out of bounds"), Panic("index out of bounds")])

    def panicking(version: str) -> Shown:
        for trouble in troubles:
            raise trouble
        return shown(version)

    def state() -> Now:
        for trouble in state_troubles:
            raise trouble
        return good

    good, state_troubles = fake_source().now(), iter([Panic("of the state")])
    with served(fake_source(shown=panicking, now=state)) as client:
        client.enter()
        assert "Panic: index out of bounds" in client.ask("/").text
        assert wait_until(lambda: client.ask("/").status == 200)
        assert wait_until(lambda: '"line"' in client.ask("/state.json").text)


def test_threads_that_wait_for_somebody_to_ask_are_woken_at_the_end() -> None:
    with Looker(fake_source()) as looker:
        pass
    assert not any(thread.is_alive() for thread in looker._threads)


def test_the_page_is_made_once_for_each_version_however_many_ask() -> None:
    made: list[str] = []
    marks = [1]

    def slow(version: str) -> Shown:
        def page() -> str:
            made.append(version)
            time.sleep(0.3)
            return PAGE.format(version)

        return Shown(page=page, parts=Packed("{}"))

    with served(fake_source(mark=lambda: marks[-1], shown=slow)) as client:
        client.enter()
        wait_until(lambda: '"version": "1"' in client.ask("/state.json").text)
        with ThreadPoolExecutor(4) as pool:
            pages = list(pool.map(lambda _: client.ask("/").text, range(4)))
        assert made == ["1"] and all("<main>1</main>" in page for page in pages)
        marks.append(2)
        wait_until(lambda: '"version": "2"' in client.ask("/state.json").text)
        assert "<main>2</main>" in client.ask("/").text and made == ["1", "2"]


def test_a_folder_that_does_not_answer_holds_up_nobody() -> None:
    free = threading.Event()
    with served(fake_source(now=lambda: free.wait(120) and None, shown=lambda version: free.wait(120) and shown(version))) as client:
        client.enter()
        assert client.ask("/state.json").status == 200
        free.set()


def test_the_page_waits_for_the_first_data_and_then_shows_them() -> None:
    free = threading.Event()
    with served(fake_source(shown=lambda version: free.wait(120) and shown(version))) as client:
        client.enter()
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.append(client.ask("/").text))
        asking.start()
        free.set()
        asking.join(60)
        assert "<main>1</main>" in found[0]


def test_a_campaign_that_cannot_be_read_at_all_is_told() -> None:
    def broken(version: str) -> Shown:
        raise CampaignError("no plan in it")

    with served(fake_source(shown=broken)) as client:
        client.enter()
        answer = client.ask("/")
        assert answer.status == 503 and answer.text == "no plan in it\n"
        assert client.ask("/data.json").status == 503
        assert wait_until(lambda: '"problem": "no plan in it"' in client.ask("/state.json").text)


def test_a_page_that_cannot_be_made_is_told_in_the_browser_and_in_full_on_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    def page() -> str:
        raise KeyError("no such chart")

    with served(fake_source(shown=lambda version: Shown(page=page, parts=Packed("{}")))) as client:
        answer = client.enter().ask("/")
    assert answer.status == 500 and "KeyError" in answer.text and "no such chart" not in answer.text
    assert "no such chart" in caplog.text and client.door.token not in caplog.text
