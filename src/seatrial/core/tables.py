"""Tables, .csv and .tsv: one row per line, cells without a value empty.

In: rows as dicts of plain values, and the columns in order. Out: a file, written atomically; read back as dicts of text.
"""

from __future__ import annotations

import csv
import enum
import errno
import io
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, TextIO

from seatrial.core.durable_writes import write_text_durably
from seatrial.core.errors import CampaignError
from seatrial.core.files import atomic_write, read_whole

# A ratio always has six decimals, so that columns align and two files can be compared as text.
_RATIO_COLUMN = re.compile(r"(?:^|_)ratio(?:_|$)|_over_p50|speedup|stability_score")
_DECIMALS = 6
_MAX_DECIMALS = 15
_LINE_BREAKS = re.compile(r"[\r\n\t\v\f]+")
# Ten thousand runs have a few hundred columns.
MAX_CELLS = 10_000_000
# Cells are formatted column by column, this many rows at a time: memory does not grow with the table.
_ROWS_AT_ONCE = 4096


class _Commas(csv.excel):
    lineterminator = "\n"


class _Tabs(csv.excel_tab):
    # Cells have no tab and no line break: a .tsv needs no quotes, and `cut` and `awk` can read it.
    lineterminator = "\n"
    quoting = csv.QUOTE_NONE
    quotechar = None


# A spreadsheet takes these for a formula, and some formulas start programs. A number may begin with a sign.
_FORMULA = re.compile(r"'+[=+\-@]|[=@]|[+-](?!(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?%?\Z)")
_QUOTED_FORMULA = re.compile(r"'+[=+\-@]")


def quote_formula(text: str) -> str:
    """`text` for a cell of a table that people open in a spreadsheet: with a `'` before it where it would be a formula."""
    return f"'{text}" if text[:1] in "=+-@'" and _FORMULA.match(text) else text


def unquote_formula(cell: str) -> str:
    """The text that `quote_formula` was given."""
    return cell[1:] if cell[:1] == "'" and _QUOTED_FORMULA.match(cell) else cell


def format_cell(value: Any, column: str = "") -> str:
    """The text of one value: None, NaN and infinities are empty, no number has an exponent, a ratio's column has six decimals."""
    if value is None:
        return ""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_float(value, is_ratio=_is_ratio(column))
    if isinstance(value, int):
        return str(value)
    return _single_line(str(value))


@cache
def _is_ratio(column: str) -> bool:
    return _RATIO_COLUMN.search(column) is not None


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], delimiter: str = ",") -> None:
    """Write header and rows, atomically; a cell that a row lacks stays empty, a value without a column is left out."""
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as target:
        _write_rows(target, columns, rows, delimiter)


def write_table_durably(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], delimiter: str = ",") -> bool:
    """As `write_table`, for a small table that must survive a failing disk (core.durable_writes). False when it is lost."""
    text = io.StringIO(newline="")
    _write_rows(text, columns, rows, delimiter)
    return write_text_durably(path, text.getvalue())


def _write_rows(target: TextIO, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], delimiter: str) -> None:
    writer = csv.writer(target, _dialect(delimiter))
    # An axis of a folder from elsewhere may have any name.
    writer.writerow(map(quote_formula, columns))
    source = iter(rows)
    while some := list(islice(source, _ROWS_AT_ONCE)):
        writer.writerows(zip(*(_column_text(some, column) for column in columns), strict=True))


def _column_text(rows: Sequence[Mapping[str, Any]], column: str) -> list[str]:
    """`format_cell` of every row's value. Most columns have one type, which is checked once per column and not per cell: that takes a fifth
    of the time, and the tables of a thousand runs have a million cells."""
    values = _values(rows, column)
    kinds = set(map(type, values))
    if kinds == {float}:
        return _float_texts(values, column)
    if kinds == {str}:
        # Names are repeated in many rows.
        texts = {text: quote_formula(_single_line(text)) for text in set(values)}
        return [texts[text] for text in values]
    if kinds == {int}:
        return list(map(str, values))
    return [format_written_cell(value, column) for value in values]


def format_written_cell(value: Any, column: str = "") -> str:
    """`format_cell` as it stands in a file: text that would be a formula is quoted."""
    text = format_cell(value, column)
    return quote_formula(text) if isinstance(value, str) else text


def _values(rows: Sequence[Mapping[str, Any]], column: str) -> list[Any]:
    try:
        return list(map(operator.itemgetter(column), rows))
    except KeyError:
        return [row.get(column) for row in rows]


def _float_texts(values: Sequence[float], column: str) -> list[str]:
    """`_format_float` of each, the usual case inlined."""
    if _is_ratio(column):
        return [_format_float(value, is_ratio=True) for value in values]
    return [f"{value:.6f}".rstrip("0").rstrip(".") if 1 <= value < math.inf else _format_float(value, is_ratio=False) for value in values]


def read_table(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """Every row as column → text, as it was before it was written: cells beyond the header and damaged rows are skipped, bytes that are not
    UTF-8 replaced. [] when there is no such file; a CampaignError for one that is too large."""
    try:
        data = read_whole(path)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise CampaignError(f"{path} is not read: {error.strerror}") from error
        return []
    # A row gets every column of the header.
    cells = (data.partition(b"\n")[0].count(delimiter.encode()) + 1) * data.count(b"\n")
    if cells > MAX_CELLS:
        raise CampaignError(f"{path} is not read: it has {cells:,} cells, above the limit of {MAX_CELLS:,}")
    source = io.StringIO(data.decode("utf-8", errors="replace"), newline="")
    return list(_read_rows(csv.reader(source, _dialect(delimiter))))


def _read_rows(cells: Iterator[list[str]]) -> Iterator[dict[str, str]]:
    header: list[str] | None = None
    while True:
        try:
            row = next(cells)
        except StopIteration:
            return
        except csv.Error:
            continue
        if header is None:
            header = list(map(unquote_formula, row))
        elif row:
            yield dict(zip_longest(header, map(unquote_formula, row[: len(header)]), fillvalue=""))


def _dialect(delimiter: str) -> type[csv.Dialect]:
    return {",": _Commas, "\t": _Tabs}[delimiter]


def _format_float(value: float, *, is_ratio: bool) -> str:
    if 1 <= value < math.inf and not is_ratio:
        # The usual case, at half the cost.
        return f"{value:.6f}".rstrip("0").rstrip(".")
    if not math.isfinite(value):
        return ""
    if is_ratio:
        return f"{value:.{_DECIMALS}f}"
    text = f"{value:.{_decimals_for(value)}f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def _decimals_for(value: float) -> int:
    """Six; more for a small number, so that it keeps six significant digits."""
    if value == 0 or abs(value) >= 1:
        return _DECIMALS
    leading_zeros = -math.floor(math.log10(abs(value))) - 1
    return min(_DECIMALS + leading_zeros, _MAX_DECIMALS)


def _single_line(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    # Names and log lines come from users: a row stays one line, and bytes that are not UTF-8 are escaped.
    return _LINE_BREAKS.sub(" ", text).encode("utf-8", "backslashreplace").decode("utf-8")
