"""A page as a reader has it, with everything it complains about.

In: a browser and an address. Out: an `Opened`: the page, what it asked the network for, and its troubles (console errors and warnings,
uncaught errors, breaches of its security policy). Most of what tests ask of a page is a method here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

SCRIPTS = Path(__file__).parent / "scripts"
DRAWN_WITHIN_MS = 60_000
# Told by the document itself, because a console message about a breach does not say which rule it broke.
HEAR_BREACHES = "addEventListener('securitypolicyviolation', e => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))"
ALL_SETTLED = "() => [...document.querySelectorAll('figure.chart')].every(one => one.dataset.state !== 'waiting')"
NO_NETWORK = ("data:", "blob:")


@dataclass
class Opened:
    """One page in one window of its own."""

    page: Page
    context: BrowserContext
    troubles: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def hear(self) -> None:
        """From now on write down what it says and asks for."""
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("request", self._request)
        self.page.on("requestfailed", self._refused)
        self.page.add_init_script(HEAR_BREACHES)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith(NO_NETWORK):
            self.requests.append(request.url)

    def _refused(self, request: Request) -> None:
        # Told as a request too, though the page's own policy stopped it before it left.
        if request.failure == "csp":
            self.requests.remove(request.url)

    def drawn(self) -> Opened:
        """Wait until no chart is waiting any more."""
        self.page.wait_for_function(ALL_SETTLED, timeout=DRAWN_WITHIN_MS)
        return self

    def breaches(self, rule: str) -> list[str]:
        """What its security policy stopped by that rule."""
        return [line for line in self.troubles if f"policy: {rule}" in line]

    def ask(self, script: str, argument: Any = None) -> Any:
        """The answer of a function in scripts/NAME.js."""
        return self.page.evaluate((SCRIPTS / f"{script}.js").read_text(), argument)

    def charts(self) -> list[str]:
        """Ids of the charts, as they stand in the page."""
        ids: list[str] = self.page.evaluate("() => [...document.querySelectorAll('figure.chart')].map(one => one.dataset.chart)")
        return ids

    def state(self, chart: str) -> str | None:
        return self.page.get_attribute(f"#chart-{chart}", "data-state")

    def drawing(self, chart: str) -> str:
        """The SVG of a chart as text: what changes when it is drawn otherwise."""
        return self.page.locator(f"#chart-{chart} svg").first.evaluate("svg => svg.outerHTML")

    def assert_redrawn(self, chart: str, act: Callable[[], object]) -> None:
        """Do something and wait until the chart is another than before."""
        before = self.drawing(chart)
        act()
        self.page.wait_for_function(
            "([chart, before]) => { const svg = document.querySelector(`#chart-${chart} svg`); return svg && svg.outerHTML !== before }",
            arg=[chart, before],
            timeout=DRAWN_WITHIN_MS,
        )


def open_in(browser: Browser, address: Path | str, *, width: int = 1280, height: int = 900, wait: bool = True, **how: Any) -> Opened:
    """`how` are playwright's options of a context: color_scheme, java_script_enabled, reduced_motion and so on."""
    context = browser.new_context(viewport={"width": width, "height": height}, **how)
    opened = Opened(context.new_page(), context)
    opened.hear()
    opened.page.goto(address.resolve().as_uri() if isinstance(address, Path) else address, wait_until="load")
    return opened.drawn() if wait and how.get("java_script_enabled", True) else opened
