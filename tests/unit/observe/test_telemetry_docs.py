"""docs/files.md names every column and key of the telemetry."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from seatrial.records.columns import TELEMETRY_FIGURES
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, SamplerAccount

PAGE = (Path(__file__).parents[3] / "docs" / "files.md").read_text()


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("### gpu_telemetry.csv", GPU_COLUMNS),
        ("### host_telemetry.csv", HOST_COLUMNS),
        ("### telemetry.json", tuple(field.name for field in fields(SamplerAccount))),
        ("## per_run_metrics.csv", TELEMETRY_FIGURES),
    ],
)
def test_every_name_is_described_under_its_file(heading: str, names: tuple[str, ...]) -> None:
    section = PAGE.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    assert [name for name in names if f"`{name}`" not in section] == []
