"""When the folder is read again, and what happens when reading fails or hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seatrial.core.errors import CampaignError
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.web.compressed_text import CompressedText
from seatrial.web.refresher import EVERY_S, UNWATCHED_AFTER_S, PageVersion, Refresher, RefreshPace, folder_marks
from seatrial.web.state import CampaignState
from tests.unit.results.campaigns import write_campaign
from tests.unit.web.served import PAGE, fake_source, served, shown
from tests.waiting import wait_until


def asked(refresher: Refresher) -> Refresher:
    refresher.latest()
    return refresher


def failing(*troubles: Exception | None) -> Callable[[str], PageVersion]:
    """A source that raises these one after another, and shows the campaign where there is None."""
    left = iter(troubles)

    def read(version: str) -> PageVersion:
        if trouble := next(left):
            raise trouble
        return shown(version)

    return read


def test_data_are_read_again_only_when_something_changed() -> None:
    marks = iter([1, 1, 2, 2])
    made: list[str] = []

    def counted(version: str) -> PageVersion:
        made.append(version)
        return shown(version)

    refresher = Refresher(fake_source(mark=lambda: next(marks), shown=counted), RefreshPace(every_s=0, largest_share=1))
    versions = []
    for _ in range(4):
        asked(refresher).refresh_data()
        versions.append(refresher.latest().version)
    assert versions == [1, 1, 2, 2] and made == ["1", "2"]


def test_nothing_is_read_while_nobody_asks() -> None:
    read, read_state, state = threading.Event(), threading.Event(), fake_source().now()
    with Refresher(fake_source(mark=read.set, now=lambda: read_state.set() or state)) as refresher:
        refresher.refresh_data()
        assert not read.is_set() and not read_state.is_set()
        refresher.latest()
        assert read.wait(60) and read_state.wait(60)


def test_trouble_is_reported_beside_the_last_data_and_passes() -> None:
    broken = failing(None, CampaignError("the plan is torn"), ValueError("odd"), None)
    marks = iter(range(9))
    refresher = Refresher(fake_source(mark=lambda: next(marks), shown=broken), RefreshPace(every_s=0, largest_share=1))
    told = []
    for _ in range(4):
        asked(refresher).refresh_data()
        seen = refresher.latest()
        told.append((seen.version, seen.problem, seen.shown is not None))
    assert told[0] == (1, "", True)
    assert told[1] == (1, "the plan is torn", True)
    assert told[2][0] == 1 and "ValueError: odd" in told[2][1]
    assert told[3] == (2, "", True)


def test_a_folder_that_is_again_as_it_was_is_read_again_and_the_trouble_goes() -> None:
    marks, broken = iter([1, 2, 1]), failing(None, CampaignError("the plan is torn"), None)
    refresher = Refresher(fake_source(mark=lambda: next(marks), shown=broken), RefreshPace(every_s=0, largest_share=1))
    problems = []
    for _ in range(3):
        asked(refresher).refresh_data()
        problems.append(refresher.latest().problem)
    assert problems == ["", "the plan is torn", ""]


def test_a_state_that_cannot_be_read_keeps_the_last_one_and_says_so() -> None:
    good = fake_source().now()
    answers = iter([lambda: good, lambda: 1 / 0, lambda: good])
    refresher = Refresher(fake_source(now=lambda: next(answers)()))
    told = []
    for _ in range(3):
        refresher.refresh_state()
        told.append((refresher.latest().now, refresher.latest().state_problem))
    assert told[0] == told[2] == (good, "")
    assert told[1][0] == good and "ZeroDivisionError" in told[1][1]
    assert refresher.silent_s == 0


class Panic(BaseException):
    """What polars raises when its own code fails is no Exception."""


def test_a_panic_ends_no_thread_and_nobody_waits_for_ever() -> None:
    troubles = iter([Panic("index out of bounds"), Panic("index out of bounds")])

    def panicking(version: str) -> PageVersion:
        for trouble in troubles:
            raise trouble
        return shown(version)

    def state() -> CampaignState:
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
    before = set(threading.enumerate())
    with Refresher(fake_source()):
        assert len(set(threading.enumerate()) - before) == 2
    assert set(threading.enumerate()) <= before


class CountingPace(RefreshPace):
    """Counts the requests of the page and of its state."""

    num_requests = 0

    def requested(self, now_m: float) -> None:
        self.num_requests += 1
        super().requested(now_m)


def test_the_page_is_made_once_for_each_version_however_many_ask() -> None:
    made: list[str] = []
    marks, wanted = [1], [0]
    pace = CountingPace(every_s=0, largest_share=1)

    def slow(version: str) -> PageVersion:
        def page() -> str:
            made.append(version)
            wait_until(lambda: pace.num_requests >= wanted[-1], "all ask before the page is there")
            return PAGE.format(version)

        return PageVersion(page=page, parts=CompressedText("{}"))

    with served(fake_source(mark=lambda: marks[-1], shown=slow), pace) as client:
        client.enter()
        wait_until(lambda: '"version": "1"' in client.ask("/state.json").text)
        wanted.append(pace.num_requests + 4)
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


def test_a_campaign_that_cannot_be_read_at_all_is_reported() -> None:
    def broken(version: str) -> PageVersion:
        raise CampaignError("no plan in it")

    with served(fake_source(shown=broken)) as client:
        client.enter()
        answer = client.ask("/")
        assert answer.status == 503 and answer.text == "no plan in it\n"
        assert client.ask("/data.json").status == 503
        assert wait_until(lambda: '"problem": "no plan in it"' in client.ask("/state.json").text)


def test_a_page_that_cannot_be_made_is_reported_in_the_browser_and_in_full_on_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    def page() -> str:
        raise KeyError("no such chart")

    with served(fake_source(shown=lambda version: PageVersion(page=page, parts=CompressedText("{}")))) as client:
        answer = client.enter().ask("/")
    assert answer.status == 500 and "KeyError" in answer.text and "no such chart" not in answer.text
    assert "no such chart" in caplog.text and client.listener.token not in caplog.text


def test_nothing_is_due_while_nobody_asks() -> None:
    pace = RefreshPace()
    assert not pace.is_due(0.0)
    pace.requested(10.0)
    assert pace.is_due(10.0)
    assert not pace.is_due(10.0 + UNWATCHED_AFTER_S)


def test_a_quick_campaign_is_made_every_few_seconds() -> None:
    pace = RefreshPace()
    pace.requested(0.0)
    pace.refreshed(0.0, 0.1)
    assert not pace.is_due(EVERY_S - 0.01)
    assert pace.is_due(EVERY_S)


@pytest.mark.parametrize("takes_s", [0.01, 12.0])
def test_no_more_than_a_fifth_of_the_time_however_long_it_takes(takes_s: float) -> None:
    pace, now_s, busy_s = RefreshPace(), 0.0, 0.0
    while now_s < 10_000:
        pace.requested(now_s)
        if pace.is_due(now_s):
            pace.refreshed(now_s, now_s + takes_s)
            busy_s += takes_s
            now_s += takes_s
        now_s += 0.5
    assert 0 < busy_s <= 0.2 * now_s + takes_s


@pytest.fixture
def campaign(tmp_path: Path) -> CampaignPaths:
    return write_campaign(tmp_path / "out", steps=5)


def attempt_of(campaign: CampaignPaths, run: str) -> AttemptPaths:
    return campaign.run(run).attempts()[-1]


def append(path: Path) -> None:
    with open(path, "a") as file:
        file.write("{}\n")


def test_reports_and_progress_are_no_news(campaign: CampaignPaths) -> None:
    before = folder_marks(campaign)
    for path in (campaign.progress, campaign.summary_json, campaign.summary_html, campaign.owner):
        path.write_text("{}")
    append(attempt_of(campaign, "mb8_r2").events(0))
    assert folder_marks(campaign) == before


def test_a_plan_an_outcome_a_new_attempt_and_a_step_of_the_run_under_way_are(campaign: CampaignPaths) -> None:
    seen = [folder_marks(campaign)]
    append(campaign.plan)
    seen.append(folder_marks(campaign))
    under_way = attempt_of(campaign, "mb16_r2")
    under_way.outcome.unlink()
    seen.append(folder_marks(campaign))
    append(under_way.events(1))
    seen.append(folder_marks(campaign))
    append(under_way.gpu_telemetry)
    seen.append(folder_marks(campaign))
    campaign.run("mb8_r1").next_attempt().folder.mkdir()
    append(AttemptPaths(campaign.run("mb8_r1").attempts()[-1].folder).spec)
    seen.append(folder_marks(campaign))
    assert len(set(seen)) == len(seen)
