"""Tables as anybody reads them, with Python's csv alone: a test of what we write must not lean on how we read."""

from __future__ import annotations

import csv
from pathlib import Path


def rows_of(path: Path) -> list[dict[str, str]]:
    """Every row as column → text; by its ending a .tsv has tabs."""
    with open(path, newline="") as table:
        return list(csv.DictReader(table, delimiter="\t" if path.suffix == ".tsv" else ","))
