"""docs/files.md speaks of every file and every column there is, and of no file there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seatrial import paths
from seatrial.records import columns

PAGE = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`\n]+)`", PAGE))


def file_names(owner: type) -> list[str]:
    return [value.name for value in vars(owner).values() if isinstance(value, paths._InFolder)]


@pytest.mark.parametrize("owner", [paths.CampaignPaths, paths.AttemptPaths])
def test_every_file_is_described(owner: type) -> None:
    known = {name.rstrip("/") for name in NAMED}
    assert [name for name in file_names(owner) if name not in known] == []


@pytest.mark.parametrize("table", [name for name in vars(columns) if name.isupper() and name not in ("AXIS", "SEED_SETTINGS")])
def test_every_column_is_described(table: str) -> None:
    assert [column for column in getattr(columns, table) if column not in NAMED] == []


def test_no_file_is_described_that_nobody_writes() -> None:
    described = {name for name in NAMED if re.fullmatch(r"\.?[a-z_0-9.]+\.(csv|tsv|json|jsonl|md|env|txt|log|sh|lock)", name)}
    known = {
        *file_names(paths.CampaignPaths),
        *file_names(paths.AttemptPaths),
        "events_rank0.jsonl",
        "heartbeat_rank0.jsonl",
        "rank0.txt",
        "pid4711.txt",
    }
    assert described - known == set()
