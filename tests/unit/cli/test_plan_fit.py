"""`plan fit`: a line for each group, exit codes, JSON, and what was observed beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.cli.plan_fit import observed_text
from seatrial.machine.gpu_memory import GIB, Fit
from seatrial.records.memory import MemoryForecast
from seatrial.results.observed_memory import ObservedMemory
from tests.unit.preflight.needs import make_run

PLANS = Path(__file__).parents[3] / "plans"
STAGED = sorted((PLANS / "sparse-lm").glob("validation*.yaml"))
GPT = "name: x\nworkload: tiny_lm\nsettings: {d_model: 1024, n_heads: 16, n_layers: 12, seq_len: 1024}\naxes: {micro_batch: [1, 64]}\n"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.yaml"
    path.write_text(GPT)
    return path


def test_a_line_for_each_group_and_the_same_as_json(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "fit", str(plan), "--gpu", "v100-16gb", "--json"]) == 2
    shown, errors = capsys.readouterr()
    groups = {group["group"]: group for group in json.loads(shown)["groups"]}
    assert (groups["mb1"]["verdict"], groups["mb64"]["verdict"]) == ("fits", "will not fit")
    assert sum(groups["mb1"]["parts_bytes"].values()) == groups["mb1"]["allocated_bytes"] < groups["mb1"]["total_bytes"]
    (remedy,) = groups["mb64"]["remedies"]
    assert remedy["settings"]["micro_batch"] < 64 and remedy["total_bytes"] <= groups["mb64"]["gpu_memory_bytes"]
    lines = errors.splitlines()
    assert lines[0].startswith("mb1: weights ") and "fits: " in lines[0] and "of 15.7 GiB (V100-16GB)" in lines[0]
    assert "will not fit: " in lines[1] and f"try micro_batch={remedy['settings']['micro_batch']} (" in lines[1]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--gpu-memory", "80", "--only", "mb1"], 0),
        (["--gpu-memory", "0.5"], 2),
        # No GPU is given, and those of other hosts cannot be asked here.
        (["--set", "place={kind: pernode, nodes: 2}"], 3),
        (["--set", "settings.device=cpu"], 0),
        (["--gpu", "H100-80GB", "--gpu-memory", "80"], 1),
        (["--gpu", "H100"], 1),
    ],
)
def test_exit_codes(options: list[str], code: int, plan: Path) -> None:
    assert run_command(["plan", "fit", str(plan), *options]) == code


def test_a_script_is_unknown(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text("name: x\nworkload: {script: train.py}\nlauncher: python\n")
    Path("train.py").write_text("")
    assert run_command(["plan", "fit", str(plan), "--gpu", "H100-80GB"]) == 3
    assert "only bundled workloads are forecast" in capsys.readouterr().out


def test_a_plan_with_stages_names_one_that_can_be_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "fit", str(STAGED[0]), "--gpu", "H100-80GB"]) == 1
    assert "Name the plan of one stage, baseline.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(set(PLANS.rglob("*.yaml")) - set(STAGED)), ids=lambda path: path.stem)
def test_every_shipped_plan_is_forecast(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(PLANS.parent)
    # Weights that are not here are unknown; none of the plans is too large for an H100.
    assert run_command(["plan", "fit", str(path), "--gpu", "H100-80GB"]) in (0, 3)


def test_observed_peaks_stand_beside_the_forecast(tmp_path: Path) -> None:
    forecast = MemoryForecast(parts={"weights": 10 * GIB}, moment="")
    fit = Fit(spec=make_run(tmp_path, bundled="dummy"), forecast=forecast)
    text = observed_text(fit, ObservedMemory(allocated_bytes=8 * GIB, in_use_bytes=None))
    assert text == "observed: 8.0 GiB allocated by torch (forecast +25%)"
