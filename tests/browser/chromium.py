"""The system's Chromium, driven by playwright; none is fetched.

In: nothing. Out: `launched()`, a browser for as long as it is used. Where none is installed the lane is left out with the reason, except
under CI=1, where it fails: a lane that nobody ran has shown nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from seatrial.core.errors import UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Containers run as root, where Chromium's own sandbox refuses to start; the pages opened here are made by the tests.
OPTIONS = ["--no-sandbox"]


def required_browser() -> str:
    """The program that `seatrial report --pdf` would use; without one the lane is skipped, or fails under CI=1."""
    from seatrial.report.html import print

    try:
        return print.required_browser()
    except UsageError as error:
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)(f"no browser to open the page in: {error}")


@contextlib.contextmanager
def launched(program: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=OPTIONS)
        yield browser
        browser.close()
