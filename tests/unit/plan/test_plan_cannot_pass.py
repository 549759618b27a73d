"""Criteria that cannot pass are told before anything is run, with what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.main import run_command
from seatrial.history import rows
from seatrial.plan.cannot_pass import what_cannot_pass
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve
from tests.unit.analyse.made_sides import side

MATRIX: dict[str, Any] = {"name": "p", "workload": "dummy", "axes": {"micro_batch": [8, 16]}, "repeats": 2}


def told(tmp_path: Path, *criteria: dict[str, Any], pinned: tuple[str, ...] = (), **more: Any) -> list[str]:
    plan = plan_from_mapping({**MATRIX, **more, "criteria": list(criteria)}, "here")
    return list(what_cannot_pass(resolve(plan, source="here", cwd=tmp_path), pinned))


GAIN = {"metric": "speedup_pct", "at_least": 3}
HOPELESS = [
    (GAIN, "it compares, and has no baseline; give the criterion one of `baseline: {group: NAME}`"),
    ({**GAIN, "baseline": {"history": "v10"}}, "no row of history is pinned as 'v10'; did you mean 'v100'?"),
    ({**GAIN, "baseline": {"campaign": "gone"}}, "/gone, is not there; run that one first"),
    ({"metric": "sentinel_drift_pct", "at_most": 3}, "the plan has no sentinel; add one"),
    ({"metric": "scaling_efficiency", "at_least": 0.9}, "every run has the same number of ranks (1); add an axis"),
    ({"metric": "counted_runs", "at_least": 3}, "it takes 3 runs of a group, and the plan's repeats are 2; raise repeats"),
    ({"metric": "stable"}, "it takes 3 runs of a group, and the plan's repeats are 2; raise repeats"),
    ({"metric": "leaking_runs", "at_most": 0}, "memory is not sampled: telemetry.gpu_s and telemetry.host_s are null"),
]


@pytest.mark.parametrize(("criterion", "why"), HOPELESS, ids=[why[:20] for _, why in HOPELESS])
def test_a_criterion_that_cannot_pass_says_why(tmp_path: Path, criterion: dict[str, Any], why: str) -> None:
    (line,) = told(tmp_path, criterion, pinned=("v100",), telemetry={"gpu_s": None, "host_s": None})
    assert line.startswith(f"{criterion['metric']} cannot pass: ") and why in line


def test_what_can_be_decided_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    criteria = [
        {**GAIN, "baseline": "mb8_r1"},
        {**GAIN, "baseline": {"history": "v100"}},
        {**GAIN, "baseline": {"campaign": "there"}},
        *(criterion for criterion, _ in HOPELESS[3:]),
    ]
    axes = {"micro_batch": [8], "place.ranks": {"label": "r", "values": [1, 2]}}
    assert told(tmp_path, *criteria, axes=axes, repeats=3, sentinel=2, pinned=("v100",)) == []


def test_a_baseline_of_the_plan_that_is_no_group_is_told(tmp_path: Path) -> None:
    assert told(tmp_path, baseline="mb9") == ["no group of this plan is called 'mb9', its baseline; did you mean 'mb8'?"]
    assert told(tmp_path) == told(tmp_path, baseline="mb8") == []
    (tmp_path / "outputs/p/mb9_r1").mkdir(parents=True)
    assert told(tmp_path, baseline="mb9") == [], "an earlier plan left it in the folder"


def test_a_ready_set_is_named(tmp_path: Path) -> None:
    assert [line.partition(":")[0] for line in told(tmp_path, {"ready": "stage1_speedup_4090"})] == [
        "speedup_pct (of stage1_speedup_4090) cannot pass",
        "loss_comparable (of stage1_speedup_4090) cannot pass",
    ]


def test_plan_show_looks_into_history(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.cli.plan._print_refusals", lambda console, plan: None)
    monkeypatch.setenv("SEATRIAL_HISTORY", str(tmp_path / "history.jsonl"))
    monkeypatch.chdir(tmp_path)
    criteria = "criteria: [{ready: stage1_regression, baseline: {history: last-good}}]\n"
    (tmp_path / "p.yaml").write_text("name: p\nworkload: dummy\naxes: {micro_batch: [8, 16]}\n" + criteria)
    assert run_command(["plan", "show", "p.yaml"]) == 0
    assert "regression_pct (of stage1_regression) cannot pass: no row of history is pinned as 'last-good'" in capsys.readouterr().out
    rows.pin(tmp_path / "history.jsonl", rows.add(tmp_path / "history.jsonl", side("a", [100.0])).number, "last-good")
    assert run_command(["plan", "show", "p.yaml"]) == 0
    assert "cannot pass" not in capsys.readouterr().out
