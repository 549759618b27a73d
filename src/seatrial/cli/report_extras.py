"""What `seatrial report` makes besides the report: pictures, the page of two campaigns, a PDF, and a browser that shows it.

In: what was asked for, and the results, whose reports are written. Out: `Made`, with the paths of what there is now. What cannot be done
here at all is refused before anything is made; what fails later is a sentence among the troubles, and the rest is made all the same.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.errors import SeatrialError, UsageError
from seatrial.paths import CampaignPaths
from seatrial.report.digest.cautions import PAGE_NOT_DRAWN

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.records.results import CampaignResults

log = logging.getLogger(__name__)

DRAWS = "vl_convert"
NO_CHARTS = "--png draws by vl-convert-python, which {}: `pip install 'seatrial[charts]'`"


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What was asked for."""

    open_it: bool = False
    compare: Path | None = None
    pdf: bool = False
    png: bool = False
    svg: Path | None = None


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


def refuse_what_cannot_be(asked: Extras, out: Path) -> None:
    """A UsageError or CampaignError, before anything is made, that names what to install or to name."""
    if asked.svg is not None and not asked.svg.absolute().parent.is_dir():
        raise UsageError(f"--svg {asked.svg}: there is no folder {asked.svg.parent}; make it first, or name a file in one that is there")
    if asked.png:
        _need_drawing()
    if asked.pdf:
        from seatrial.report.html.pdf import required_browser

        required_browser()
    if asked.compare is not None:
        from seatrial.campaign.side_by_side import check_other

        check_other(out, asked.compare)


def _need_drawing() -> None:
    """Loaded, and not only looked for: a package that is there may still not load."""
    try:
        importlib.import_module(DRAWS)
    except (ImportError, OSError) as error:
        raise UsageError(NO_CHARTS.format(_why_not_loaded(error, DRAWS))) from error


def _why_not_loaded(error: ImportError | OSError, package: str) -> str:
    is_missing = isinstance(error, ModuleNotFoundError) and error.name == package
    return "is not installed here" if is_missing else f"cannot be loaded here ({error})"


def _page(results: CampaignResults, paths: CampaignPaths) -> Path | None:
    """The page of these results; one that could not be drawn may have left an older one."""
    is_drawn = not any(caution.kind == PAGE_NOT_DRAWN for caution in results.cautions)
    return paths.summary_html if is_drawn and paths.summary_html.is_file() else None


def make_extras(asked: Extras, out: Path, results: CampaignResults, console: Console, unwritten: str = "") -> Made:
    """Everything that was asked for, one after another; each says where it is. One that fails is told, and costs none of the others.
    `unwritten` says why there are no tables, where there are none: then only the terminal can be drawn."""
    paths = CampaignPaths(Path(results.output))
    made = Made(troubles=(unwritten,)) if unwritten else Made(html=_page(results, paths))
    if asked.svg:
        made = _tried("--svg", made, partial(_drawn_terminal, results, asked.svg))
    if unwritten:
        return made
    if asked.png:
        made = _tried("--png", made, partial(_pictures, results, paths, console))
    if asked.compare:
        made = _tried("--compare", made, partial(_compared, out, results, asked.compare, console))
    if asked.pdf:
        made = _tried("--pdf", made, partial(_printed, paths, console))
    if asked.open_it:
        _open(made.compare or made.html, console)
    return made


def _tried(option: str, made: Made, make: Callable[[Made], Made]) -> Made:
    """With what was made, or with the reason why it was not: whatever a disk, a browser or a drawing program may say."""
    try:
        return make(made)
    except SeatrialError as error:
        reason = str(error)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    except Exception as error:
        log.debug("%s failed", option, exc_info=error)
        reason = f"{type(error).__name__}: {error}"
    return replace(made, troubles=(*made.troubles, f"{option}: {reason}"))


def _drawn_terminal(results: CampaignResults, svg: Path, made: Made) -> Made:
    from seatrial.report.terminal import save_svg

    save_svg(results, svg)
    return made


def _pictures(results: CampaignResults, paths: CampaignPaths, console: Console, made: Made) -> Made:
    """The main charts as PNG, and summary.md again, since it shows those that are there."""
    from seatrial.report.html.page_data import read_page_data
    from seatrial.report.html.png import DRAWN, write_pngs
    from seatrial.report.summary import write_summary

    # Only names of our own: the folder may hold the user's pictures too.
    ours = [paths.charts / f"{name}.png" for name in DRAWN]
    _make_way(ours, console)
    written = tuple(write_pngs(read_page_data(paths), paths.charts))
    for outdated in set(ours) - set(written):
        outdated.unlink(missing_ok=True)
    write_summary(results, paths)
    if not written:
        _say(console, ["Pictures: none; no run has anything to draw."])
        return made
    _say(console, [f"Pictures: {', '.join(path.name for path in written)} in {paths.charts}"])
    return replace(made, png=written)


def _compared(out: Path, results: CampaignResults, other: Path, console: Console, made: Made) -> Made:
    from seatrial.campaign.side_by_side import write_side_by_side
    from seatrial.cli.side_by_side import compared_json, compared_lines

    found = write_side_by_side(out, results, other)
    moved = [found.moved] if found.moved else []
    _say(console, [*moved, "", *compared_lines(found.compared, console.width), "", f"Side by side: {found.page}"])
    return replace(made, compare=found.page, comparison=compared_json(found.compared))


def _printed(paths: CampaignPaths, console: Console, made: Made) -> Made:
    from seatrial.errors import CampaignError
    from seatrial.report.html.pdf import required_browser, write_pdf

    if made.html is None:
        raise CampaignError("there is no summary.html to print")
    _make_way([paths.summary_pdf], console)
    undrawn = write_pdf(made.html, paths.summary_pdf, required_browser())
    _say(console, [f"PDF: {paths.summary_pdf}"])
    if undrawn:
        console.print(f"In it these charts could not be drawn: {', '.join(undrawn)}", style="yellow", markup=False, highlight=False)
    return replace(made, pdf=paths.summary_pdf)


def _make_way(written: Iterable[Path], console: Console) -> None:
    """Folders that stand where these files go are kept under another name, which is said."""
    from seatrial.campaign.in_the_way import folder_moved_aside

    _say(console, [moved.text for path in written if (moved := folder_moved_aside(path))])


def _open(page: Path | None, console: Console) -> None:
    from seatrial.cli.open_page import open_page

    _say(console, [open_page(page) if page else "There is no page to open: it could not be written."])


def _say(console: Console, lines: Sequence[str]) -> None:
    from seatrial.report.one_line import one_line

    if not lines:
        return
    console.print("\n".join(map(one_line, lines)), markup=False, highlight=False, soft_wrap=True)
