"""What `seatrial report` makes besides the report: pictures, the page of two campaigns, a PDF, and a browser that shows it.

In: what was asked for, and the results, whose reports are written. Out: `Made`, with the paths of what there is now. What cannot be done
here at all is refused before anything is made; what fails later is a sentence among the troubles, and the rest is made all the same.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.errors import SeatrialError, UsageError
from seatrial.paths import CampaignPaths

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.records.results import CampaignResults

NO_CHARTS = "--png draws by vl-convert-python, which is not installed here: `pip install 'seatrial[charts]'`"


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What was asked for."""

    open_it: bool = False
    compare: Path | None = None
    pdf: bool = False
    png: bool = False


@dataclass(frozen=True, kw_only=True)
class Made:
    """What there is now."""

    html: Path | None = None
    pdf: Path | None = None
    png: tuple[Path, ...] = ()
    compare: Path | None = None
    comparison: dict[str, Any] | None = None
    troubles: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """For the machine's line: null where a thing was not asked for or could not be made."""
        paths = {name: str(path) if path else None for name, path in (("html", self.html), ("pdf", self.pdf), ("compare", self.compare))}
        return {**paths, "png": [str(path) for path in self.png] or None, "comparison": self.comparison}


def refuse_what_cannot_be(asked: Extras) -> None:
    """A UsageError or CampaignError, before anything is made, that names what to install or to name."""
    if asked.png and not can_draw():
        raise UsageError(NO_CHARTS)
    if asked.pdf:
        from seatrial.report.html.pdf import required_browser

        required_browser()
    if asked.compare is not None:
        from seatrial.cli.side_by_side import check_other

        check_other(asked.compare)


def can_draw() -> bool:
    """Whether the extra `charts` is installed."""
    return importlib.util.find_spec("vl_convert") is not None


def make_extras(asked: Extras, out: Path, results: CampaignResults, people: Console) -> Made:
    """Everything that was asked for, one after another; each says where it is."""
    paths = CampaignPaths(Path(results.output))
    made = Made(html=paths.summary_html if paths.summary_html.is_file() else None)
    made = _pictures(made, results, paths, people) if asked.png else made
    made = _compared(made, out, results, asked.compare, people) if asked.compare is not None else made
    made = _printed(made, paths, people) if asked.pdf else made
    if asked.open_it:
        _open(made.compare or made.html, people)
    return made


def _pictures(made: Made, results: CampaignResults, paths: CampaignPaths, people: Console) -> Made:
    """The main charts as PNG, and summary.md again, since it shows those that are there."""
    from seatrial.report.html.page_data import read_page_data
    from seatrial.report.html.png import write_pngs
    from seatrial.report.summary import write_summary

    written = tuple(write_pngs(read_page_data(paths), paths.charts))
    for outdated in set(paths.charts.glob("*.png")) - set(written):
        outdated.unlink(missing_ok=True)
    write_summary(results, paths)
    if not written:
        _say(people, ["Pictures: none; no run has anything to draw."])
        return made
    _say(people, [f"Pictures: {', '.join(path.name for path in written)} in {paths.charts}"])
    return replace(made, png=written)


def _compared(made: Made, out: Path, results: CampaignResults, other: Path, people: Console) -> Made:
    from seatrial.cli.side_by_side import write_side_by_side

    found = write_side_by_side(out, results, other)
    _say(people, ["", *found.lines(people.width), "", f"Side by side: {found.page}"])
    return replace(made, compare=found.page, comparison=found.told())


def _printed(made: Made, paths: CampaignPaths, people: Console) -> Made:
    from seatrial.report.html.pdf import required_browser, write_pdf

    if made.html is None:
        return replace(made, troubles=(*made.troubles, "--pdf: there is no summary.html to print"))
    try:
        undrawn = write_pdf(made.html, paths.summary_pdf, required_browser())
    except SeatrialError as error:
        return replace(made, troubles=(*made.troubles, f"--pdf: {error}"))
    _say(people, [f"PDF: {paths.summary_pdf}"])
    if undrawn:
        people.print(f"In it these charts could not be drawn: {', '.join(undrawn)}", style="yellow", markup=False, highlight=False)
    return replace(made, pdf=paths.summary_pdf)


def _open(page: Path | None, people: Console) -> None:
    from seatrial.cli.open_page import open_page

    _say(people, [open_page(page) if page else "There is no page to open: it could not be written."])


def _say(people: Console, lines: Sequence[str]) -> None:
    from seatrial.report.markdown import one_line

    people.print("\n".join(map(one_line, lines)), markup=False, highlight=False, soft_wrap=True)
