"""Reads tables with Python's csv alone: tests of our writers must not depend on our readers."""

from __future__ import annotations

import csv
from pathlib import Path


def rows_of(path: Path) -> list[dict[str, str]]:
    """Every row as column → text; a .tsv has tabs."""
    with open(path, newline="") as table:
        return list(csv.DictReader(table, delimiter="\t" if path.suffix == ".tsv" else ","))
