"""What every test of the lane has: the mark, one browser, and the pages of a real and of a made campaign.

A page that a test opened must not have complained when the test is over; where a complaint is what the test is about, it empties
`troubles` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seatrial.core.paths import CampaignPaths
from tests.browser import campaigns
from tests.browser.chromium import launched, required_browser
from tests.browser.opened import Opened, open_in
from tests.conftest import MadeOnce

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OpenPage = Callable[..., Opened]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched(required_browser()) as one:
        yield one


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """`open_page(path, width=380, color_scheme="dark")` → Opened, with every chart drawn unless `wait=False`."""
    all_opened: list[Opened] = []

    def opener(address: Path | str, **how: Any) -> Opened:
        all_opened.append(open_in(browser, address, **how))
        return all_opened[-1]

    yield opener
    for one in all_opened:
        one.context.close()
    assert [one.troubles for one in all_opened if one.troubles] == []


Make = Callable[[Path], CampaignPaths]
MakeOnce = Callable[[Make], CampaignPaths]


@pytest.fixture(scope="session")
def make_once(browser: Browser, made_once: MadeOnce) -> MakeOnce:
    """`make_once(run_real)`: a campaign made once for all workers. Needs the browser, so that nothing is run where the lane is left out."""

    def once(make: Make) -> CampaignPaths:
        paths = CampaignPaths(made_once(make.__name__, make) / "out")
        assert paths.summary_html.exists(), f"{make.__name__} has left no page"
        return paths

    return once


@pytest.fixture(scope="session")
def real(make_once: MakeOnce) -> CampaignPaths:
    """A campaign that really ran, with its page."""
    return make_once(campaigns.run_real)


@pytest.fixture(scope="session")
def made(make_once: MakeOnce) -> CampaignPaths:
    """A made campaign with every table: two GPUs, throttling, an ETA, and its page."""
    return make_once(campaigns.write_made)


@pytest.fixture(params=["real", "made"])
def campaign(request: pytest.FixtureRequest) -> CampaignPaths:
    """Each of the two in turn."""
    found: CampaignPaths = request.getfixturevalue(request.param)
    return found
