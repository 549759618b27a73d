"""A plan file and the options beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.cli.read_plan import budget_of, read_plan
from seatrial.errors import PlanError, UsageError


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.yaml"
    path.write_text("name: x\nworkload: dummy\naxes: {micro_batch: [8, 16]}\nbudget: 1h\n")
    return path


def test_the_plan_alone(plan: Path, tmp_path: Path) -> None:
    found = read_plan(plan, None, None, None, None)
    assert (found.name, len(found.runs), found.selected, found.budget_s) == ("x", 2, (), 3600.0)
    assert found.output == str(tmp_path / "outputs/x") and found.source == str(plan)


def test_what_is_typed_wins(plan: Path, tmp_path: Path) -> None:
    found = read_plan(plan, ["repeats=3"], ["*mb8*"], "90s", Path("elsewhere"))
    assert (len(found.runs), len(found.chosen), found.budget_s) == (6, 3, 90.0)
    assert found.output == str(tmp_path / "elsewhere")


@pytest.mark.parametrize(("text", "seconds"), [(None, None), ("", None), ("90s", 90.0), ("2h", 7200.0)])
def test_a_budget_in_seconds(text: str | None, seconds: float | None) -> None:
    assert budget_of(text) == seconds


def test_what_cannot_be_is_said_before_the_plan_is_read() -> None:
    with pytest.raises(UsageError, match="--budget"):
        read_plan(Path("no-such-plan.yaml"), None, None, "soon", None)


def test_a_folder_that_differs_from_node_to_node_is_refused(plan: Path) -> None:
    on_nodes = ["place={kind: pernode, nodes: 2}"]
    with pytest.raises(UsageError, match=r"has \{time\} in it, which differs from node to node"):
        read_plan(plan, [*on_nodes, "output=runs/{time}"], None, None, None)
    assert read_plan(plan, [*on_nodes, "output=runs/{time}"], None, None, Path("one")).output.endswith("/one")


def test_a_plan_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="there is no such plan"):
        read_plan(tmp_path / "none.yaml", None, None, None, None)
