"""Reading beside the server: new versions when something changed, trouble as a sentence, nothing read while nobody asks."""

from __future__ import annotations

import threading

import pytest

from seatrial.errors import CampaignError
from seatrial.web.looker import Looker, Shown
from seatrial.web.pace import Pace
from seatrial.web.packed import Packed
from tests.unit.web.served import fake_source, served, shown, until


def asked(looker: Looker) -> Looker:
    looker.asked()
    return looker


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
        assert read.wait(10)


def test_trouble_is_told_beside_the_last_data_and_passes() -> None:
    troubles = iter([None, CampaignError("the plan is torn"), ValueError("odd"), None])
    marks = iter(range(9))

    def broken(version: str) -> Shown:
        trouble = next(troubles)
        if trouble:
            raise trouble
        return shown(version)

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
    troubles = iter([ValueError("odd"), None])

    def broken(version: str) -> Shown:
        trouble = next(troubles)
        if trouble:
            raise trouble
        return shown(version)

    looker = Looker(fake_source(shown=broken), Pace(every_s=0, largest_share=1))
    asked(looker).look_at_data()
    asked(looker).look_at_data()
    assert looker.asked().version == 1 and looker.asked().problem == ""


def test_a_state_that_cannot_be_read_keeps_the_last_one() -> None:
    source = fake_source()
    looker = Looker(source)
    looker.look_at_state()
    broken = Looker(fake_source(now=lambda: 1 / 0))
    broken.look_at_state()
    assert looker.asked().now is not None and broken.asked().now is None
    assert broken.silent_s == 0


def test_a_folder_that_does_not_answer_holds_up_nobody() -> None:
    free = threading.Event()
    with served(fake_source(now=lambda: free.wait(30) and None, shown=lambda version: free.wait(30) and shown(version))) as client:
        client.enter()
        assert client.ask("/state.json").status == 200
        free.set()


def test_the_page_waits_for_the_first_data_and_then_shows_them() -> None:
    free = threading.Event()
    with served(fake_source(shown=lambda version: free.wait(30) and shown(version))) as client:
        client.enter()
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.append(client.ask("/").text))
        asking.start()
        free.set()
        asking.join(20)
        assert "<main>1</main>" in found[0]


def test_a_campaign_that_cannot_be_read_at_all_is_told() -> None:
    def broken(version: str) -> Shown:
        raise CampaignError("no plan in it")

    with served(fake_source(shown=broken)) as client:
        client.enter()
        answer = client.ask("/")
        assert answer.status == 503 and answer.text == "no plan in it\n"
        assert client.ask("/data.json").status == 503
        assert until(lambda: '"problem": "no plan in it"' in client.ask("/state.json").text)


def test_a_page_that_cannot_be_made_is_told_in_the_browser_and_in_full_on_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    def page() -> str:
        raise KeyError("no such chart")

    with served(fake_source(shown=lambda version: Shown(page=page, parts=Packed("{}")))) as client:
        answer = client.enter().ask("/")
    assert answer.status == 500 and "KeyError" in answer.text and "no such chart" not in answer.text
    assert "no such chart" in caplog.text and client.door.token not in caplog.text
