"""Which columns of the telemetry will be empty on this host. The trial itself is made by whoever may use the samplers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.wording import named

MOST_NAMED = 6

COLUMNS = Question(
    name="{file}",
    looks_at="one look through NVML and /proc: which columns of the telemetry will be empty",
    prevents="columns of {file} that stay empty, which one finds after the campaign",
    fix="update the driver, or give the container what it lacks (--gpus all, the host's /proc); for GPUs without ECC or energy counters "
    "there is none",
    only_tells=True,
    in_docs={"file": "gpu_telemetry.csv, host_telemetry.csv"},
)
QUESTIONS = (COLUMNS,)


def checks(empty: Mapping[str, Sequence[str]], all_columns: Mapping[str, Sequence[str]]) -> Iterator[Check]:
    """`empty`: file → columns that one look could not fill; `all_columns`: file → all it has."""
    for file, columns in empty.items():
        yield COLUMNS.answer(True, text(columns, len(all_columns.get(file, ()))), file=file)


def text(columns: Sequence[str], count: int) -> str:
    if not columns:
        return f"all {count} filled" if count else "all filled"
    if count and len(columns) >= count:
        return "none will be filled: no GPU driver answers"
    return f"empty here: {named(columns, MOST_NAMED)}"
