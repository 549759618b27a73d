"""`seatrial report OUT` and `seatrial why OUT FINDING`: recompute everything, and the evidence of a finding.

Besides the report: pictures, the page of two campaigns, a PDF, and a browser that shows it. What cannot be done here at all is refused
before anything is written; what fails later is reported at the end, and the rest is still written.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import AllowConfounded, AsJson, Folder, Full, Track
from seatrial.cli.program import console_for, print_json, write_lines
from seatrial.core.errors import CampaignError, SeatrialError, UsageError
from seatrial.core.paths import CampaignPaths
from seatrial.core.text import count
from seatrial.records.codec import to_json
from seatrial.report.view.campaign import PAGE_NOT_DRAWN

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.records.results import CampaignResults
    from seatrial.report.html.compare import Compared
    from seatrial.results.why import Recomputed, RecordedVerdict

log = logging.getLogger(__name__)

EXAMPLES = {
    "report": (
        "seatrial report outputs/tiny-lm-demo --open\n\n"
        "seatrial report outputs/tiny-lm-demo --full\n\n"
        "seatrial report tuesday --compare monday --open\n\n"
        "seatrial report outputs/tiny-lm-demo --pdf --png\n\n"
        "seatrial report outputs/tiny-lm-demo --svg picture.svg"
    ),
    "why": "seatrial why outputs/tiny-lm-demo\n\nseatrial why outputs/tiny-lm-demo 1 --remake",
}
PAGE = "The page"
DRAWS = "vl_convert"
DIFFERS = 2

OpenIt = Annotated[
    bool,
    typer.Option(
        "--open",
        help="Open the page in your browser: summary.html, or the one of --compare. Without a browser, print how to fetch it.",
        rich_help_panel=PAGE,
    ),
]
Other = Annotated[
    Path | None,
    typer.Option(
        "--compare",
        metavar="OUT2",
        help="Also compare with this campaign: what `seatrial compare OUT OUT2` prints, both rankings, what differs, and charts of both "
        "together, in OUT/compare_OUT2.html. Nothing is written into OUT2.",
        rich_help_panel=PAGE,
        show_default=False,
    ),
]
Pdf = Annotated[
    bool,
    typer.Option(
        "--pdf",
        help="Also print the page as summary.pdf, by the Chromium, Chrome or Edge on PATH, or that SEATRIAL_BROWSER names.",
        rich_help_panel=PAGE,
    ),
]
Png = Annotated[
    bool,
    typer.Option(
        "--png", help="Also draw the main charts as pictures, OUT/charts/NAME.png, which summary.md then shows.", rich_help_panel=PAGE
    ),
]
Svg = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the terminal report as an SVG picture; its folder must exist.")
]
FindingId = Annotated[
    str | None,
    typer.Argument(
        metavar="FINDING",
        help="The finding's id, as the report and verdict.json show it; its number or beginning will do. Without one, all are listed.",
        show_default=False,
    ),
]
Recompute = Annotated[
    bool,
    typer.Option("--remake", help="Recompute it from the raw files of the runs. Exit code 0 if the result is the same, else 2."),
]


def report(
    out: Folder,
    full: Full = False,
    open_it: OpenIt = False,
    compare: Other = None,
    pdf: Pdf = False,
    png: Png = False,
    svg: Svg = None,
    track: Track = None,
    allow_confounded: AllowConfounded = False,
    json: AsJson = False,
) -> int:
    """Recompute every table and report of a campaign from what is on disk, and print verdict, ranking and main findings in one screen.

    Works on unfinished campaigns, on folders copied from another machine, and on folders that the original stage-1 scripts wrote.

    What is written for a folder of the original scripts goes into its subfolder `seatrial`, and nothing else in it is touched.

    Exit codes are those of `run`; 1 if a requested extra could not be written, after all else is done.
    """
    from seatrial.cli.run import result_json, track_all, usable_trackers
    from seatrial.report.terminal import print_report
    from seatrial.results.folders import find_campaign
    from seatrial.results.recompute import recompute_or_explain

    extras = Extras(open_it=open_it, compare=compare, pdf=pdf, png=png, svg=svg, full=full)
    check_extras(extras, out)
    if out.is_dir() and not os.access(out, os.W_OK | os.X_OK):
        raise CampaignError(f"{out} is not writable. Copy the folder and report the copy")
    trackers = usable_trackers(track or ())
    campaign = find_campaign(out)
    console = console_for(as_json=json)
    results, unwritten = recompute_or_explain(campaign, allow_confounded=allow_confounded)
    print_report(results, console, full=full)
    track_all(trackers, results, console)
    written = write_extras(extras, out, results, console, unwritten)
    if json:
        print_json({**result_json(results), **written.to_json()})
    if written.errors:
        raise CampaignError("; ".join(written.errors))
    return results.verdict.verdict.exit_code


@dataclass(frozen=True, kw_only=True)
class Extras:
    """Options for more than the report."""

    open_it: bool = False
    compare: Path | None = None
    pdf: bool = False
    png: bool = False
    svg: Path | None = None
    full: bool = False


@dataclass(kw_only=True)
class Written:
    """The extras that were written."""

    html: Path | None = None
    pdf: Path | None = None
    png: tuple[Path, ...] = ()
    compare: Path | None = None
    comparison: dict[str, Any] | None = None
    errors: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For the JSON line: null where an extra was not requested or could not be written."""
        paths = {name: str(path) if path else None for name, path in (("html", self.html), ("pdf", self.pdf), ("compare", self.compare))}
        return {**paths, "png": [str(path) for path in self.png] or None, "comparison": self.comparison}


