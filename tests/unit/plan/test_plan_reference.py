"""docs/plan.md is what the schema says."""

from __future__ import annotations

from pathlib import Path

from seatrial.plan.load import load_plan
from seatrial.plan.reference import markdown

PAGE = Path(__file__).parents[3] / "docs/plan.md"


def test_the_page_equals_the_schema() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), "write it again: python -m seatrial.plan.reference docs/plan.md"


def test_its_example_is_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(markdown().split("```yaml\n")[1].split("```")[0])
    assert load_plan(path).name == "tiny-lm-demo"
