"""summary.html: one self-contained file that needs no network.

In: the page's data. Out: HTML. The templates escape every text; page.js draws the charts in the browser from tables and specs in the page's
JSON. A Content-Security-Policy allows the page's own scripts by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.core import files
from seatrial.records.columns import AXIS
from seatrial.report.html.data import MAX_PICKED, Chart, ChartData, PageData, encode_tables, script_safe_json
from seatrial.report.html.group_charts import heat_chart, phases_chart, ranking_chart, startup_chart
from seatrial.report.html.run_charts import eta_chart, loss_chart, ranks_chart, step_times_chart, steps_chart
from seatrial.report.html.sections import content
from seatrial.report.html.timeline import timeline_chart
from seatrial.report.html.vega import HOW_TO_ZOOM
from seatrial.report.text import plain_line

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "template"
PAGE_SCRIPTS = ("decode.js", "draw.js", "pick.js", "rows.js", "page.js")
"""Joined in this order into one module; the last one starts it."""
CHARTS = (
    ranking_chart, heat_chart, steps_chart, loss_chart, step_times_chart, phases_chart, startup_chart, timeline_chart, ranks_chart,
    eta_chart, )  # fmt: skip
_CODE = re.compile("`([^`]+)`")


def all_charts(data: ChartData) -> list[Chart]:
    """The charts that have rows, in the order of the page's sections."""
    return [chart for build in CHARTS if (chart := build(data)) is not None]


def summary_page(data: PageData) -> str:
    """The whole of summary.html."""
    return assemble(page_parts(data))


def assemble(parts: dict[str, Any], *, live: str | None = None, head: str = "") -> str:
    """The page from the parts of `page_parts`. `live` is a script that keeps it current: it runs after the page's own scripts and may send
    requests to the page's server. `head` is markup for the <head>."""
    from markupsafe import Markup

    page = "\n".join(map(_template_text, PAGE_SCRIPTS))
    scripts = {"theme": _template_text("theme.js"), "vega": vega_bundle(), "page": page, "live": live}
    return environment().get_template("summary.html.j2").render(
        title=parts["title"],
        main=Markup(parts["main"]),
        sections=parts["sections"],
        payload=Markup(script_safe_json(parts["payload"])),
        policy=_content_security_policy([text for text in scripts.values() if text], is_live=live is not None),
        style=Markup(_template_text("style.css")),
        scripts={name: Markup(text) for name, text in scripts.items() if text},
        is_live=live is not None,
        head=Markup(head),
    )  # fmt: skip


def page_parts(data: PageData) -> dict[str, Any]:
    """The parts of the page that depend on the campaign, as plain values: `title`, `main` (the markup inside <main>), `payload` (the
    charts' data), `sections`. An open page is updated with them by `window.seatrial.replace`."""
    charts = all_charts(data.drawn)
    values = content(data, charts, has_bundle=vega_bundle() is not None)
    main = environment().get_template("main.html.j2").render(values)
    return {"title": plain_line(values["title"]), "main": main, "payload": payload(data.drawn, charts), "sections": values["sections"]}


def payload(data: ChartData, charts: Sequence[Chart]) -> dict[str, Any]:
    """What page.js draws from: encoded tables, charts with their specs, the initial picks, how many runs can be selected, and the prefix
    of axes' columns."""
    return {
        "tables": encode_tables(data.tables),
        "charts": _plain_texts([asdict(chart) for chart in charts]),
        "picks": _plain_texts({"runs": data.picks.runs, "timeline": data.picks.timeline}),
        "most_picked": MAX_PICKED,
        "axis": AXIS,
    }


