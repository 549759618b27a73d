"""Plans for tests: written to a file and loaded, or made from a mapping and resolved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from seatrial.plan.load import load_plan, plan_from_mapping
from seatrial.plan.resolve import resolve_plan
from seatrial.records.plan import CampaignPlan

PlanFile = Callable[..., Path]
# A busy machine is no failure.
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanFile:
    """Writes a plan into an empty folder, which becomes the current one so that messages hold short names."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "p.yaml") -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def without_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan show` without the checks that look at this machine, which take seconds and have tests of their own."""
    from seatrial.cli import plan

    monkeypatch.setattr(plan, "print_refusals", lambda console, plan: None)


@pytest.fixture
def resolved(tmp_path: Path) -> Callable[..., CampaignPlan]:
    """A campaign plan from a mapping, in an empty folder."""

    def build(mapping: dict[str, Any], **options: Any) -> CampaignPlan:
        return resolve_plan(plan_from_mapping(mapping, "test"), source="test", cwd=options.pop("cwd", tmp_path), **options)

    return build


@pytest.fixture
def message_of(plan_file: PlanFile) -> Callable[..., str]:
    """What loading and resolving a text complains about; the test fails when it complains of nothing."""

    def of(text: str, *overrides: str) -> str:
        path = plan_file(text)
        with pytest.raises(Exception) as caught:
            resolve_plan(load_plan(path, overrides), source="p.yaml", cwd=Path.cwd())
        assert type(caught.value).__name__ == "PlanError", repr(caught.value)
        return str(caught.value)

    return of
