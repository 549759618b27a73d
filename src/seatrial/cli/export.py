"""`seatrial export OUT TABLE…`: any table of a campaign as CSV or Parquet."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import Folder
from seatrial.core.errors import UsageError, did_you_mean
from seatrial.core.paths import CampaignPaths
from seatrial.core.text import format_bytes
from seatrial.report.tables import FORMATS

if TYPE_CHECKING:
    from seatrial.results.export import Exporter, Table

EXAMPLES = {
    "export": (
        "seatrial export outputs/tiny-lm-demo steps -o steps.parquet\n\nseatrial export outputs/tiny-lm-demo all -o tables --format parquet"
    )
}
# Endings of other file types, which would surprise as the name of a folder.
OTHER_FILES = (".tsv", ".txt", ".json", ".jsonl", ".xlsx", ".feather", ".arrow", ".gz", ".zst", ".zip", ".pq", ".db", ".sqlite")

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE…]", help="Tables to export, or `all`; without one they are listed.", show_default=False),
]
Format = Annotated[str | None, typer.Option("--format", metavar="csv|parquet", help="Default: by the ending of -o, else csv.")]
Target = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE|FOLDER", help="A .csv or .parquet file, or a folder for several. Default: stdout."),
]


def export(out: Folder, tables: Tables = None, format: Format = None, output: Target = None) -> int:
    """Export any table of a campaign as CSV or Parquet, computed from what is on disk; without TABLE, list the tables.

    Numbers and flags are typed in Parquet. Columns are described in docs/files.md. A folder that the original stage-1 scripts wrote is
    read through its translation in the subfolder `seatrial`.
    """
    from seatrial.results.export import Exporter, table_names
    from seatrial.results.folders import find_campaign

    names = table_names(tables or [])
    form = chosen_format(format, output)
    targets = chosen_targets(names, output, form)
    exporter = Exporter(CampaignPaths(find_campaign(out)))
    if not names:
        _list(exporter)
    elif targets:
        _write(exporter, targets, form)
    else:
        _to_stdout(exporter, names[0], form)
    for line in exporter.left_out:
        print(f"seatrial: not readable, left out: {line}", file=sys.stderr)
    return 1 if exporter.left_out else 0


def chosen_format(given: str | None, output: Path | None) -> str:
    """`csv` or `parquet`; an ending that contradicts --format is refused."""
    if given is not None and given not in FORMATS:
        raise UsageError(f"--format {given}: unknown; {did_you_mean(given, FORMATS)}")
    ending = output.suffix.lower().removeprefix(".") if output is not None else ""
    if given is not None and ending in FORMATS and ending != given:
        raise UsageError(f"-o {output} ends in .{ending} and --format says {given}: leave --format out, or change the ending")
    return given or (ending if ending in FORMATS else "csv")


def chosen_targets(names: list[str], output: Path | None, form: str) -> dict[str, Path]:
    """Table → file; {} for stdout."""
    if output is None:
        if len(names) > 1:
            raise UsageError(f"{len(names)} tables do not fit into one stream: name a folder for them with -o FOLDER")
        if names and form == "parquet" and sys.stdout.isatty():
            raise UsageError("Parquet is binary: write it with -o FILE.parquet, or into a pipe")
        return {}
    if not names:
        raise UsageError("-o needs a table: name one or more, or `all`; without -o they are listed")
    is_folder = output.is_dir()
    if not is_folder and output.suffix.lower() in OTHER_FILES:
        raise UsageError(f"-o {output}: tables are written as .csv or .parquet; give one of these endings, or a folder")
    if is_folder or output.suffix.lower().removeprefix(".") not in FORMATS:
        return {name: output / f"{name}.{form}" for name in names}
    if len(names) > 1:
        raise UsageError(f"-o {output} is one file and {len(names)} tables are requested: give a folder")
    return {names[0]: output}


def _list(exporter: Exporter) -> None:
    from rich.table import Table

    from seatrial.cli.program import console_for
    from seatrial.results.export import TABLES

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title, side in (("table", "left"), ("rows", "right"), ("columns", "right"), ("holds", "left")):
        shown.add_column(title, justify="right" if side == "right" else "left", no_wrap=title == "table")
    for name, holds in TABLES.items():
        table = exporter.table(name)
        shown.add_row(name, f"{sum(len(frame) for frame in table.frames):,}", str(len(table.schema)), holds)
    console_for().print(shown)


def _write(exporter: Exporter, targets: dict[str, Path], form: str) -> None:
    for name, path in targets.items():
        table = exporter.table(name)
        try:
            rows = table.write(path, form)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror or error}; choose another place with -o") from error
        size = format_bytes(path.stat().st_size)
        print(f"{name}: {rows:,} {'row' if rows == 1 else 'rows'}, {len(table.schema)} columns → {path} ({size})")


def _to_stdout(exporter: Exporter, name: str, form: str) -> None:

    # Not through SafeStream: here the text is the result, and half of it would be wrong.
    stdout = getattr(sys.stdout, "buffer", None)
    if stdout is None:
        raise UsageError("standard output is closed: write the table with -o FILE")
    try:
        for part in _parts(exporter.table(name), form):
            stdout.write(part)
        stdout.flush()
    except BrokenPipeError:
        return
    except OSError as error:
        raise UsageError(f"standard output failed ({error.strerror}): the table is incomplete; write it with -o FILE") from error


def _parts(table: Table, form: str) -> Iterator[bytes]:
    if form == "csv":
        yield from (part.encode() for part in table.csv())
        return
    with tempfile.TemporaryDirectory(prefix="seatrial-") as folder:
        whole = Path(folder) / table.name
        table.write(whole, form)
        yield whole.read_bytes()
