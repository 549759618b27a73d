"""training.csv, and the figures of its last steps. In: the file, with a header (any columns) or without one (step, loss, lr, toks_per_s).
Out: the rows of its last run, and mean and standard deviation over a window of steps, with n, window and path.

    python scripts/last_window.py artifacts/m7c_125m_2xa100_prod/training.csv --steps 50

    mean=218443.1 stdev=1011.9 n=50 column=toks_per_s window=steps 251-300 path=artifacts/m7c_125m_2xa100_prod/training.csv

A file may hold several runs, one after the other: by the column run_id, else where the step goes back. Only the last one is used. A last
line without a line end counts if it is a complete row, with a warning: it may be truncated. The standard deviation is the population's.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev

from seatrial.core.errors import DONE, WRONG_USE, SeatrialError, UsageError, did_you_mean, printable
from seatrial_runbooks.command_line import StrictParser, count, write_to

WITHOUT_HEADER = ("step", "loss", "lr", "toks_per_s")
STEP, RUN_ID, TOKENS_PER_S = "step", "run_id", "toks_per_s"
DEFAULT_STEPS = 50
NAME = "last_window.py"
EXAMPLES = """examples:
  python scripts/last_window.py artifacts/m7c_125m_2xa100_prod/training.csv --steps 50
  python scripts/last_window.py artifacts/m7c_125m_2xa100_prod/training.csv --steps 200 --column loss"""


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """The rows of the last run in a file."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    unended: str = ""
    """Text after the last line end, which may still grow; not among the rows."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """One column over the last steps of a run."""

    mean: float
    stdev: float
    n: int
    first_step: int
    last_step: int
    column: str
    path: Path
    steps: int
    """The requested number; `n` may be less."""
    cautions: tuple[str, ...] = ()

    @property
    def steps_text(self) -> str:
        return f"steps {self.first_step}-{self.last_step}"

    @property
    def text(self) -> str:
        figures = f"mean={self.mean:.{_decimals(self.mean)}f} stdev={self.stdev:.{_decimals(self.mean)}f} n={self.n}"
        return f"{figures} column={self.column} window={self.steps_text} path={self.path}"


def _decimals(value: float) -> int:
    """Decimals: enough for a loss, few for tokens per second."""
    return 1 if abs(value) >= 100 else 4


def read_table(path: Path, *, last_bytes: int | None = None) -> TrainingTable:
    """The last run's rows; none where the file is missing. `last_bytes` reads only the end of a long file."""
    lines, columns, unended = _read_lines(path, last_bytes)
    columns = columns if columns[:1] == (STEP,) else WITHOUT_HEADER
    found = [row for line in lines if (row := _row(line, columns)) is not None]
    return TrainingTable(path=path, columns=columns, rows=tuple(_last_run(found)), unended=unended)


def _row(line: str, columns: Sequence[str]) -> Mapping[str, str] | None:
    """The cells of a line; None if it is not a complete row."""
    cells = line.split(",")
    return dict(zip(columns, cells, strict=False)) if len(cells) >= len(WITHOUT_HEADER) and cells[0].strip().isdigit() else None


def with_unended_row(table: TrainingTable) -> TrainingTable:
    """The table with its last line, if that is a complete row of the same run."""
    row = _row(table.unended, table.columns)
    if row is None or len(row) < len(table.columns) or not all(_is_number(row[name]) for name in WITHOUT_HEADER):
        return table
    # A row of another run, or with half of the run's id.
    if table.rows and len(_last_run((table.rows[-1], row))) == 1:
        return table
    return replace(table, rows=(*table.rows, row), unended="")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_lines(path: Path, last_bytes: int | None) -> tuple[list[str], tuple[str, ...], str]:
    """The ended lines, the cells of the first, and the text after the last line end."""
    try:
        with open(path, "rb") as source:
            head = source.readline().decode("utf-8", errors="replace").strip()
            size = source.seek(0, os.SEEK_END)
            begin = 0 if last_bytes is None else max(0, size - last_bytes)
            source.seek(begin)
            text = source.read().decode("utf-8", errors="replace")
    except OSError:
        return [], (), ""
    # The first line of a part may be truncated.
    *lines, unended = text.split("\n")[1 if begin else 0 :] or [""]
    return [line.strip() for line in lines if line.strip()], tuple(name.strip() for name in head.split(",")), unended.strip()


def _last_run(rows: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    begin = 0
    for index in range(1, len(rows)):
        before, row = rows[index - 1], rows[index]
        if before.get(RUN_ID) != row.get(RUN_ID) or int(row[STEP]) <= int(before[STEP]):
            begin = index
    return rows[begin:]


def last_window(path: Path, steps: int = DEFAULT_STEPS, column: str = TOKENS_PER_S) -> Window:
    """Mean and standard deviation of a column over the last `steps` steps; raises UsageError where there are none."""
    ended = read_table(path)
    table = with_unended_row(ended)
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; the trainer writes training.csv into train.out_dir of its config")
    if not table.rows:
        raise UsageError(f"{path} has no step yet")
    if column not in table.columns:
        raise UsageError(f"{path} has no column '{column}': {did_you_mean(column, list(table.columns))}")
    last = int(table.rows[-1][STEP])
    rows = [row for row in table.rows if int(row[STEP]) > last - steps]
    values = [_finite(row.get(column, "")) for row in rows]
    known = [value for value in values if value is not None]
    if not known:
        raise UsageError(f"{path}: '{column}' has no number in steps {rows[0][STEP]}-{last}")
    return Window(
        mean=fmean(known),
        stdev=pstdev(known),
        n=len(known),
        first_step=int(rows[0][STEP]),
        last_step=last,
        column=column,
        path=path,
        steps=steps,
        cautions=_cautions(ended, table),
    )


def _cautions(ended: TrainingTable, table: TrainingTable) -> tuple[str, ...]:
    if not ended.unended:
        return ()
    if table is ended:
        return (f"the last line has no line end and is incomplete: it is left out ({ended.unended})",)
    return (f"the last line has no line end: it is used, and may be truncated ({ended.unended})",)


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def main(argv: Sequence[str] | None = None) -> int:
    """Print the window; the exit code."""
    try:
        options = _parser().parse(argv)
        window = last_window(options.csv, options.steps, options.column)
    except SeatrialError as error:
        write_to(f"{NAME}: {printable(str(error))}\n", sys.stderr)
        return WRONG_USE
    write_to(f"{printable(window.text)}\n", sys.stdout)
    for caution in window.cautions:
        write_to(f"[WARN] {printable(caution)}\n", sys.stderr)
    if window.n < options.steps:
        write_to(f"[WARN] the window holds {window.n} values, not {options.steps}: train longer for a figure to quote\n", sys.stderr)
    return DONE


def _parser() -> StrictParser:
    options = StrictParser("Mean and standard deviation of training.csv over the last steps.", EXAMPLES)
    options.add_argument("csv", type=Path, metavar="CSV", help="The trainer's training.csv, in train.out_dir of its config.")
    options.add_argument(
        "--steps", type=count, default=DEFAULT_STEPS, metavar="N", help="Steps at the end of the run (default %(default)s)."
    )
    options.add_argument("--column", default=TOKENS_PER_S, metavar="NAME", help="Which column (default %(default)s).")
    return options


if __name__ == "__main__":
    sys.exit(main())
