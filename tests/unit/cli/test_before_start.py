"""What is refused before anything is made: too many runs without --yes, an output that cannot be a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.cli.before_start import RUNS_WITHOUT_ASKING, refuse_unasked, refuse_unusable_output
from seatrial.cli.main import run_command
from seatrial.errors import UsageError
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan


def campaign(values: int, only: tuple[str, ...] = ()) -> CampaignPlan:
    mapping = {"name": "x", "workload": {"script": "t.py", "args": ["{v}"]}, "axes": {"v": list(range(values))}}
    return resolve(plan_from_mapping(mapping, "test"), source="test", cwd=Path("/"), only=only)


def test_many_runs_are_asked_for_with_yes() -> None:
    with pytest.raises(UsageError) as caught:
        refuse_unasked(campaign(RUNS_WITHOUT_ASKING + 1), yes=False)
    assert str(caught.value) == (
        "1,001 runs are asked for (v (1,001 values) × 1 repeat): add --yes if that is meant, choose some with --only, "
        "or take values or repeats away"
    )
    refuse_unasked(campaign(RUNS_WITHOUT_ASKING + 1), yes=True)
    refuse_unasked(campaign(RUNS_WITHOUT_ASKING), yes=False)
    refuse_unasked(campaign(RUNS_WITHOUT_ASKING + 1, only=("v1*",)), yes=False)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("file", "{here}/file is a file and no folder"),
        ("file/a/b", "{here}/file/a/b cannot be made: {here}/file is a file and no folder"),
        ("loop", "{here}/loop cannot be used: {here}/loop: Too many levels of symbolic links"),
        ("dangling", "{here}/dangling cannot be made: {here}/dangling is a link to nowhere, which is not there"),
        ("dangling/x", "{here}/dangling/x cannot be made: {here}/dangling is a link to nowhere, which is not there"),
    ],
)
def test_an_output_that_cannot_be_a_folder(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(UsageError) as caught:
        refuse_unusable_output(tmp_path / name)
    assert str(caught.value) == f"the output folder {problem.format(here=tmp_path)}; choose another with --out"


def test_a_folder_that_is_there_or_can_be_made_is_fine(tmp_path: Path) -> None:
    refuse_unusable_output(tmp_path)
    refuse_unusable_output(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_out_is_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text("name: x\nworkload: dummy\n")
    assert run_command(["run", "p.yaml", "--out", ""]) == 1
    assert "it is empty; name a folder, or leave the option out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]