def check_extras(extras: Extras, out: Path) -> None:
    """A UsageError or CampaignError where something cannot be done here at all."""
    if extras.svg is not None and not extras.svg.absolute().parent.is_dir():
        raise UsageError(f"--svg {extras.svg}: there is no folder {extras.svg.parent}; create it first, or name a file in an existing one")
    if extras.png:
        try:
            # Imported, since an installed package may still not load.
            importlib.import_module(DRAWS)
        except (ImportError, OSError) as error:
            is_missing = isinstance(error, ModuleNotFoundError) and error.name == DRAWS
            why = "is not installed here" if is_missing else f"cannot be loaded here ({error})"
            raise UsageError(f"--png needs vl-convert-python, which {why}: `pip install 'seatrial[charts]'`") from error
    if extras.pdf:
        from seatrial.report.html.print import required_browser

        required_browser()
    if extras.compare is not None:
        from seatrial.results.compare_page import check_other_campaign

        check_other_campaign(out, extras.compare)


def write_extras(extras: Extras, out: Path, results: CampaignResults, console: Console, unwritten: str = "") -> Written:
    """Write every extra, one after another, and print where it is; one that fails does not stop the others. `unwritten`: why there are no
    tables, if so; then only the terminal can be drawn."""
    from seatrial.cli.browser import open_page
    from seatrial.report.terminal import save_svg

    paths = CampaignPaths(Path(results.output))
    written = Written(errors=[unwritten]) if unwritten else Written(html=_page(results, paths))
    if extras.svg:
        with _errors_kept("--svg", written):
            save_svg(results, extras.svg, full=extras.full)
    if unwritten:
        return written
    if extras.png:
        with _errors_kept("--png", written):
            written.png = _write_pictures(results, paths, console)
    if extras.compare:
        with _errors_kept("--compare", written):
            written.compare, written.comparison = _write_comparison(out, results, extras.compare, console)
    if extras.pdf:
        with _errors_kept("--pdf", written):
            written.pdf = _write_pdf(written.html, paths, console)
    if extras.open_it:
        page = written.compare or written.html
        _print(console, [open_page(page) if page else "There is no page to open: it could not be written."])
    return written


def _page(results: CampaignResults, paths: CampaignPaths) -> Path | None:
    """The page of these results; if it could not be drawn, an older one may exist."""
    is_drawn = not any(caution.kind == PAGE_NOT_DRAWN for caution in results.cautions)
    return paths.summary_html if is_drawn and paths.summary_html.is_file() else None


@contextlib.contextmanager
def _errors_kept(option: str, written: Written) -> Iterator[None]:
    """Turns any error of a disk, browser or drawing program into a sentence."""
    try:
        yield
    except SeatrialError as error:
        written.errors.append(f"{option}: {error}")
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        written.errors.append(f"{option}: {reason}")
    except Exception as error:
        log.debug("%s failed", option, exc_info=error)
        written.errors.append(f"{option}: {type(error).__name__}: {error}")


def _write_pictures(results: CampaignResults, paths: CampaignPaths, console: Console) -> tuple[Path, ...]:
    """The main charts as PNG, and summary.md again, since it shows those that exist."""
    from seatrial.report.html.data import page_data
    from seatrial.report.html.print import PNG_CHARTS, write_pngs
    from seatrial.report.write import write_summary

    # Only our own names: the folder may hold the user's pictures too.
    ours = [paths.charts / f"{name}.png" for name in PNG_CHARTS]
    _move_aside(ours, console)
    written = tuple(write_pngs(page_data(results).drawn, paths.charts))
    for outdated in set(ours) - set(written):
        outdated.unlink(missing_ok=True)
    write_summary(results, paths)
    names = ", ".join(path.name for path in written)
    _print(console, [f"Pictures: {names} in {paths.charts}" if written else "Pictures: none; no run has anything to draw."])
    return written