def _plain_texts(value: Any) -> Any:
    """The value with texts as in the encoded tables, so that names are found there."""
    if isinstance(value, dict):
        return {key: _plain_texts(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_texts(item) for item in value]
    return plain_line(value) if isinstance(value, str) else value


def _content_security_policy(scripts: Sequence[str], *, is_live: bool) -> str:
    """What the page may load: its own scripts, styles and pictures."""
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


def caption_markup(caption: str) -> Markup:
    """A chart's caption; how to zoom is only for the screen, not for print."""
    from markupsafe import Markup, escape

    before, how, rest = plain_line(caption).partition(HOW_TO_ZOOM)
    on_screen = Markup('<span class="on-screen">{}</span>').format(how) if how else Markup("")
    return escape(before) + on_screen + escape(rest)


@cache
def environment() -> Environment:
    """The Jinja environment of the templates, which escapes every text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        # Applied to every inserted text, except markup.
        finalize=lambda value: plain_line(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = code_markup
    environment.filters["breakable"] = breakable_markup
    environment.filters["caption"] = caption_markup
    return environment


@cache
def _template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def code_markup(text: str) -> Markup:
    """A text of ours, escaped; text between backticks becomes code."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(plain_line(text)))))


_SEPARATOR = re.compile(r"(?<=[_\-/=,.:])(?=[^_\-/=,.:])")


def breakable_markup(name: object) -> Markup:
    """A name, escaped, that a narrow column only breaks at its separators."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in _SEPARATOR.split(plain_line(str(name))))


SNIPPET = "window.vegaEmbed=vegaEmbed;"
SMALLEST_WHOLE = 100_000
"""Characters; a shorter, truncated file is built again."""
PRIVATE_FOLDER, PRIVATE = 0o700, 0o600
_not_cached: dict[Path, str] = {}
# They occur inside strings of the bundle, where a backslash changes nothing; tools that edit the page as text must not find them.
_ENDS = re.compile(r"</(script|body|head|html)", re.IGNORECASE)


def vega_bundle() -> str | None:
    """Vega, Vega-Lite and Vega-Embed as one ES module that sets `window.vegaEmbed`; None without vl_convert.

    Building it takes two seconds, so it is cached under vl_convert's version; where the cache cannot be written, every process builds its
    own. It runs in every page, also at other readers', so a cached file that another user wrote, or could have written, is not used.
    """
    version = _version()
    if version is None:
        return None
    cached = _cache_folder() / f"vega-{version}.js"
    return _read(cached) or _not_cached.get(cached) or _build(cached)


def _version() -> str | None:
    from importlib import metadata

    try:
        return metadata.version("vl-convert-python")
    except metadata.PackageNotFoundError:
        return None


def _cache_folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given.startswith("/"):
        return Path(given) / "seatrial"
    # Without a home folder there is no cache; a folder named `~` would be wrong.
    home = os.path.expanduser("~")  # noqa: PTH111 (Path.home() raises where there is none)
    return Path(home if home.startswith("/") else "/nonexistent") / ".cache" / "seatrial"


def _read(cached: Path) -> str | None:
    try:
        with files.open_file(cached) as source:
            if not _is_ours(source.fileno()):
                return None
            text = source.read().decode("utf-8")
    except (OSError, ValueError):
        return None
    return text if _is_whole(text) else None


def _is_ours(handle: int) -> bool:
    """Whether only this user can have written the open file; its path may lead to another by now."""
    found = os.fstat(handle)
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _build(cached: Path) -> str | None:
    try:
        import vl_convert
    except ImportError:
        return None
    text = _script_safe(str(vl_convert.javascript_bundle(SNIPPET)))
    if not _is_whole(text):
        return None
    try:
        cached.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        files.write_text(cached, text, PRIVATE)
    except OSError:
        # A live page is built repeatedly.
        _not_cached[cached] = text
    return text


def _script_safe(text: str) -> str:
    """The text without what ends a script element or the document, with line breaks as the browser reads them, as the policy hashes it."""
    safe = _ENDS.sub(r"<\\/\1", text).replace("<!--", "<\\!--")
    return safe.replace("\r\n", "\n").replace("\r", "\n")


def _is_whole(text: str) -> bool:
    """Whether the file is complete: it ends with the snippet that sets the name."""
    return len(text) >= SMALLEST_WHOLE and "window.vegaEmbed=" in text[-200:] and not _ENDS.search(text)
