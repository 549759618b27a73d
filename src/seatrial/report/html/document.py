"""summary.html: the page that gets sent to the team, one file that needs no other.

In: a campaign's folder, or the data read from it. Out: the page. Texts are set by the template, which escapes every one of them; charts are
drawn by page.js in the browser, from the tables and specs that lie in the page as JSON. A policy in its head allows the page's own scripts,
by their hashes, and nothing else: no request leaves it, and markup that slipped through somewhere would not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.columns import AXIS
from seatrial.report.html.chart import Chart
from seatrial.report.html.content import content, title
from seatrial.report.html.encode import encoded_tables, script_safe
from seatrial.report.html.page_data import PageData, read_page_data
from seatrial.report.html.picks import MOST_PICKED, default_picks
from seatrial.report.html.shown_text import coded, finalize, plain
from seatrial.report.html.vega_bundle import vega_bundle

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "template"
PAGE_SCRIPTS = ("decode.js", "draw.js", "pick.js", "rows.js", "page.js")
"""One module in the page, in this order; the last one starts it."""


def write_html(paths: CampaignPaths) -> None:
    """Make summary.html anew from summary.json and the tables."""
    files.write_text(paths.summary_html, document(read_page_data(paths)))


def document(data: PageData, *, live: str | None = None, head: str = "") -> str:
    """The whole page.

    `live` is the text of a script that keeps it new: it runs after the page's own, and may ask the server that the page came from.
    `head` is markup of the caller's own for the head of the page.
    """
    return assembled(document_parts(data), live=live, head=head)


def assembled(parts: dict[str, Any], *, live: str | None = None, head: str = "") -> str:
    """The page of these parts, as `document_parts` gives them."""
    from markupsafe import Markup

    page = "\n".join(map(_template_text, PAGE_SCRIPTS))
    scripts = {"theme": _template_text("theme.js"), "vega": vega_bundle(), "page": page, "live": live}
    return environment().get_template("summary.html.j2").render(
        title=parts["title"],
        main=Markup(parts["main"]),
        sections=parts["sections"],
        payload=Markup(script_safe(parts["payload"])),
        policy=_policy([text for text in scripts.values() if text], is_live=live is not None),
        style=Markup(_template_text("style.css")),
        scripts={name: Markup(text) for name, text in scripts.items() if text},
        is_live=live is not None,
        head=Markup(head),
    )  # fmt: skip


def document_parts(data: PageData) -> dict[str, Any]:
    """What of the page depends on the campaign, as plain values: `title`, `main` (the markup inside <main>), `payload` (what charts are
    drawn from), `sections`. A page that is open takes it by `window.seatrial.replace`."""
    from seatrial.report.html.specs.all_charts import all_charts

    charts = all_charts(data)
    said = content(data, charts, has_bundle=vega_bundle() is not None)
    main = environment().get_template("main.html.j2").render(said)
    return {"title": plain(title(data.summary)), "main": main, "payload": payload(data, charts), "sections": said["sections"]}


def payload(data: PageData, charts: Sequence[Chart]) -> dict[str, Any]:
    """What page.js draws from: tables encoded, charts with their specs, what is picked before anybody picks and how much may be, and how
    the columns of axes begin."""
    from seatrial.report.html.rows_for import tables_for

    return {
        "tables": encoded_tables(tables_for(data)),
        "charts": _plain_texts([asdict(chart) for chart in charts]),
        "picks": _plain_texts(default_picks(data)),
        "most_picked": MOST_PICKED,
        "axis": AXIS,
    }


def _plain_texts(value: Any) -> Any:
    """Names as the encoded tables have them, so that they are found there."""
    if isinstance(value, dict):
        return {key: _plain_texts(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_texts(item) for item in value]
    return plain(value) if isinstance(value, str) else value


def _policy(scripts: Sequence[str], *, is_live: bool) -> str:
    """What the page may do: its own scripts, its own styles, pictures inside it."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
    parts = [
        "default-src 'none'",
        f"script-src {hashes}",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if is_live else []),
    ]
    return "; ".join(parts)


def told_apart(caption: str) -> Markup:
    """A chart's caption; what can be done with a pointer is for the screen alone."""
    from markupsafe import Markup, escape

    from seatrial.report.html.specs.series import HOW_TO_ZOOM

    said, how, rest = plain(caption).partition(HOW_TO_ZOOM)
    on_screen = Markup('<span class="on-screen">{}</span>').format(how) if how else Markup("")
    return escape(said) + on_screen + escape(rest)


@cache
def environment() -> Environment:
    """What makes pages of the templates: every text that it puts in is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = coded
    environment.filters["told_apart"] = told_apart
    return environment


@cache
def _template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
