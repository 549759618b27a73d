"""Take the pictures of docs/images/ that show the page: what a headless Chromium makes of a campaign's summary.html.

python docs/make_pictures.py OUT [--into docs/images]

In: the folder of a campaign, whose page was written by `seatrial run` or `seatrial report`. Out: report-light.png, report-dark.png,
report-phone.png (the top of the page) and report-timeline.png (one run's telemetry), each of few colours, so that a repository can keep
them.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.core.paths import CampaignPaths
from seatrial.report.html.print import required_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).parent / "images"
COLOURS = 128
"""Enough for text and charts; a third of the bytes of a picture in true colour."""
TIMEOUT_MS = 120_000
MARGIN_PX = 20
DRAW_ALL = "() => window.seatrial ? window.seatrial.drawAll() : null"


@dataclass(frozen=True, kw_only=True)
class Shot:
    """One picture."""

    name: str
    width: int
    height: int
    scheme: str = "light"
    scale: float = 1.0
    """Pixels of the picture for one of the page: 2 for a phone, whose letters would else be coarse."""
    part: str = ""
    """What is taken, with a margin; the top of the page when left out."""
    until: str = ""
    """Of the top of the page: down to the end of this, so that no line is cut in two; `height` when left out."""


SHOTS = (
    Shot(name="report-light.png", width=1200, height=1500, until="#chart-ranking .plot"),
    Shot(name="report-dark.png", width=1200, height=1700, scheme="dark", until="#ranking .scroll"),
    Shot(name="report-phone.png", width=390, height=844, scale=2.0),
    Shot(name="report-timeline.png", width=1200, height=1500, part="#timeline"),
)


def main() -> int:
    asked = arguments()
    page = CampaignPaths(asked.out).summary_html
    if not page.exists():
        print(f"{page} is not there: make it with `seatrial report {asked.out}`", file=sys.stderr)
        return 1
    asked.into.mkdir(parents=True, exist_ok=True)
    for name, picture in taken(page):
        small = fewer_colours(picture)
        (asked.into / name).write_bytes(small)
        print(f"{asked.into / name}: {len(small) / 1000:.0f} kB")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="Folder of a campaign.")
    parser.add_argument("--into", type=Path, metavar="FOLDER", default=IMAGES, help="Where the pictures go; docs/images.")
    return parser.parse_args()


def taken(page: Path) -> Iterator[tuple[str, bytes]]:
    """Name and PNG of each."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=required_browser(), args=["--no-sandbox"])
        for shot in SHOTS:
            yield shot.name, take(browser, page, shot)
        browser.close()


def take(browser: Browser, address: Path, shot: Shot) -> bytes:
    view = {"width": shot.width, "height": shot.height}
    context = browser.new_context(viewport=view, color_scheme=shot.scheme, device_scale_factor=shot.scale, reduced_motion="reduce")
    page = context.new_page()
    page.goto(address.resolve().as_uri())
    page.evaluate(DRAW_ALL)
    # A chart that was drawn above another moves it: wait until nothing does.
    page.wait_for_function("() => [...document.querySelectorAll('figure.chart')].every(one => one.dataset.state !== 'waiting')")
    picture = page.screenshot(clip=taken_of(page, shot), full_page=True)
    context.close()
    return picture


def taken_of(page: Page, shot: Shot) -> dict[str, float]:
    """The rectangle of the page that the picture shows, never higher than the picture may be."""
    if shot.part:
        left, top, right, bottom = edges(page, shot.part)
    else:
        # Without the margin, in which the next line begins.
        left, top, right, bottom = 0.0, 0.0, shot.width, edges(page, shot.until)[3] - MARGIN_PX if shot.until else shot.height
    return {"x": left, "y": top, "width": right - left, "height": min(bottom - top, shot.height)}


def edges(page: Page, selector: str) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of an element, a margin around it."""
    box = page.locator(selector).first.bounding_box(timeout=TIMEOUT_MS)
    assert box is not None, f"{selector} is not seen"
    return box["x"] - MARGIN_PX, box["y"] - MARGIN_PX, box["x"] + box["width"] + MARGIN_PX, box["y"] + box["height"] + MARGIN_PX


def fewer_colours(picture: bytes) -> bytes:
    """The same picture by palette where Pillow is installed; as it is where not."""
    try:
        from PIL import Image
    except ImportError:
        return picture
    small = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        reduced = image.convert("RGB").quantize(colors=COLOURS, dither=Image.Dither.NONE)
        reduced.save(small, "PNG", optimize=True)
    return min(small.getvalue(), picture, key=len)


if __name__ == "__main__":
    sys.exit(main())
