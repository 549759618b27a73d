"""summary.pdf: the page as a headless browser prints it.

In: the page's file. Out: a PDF beside it, with every chart drawn, in light colours, with all details open, as the page's own rules for
print have it. Any browser of Chromium's family will do: the one that SEATRIAL_BROWSER names, else the first of a few names on PATH. It
opens the page, is asked to draw all charts, says which it could not draw, and prints. (Its own `--print-to-pdf` prints as soon as the page
is loaded, with or without a budget of virtual time, and the charts are then missing.)
"""

from __future__ import annotations

import base64
import binascii
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.errors import UsageError
from seatrial.report.html.devtools import DevTools, NoAnswerError, opened

BROWSER_VARIABLE = "SEATRIAL_BROWSER"
BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge", "microsoft-edge-stable",
    "brave-browser", "chrome-headless-shell", "headless_shell",
)  # fmt: skip
PATIENCE_S = 180.0
"""A page of a thousand runs is drawn in seconds; a machine that is busy with training takes its time."""
# The page is laid out this wide and then shrunk to the paper: at the paper's own width tables would be those of a phone.
LAYOUT_WIDTH_PX, LAYOUT_HEIGHT_PX = 860, 1200
A4_INCHES = {"paperWidth": 8.27, "paperHeight": 11.69}
# As in the page's own rules for print.
MARGIN_INCHES = 0.55
PX_PER_INCH = 96
# Charts say of themselves how they stand; without the extra `charts` the page has none.
# Which page's load was told of, an event does not say: the page itself knows.
DRAW_ALL = """(async () => {
  if (document.readyState !== "complete") await new Promise(done => window.addEventListener("load", done, {once: true}));
  if (window.seatrial) await window.seatrial.drawAll();
  await document.fonts.ready;
  return [...document.querySelectorAll("figure.chart")].filter(one => !["drawn", "empty"].includes(one.dataset.state))
    .map(one => one.dataset.chart || one.id);
})()"""


def find_browser(variables: Mapping[str, str] | None = None) -> str | None:
    """The program that prints, as an absolute path; None where there is none."""
    variables = os.environ if variables is None else variables
    named = variables.get(BROWSER_VARIABLE, "")
    found = (shutil.which(name, path=variables.get("PATH")) for name in ([named] if named else BROWSERS))
    return next((str(Path(program).absolute()) for program in found if program), None)


def required_browser(variables: Mapping[str, str] | None = None) -> str:
    """The same; a UsageError that names what to install where there is none."""
    found = find_browser(variables)
    if found is not None:
        return found
    named = (os.environ if variables is None else variables).get(BROWSER_VARIABLE, "")
    if named:
        raise UsageError(f"{BROWSER_VARIABLE} names '{named}', which is no program here; name a Chromium, Chrome or Edge, or unset it")
    raise UsageError(
        "--pdf is printed by a headless browser, and there is no Chromium, Chrome or Edge on PATH: install one (for example `apt install "
        f"chromium`), or name one by {BROWSER_VARIABLE}=PROGRAM; or open the page anywhere and print it from there"
    )


def write_pdf(page: Path, pdf: Path, browser: str, *, patience_s: float = PATIENCE_S) -> list[str]:
    """Print `page` into `pdf`; the names of charts that could not be drawn."""
    with opened(browser, patience_s) as tools:
        session = _open_page(tools, page)
        undrawn = _draw_all(tools, session)
        printed = tools.ask("Page.printToPDF", session, **_print_options())
    _write(pdf, printed.get("data"), browser)
    return undrawn


def _open_page(tools: DevTools, page: Path) -> str:
    """The session of a tab that has loaded the page."""
    target = tools.ask("Target.createTarget", url="about:blank").get("targetId", "")
    session = str(tools.ask("Target.attachToTarget", targetId=target, flatten=True).get("sessionId", ""))
    size = {"width": LAYOUT_WIDTH_PX, "height": LAYOUT_HEIGHT_PX, "deviceScaleFactor": 1, "mobile": False}
    tools.ask("Emulation.setDeviceMetricsOverride", session, **size)
    tools.ask("Emulation.setEmulatedMedia", session, features=[{"name": "prefers-color-scheme", "value": "light"}])
    tools.ask("Page.enable", session)
    # The empty page that the tab began with has been loaded too.
    tools.forget_events()
    refused = tools.ask("Page.navigate", session, url=page.resolve().as_uri()).get("errorText")
    if refused:
        raise NoAnswerError(f"the browser could not open {page} ({refused})")
    tools.wait_for("Page.loadEventFired")
    return session


def _draw_all(tools: DevTools, session: str) -> list[str]:
    drawn = tools.ask("Runtime.evaluate", session, expression=DRAW_ALL, awaitPromise=True, returnByValue=True)
    if "exceptionDetails" in drawn:
        return ["all (the page's own script failed)"]
    value = drawn.get("result", {}).get("value")
    return [str(name) for name in value] if isinstance(value, list) else []


def _print_options() -> dict[str, Any]:
    usable_px = (A4_INCHES["paperWidth"] - 2 * MARGIN_INCHES) * PX_PER_INCH
    margins = {f"margin{side}": MARGIN_INCHES for side in ("Top", "Bottom", "Left", "Right")}
    return {
        **A4_INCHES,
        **margins,
        "printBackground": True,
        "scale": round(usable_px / LAYOUT_WIDTH_PX, 3),
        "transferMode": "ReturnAsBase64",
    }


def _write(pdf: Path, data: object, browser: str) -> None:
    try:
        content = base64.b64decode(data if isinstance(data, str) else "", validate=True)
    except binascii.Error:
        content = b""
    if not content.startswith(b"%PDF"):
        raise NoAnswerError(f"what {browser} printed is no PDF; print {pdf.with_suffix('.html')} from a browser of your own")
    with files.written_aside(pdf) as temporary:
        temporary.write_bytes(content)