def _write_comparison(out: Path, results: CampaignResults, other: Path, console: Console) -> tuple[Path, dict[str, Any]]:
    from seatrial.results.compare_page import write_comparison

    found = write_comparison(out, results, other)
    moved = [found.moved] if found.moved else []
    _print(console, [*moved, "", *comparison_text(found.compared, console.width), "", f"Side by side: {found.page}"])
    if found.compared.refused:
        return found.page, {"refused": found.compared.refused}
    return found.page, {"comparisons": to_json(found.compared.comparisons), "note": found.compared.note}


def comparison_text(compared: Compared, width: int) -> list[str]:
    """What `seatrial compare OUT OUT2` prints, or why the two are not compared."""
    from seatrial.report.comparison import comparison_lines

    if compared.refused:
        return [f"Not compared: {compared.refused}"]
    return comparison_lines(compared.comparisons, width, compared.note)


def _write_pdf(page: Path | None, paths: CampaignPaths, console: Console) -> Path:
    from seatrial.report.html.print import required_browser, write_pdf

    if page is None:
        raise CampaignError("there is no summary.html to print")
    _move_aside([paths.summary_pdf], console)
    undrawn = write_pdf(page, paths.summary_pdf, required_browser())
    _print(console, [f"PDF: {paths.summary_pdf}"])
    if undrawn:
        console.print(f"Charts not drawn in it: {', '.join(undrawn)}", style="yellow", markup=False, highlight=False)
    return paths.summary_pdf


def _move_aside(written: Iterable[Path], console: Console) -> None:
    """Folders in the way of these files are renamed, with a line about it."""
    from seatrial.results.recompute import move_folder_aside

    _print(console, [moved.text for path in written if (moved := move_folder_aside(path))])


def _print(console: Console, lines: Sequence[str]) -> None:
    from seatrial.report.text import one_line

    if lines:
        console.print("\n".join(map(one_line, lines)), markup=False, highlight=False, soft_wrap=True)


def why(out: Folder, finding: FindingId = None, recompute: Recompute = False, json: AsJson = False) -> int:
    """Show what a finding of a verdict rests on: each number with its file, window and n, how it is computed, and from which raw files.

    Works on unfinished and copied campaigns, and on folders that the original stage-1 scripts wrote. Nothing in OUT is changed.
    """
    from seatrial.report.finding_text import finding_json, finding_lines
    from seatrial.results.folders import find_campaign
    from seatrial.results.why import find_finding, read_verdict, recompute_finding, trace

    if recompute and not finding:
        raise UsageError("--remake recomputes one finding: name it, for example `seatrial why OUT 1 --remake`")
    paths = CampaignPaths(find_campaign(out))
    recorded = read_verdict(paths)
    if not finding:
        return _list_findings(recorded, json)
    one = find_finding(recorded.findings, finding)
    # Always quoted: ids hold colons and names of groups.
    quoted = shlex.quote(one.id) if "'" in one.id else f"'{one.id}'"
    command = f"seatrial why {shlex.quote(str(out))} {quoted} --remake"
    numbers = trace(paths, one)
    again = recompute_finding(paths, one) if recompute else None
    width = console_for(as_json=json).width
    write_lines([*finding_lines(one, numbers, command, width), *(_recomputed_lines(recorded, again) if again else [])], as_json=json)
    if json:
        document = finding_json(one, numbers, command)
        if again:
            document |= {"same": not again.differences, "differences": list(again.differences), "remade": to_json(again.finding)}
        print_json(document)
    return DIFFERS if again and again.differences else 0


def _list_findings(recorded: RecordedVerdict, json: bool) -> int:
    from seatrial.report.finding_text import findings_lines

    write_lines(list(findings_lines(recorded.findings, console_for(as_json=json).width)), as_json=json)
    if json:
        print_json({"findings": to_json(recorded.verdict.findings), "statements": to_json(recorded.verdict.statements)})
    return 0


def _recomputed_lines(recorded: RecordedVerdict, again: Recomputed) -> list[str]:
    from seatrial.report.text import one_line

    if again.differences:
        return ["", "Not the same:", *(f"  {one_line(difference)}" for difference in again.differences)]
    if not recorded.on_disk:
        return ["", "There is no verdict.json to compare with: the finding above was computed from the runs' files just now."]
    return ["", f"The same, recomputed from the files of {count(again.runs, 'run')}."]
