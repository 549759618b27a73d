"""`seatrial run` and `plan show` of a plan with stages: order, resume, exit codes, and what is refused before the first stage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.core.errors import PlanError
from seatrial.plan.stages import load_stages

BASE = "name: base\nworkload: dummy\nsettings: {step_ms: 1}\nsteps: 3\n"
STAGES = """\
name: checks
base: base.yaml
stages:
  - {name: first, command: ["{python}", -c, "import sys; print('in', sys.argv[1])", "{output}"]}
  - {name: train, plan: train.yaml, set: {steps: 5}}
  - {name: wide, plan: train.yaml, needs_gpus: 64}
"""


def write(folder: Path, stages: str = STAGES) -> str:
    (folder / "base.yaml").write_text(BASE)
    (folder / "train.yaml").write_text("extends: missing.yaml\nname: train\n")
    path = folder / "checks.yaml"
    path.write_text(stages)
    return str(path)


def records(out: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((out / "stages.json").read_text())["stages"]
    return found


def test_stages_run_in_order_and_the_same_command_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, out = write(tmp_path), tmp_path / "out"
    # A stage that was not run leaves the whole open.
    assert run_command(["run", plan, "--out", str(out)]) == 3
    assert (out / "first.log").read_text() == f"in {out}\n"
    assert [path.name for path in out.glob("train/*/attempt-*")] == ["attempt-1"]
    assert {name: record["exit_code"] for name, record in records(out).items()} == {"first": 0, "train": 0, "wide": None}
    assert records(out)["wide"]["why"] == "needs 64 GPUs, and this machine has none"
    capsys.readouterr()
    assert run_command(["run", plan, "--out", str(out), "--json"]) == 3
    shown = capsys.readouterr()
    assert "finished earlier" in shown.err and json.loads(shown.out)["exit_code"] == 3
    assert len(list(out.glob("train/*/attempt-*"))) == 1


def test_the_acceptance_decides_whatever_a_stage_gave(tmp_path: Path) -> None:
    fails = 'name: checks\nstages: [{name: a, command: ["{python}", -c, "exit(1)"]}, {name: b, command: [no-such-program]}]\n'
    assert run_command(["run", write(tmp_path, fails), "--out", str(tmp_path / "a")]) == 2
    assert "cannot be started" in str(records(tmp_path / "a")["b"]["why"])
    accepts = fails + 'acceptance: ["{python}", -c, "exit(0)"]\n'
    assert run_command(["run", write(tmp_path, accepts), "--out", str(tmp_path / "b"), "--only", "a"]) == 0
    assert list(records(tmp_path / "b")) == ["a"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--only", "frist"], "did you mean 'first'"),
        (["--budget", "1h"], "--budget is for one campaign"),
        (["--set", "stesp=3"], "did you mean 'steps'"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_the_first_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], named: str
) -> None:
    assert run_command(["run", write(tmp_path), "--out", str(tmp_path / "out"), *options]) == 1
    assert named in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_folder_of_other_stages_too_few_gpus_and_other_verbs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "stages.json").write_text('{"name": "others", "stages": {}}')
    plan = write(tmp_path)
    assert run_command(["run", plan, "--out", str(out)]) == 1
    assert run_command(["run", write(tmp_path, STAGES + "needs_gpus: 64\n"), "--out", str(tmp_path / "new")]) == 2
    assert run_command(["doctor", plan]) == 1
    shown = capsys.readouterr().err
    for text in ("has the stages of 'others'", "checks needs 64 GPUs (needs_gpus), and this machine has none", "train.yaml"):
        assert text in shown


def test_plan_show_lists_the_stages_and_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "show", write(tmp_path), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "train.yaml: 1 run, 5 steps each" in shown and "not run here: needs 64 GPUs" in shown
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("needs_gpus: 64", "need_gpus: 64"), "stages[2].need_gpus: unknown key; did you mean 'needs_gpus'?"),
        (("name: wide", "name: first"), "stages[2].name: 'first' is the name of an earlier stage"),
        (("name: wide", "name: acceptance"), "stages[2].name: 'acceptance' is the acceptance's own"),
        (("plan: train.yaml, needs", "needs"), "stages[2]: a stage is a `plan` or a `command`"),
        (("{output}", "{out}"), "stages[0].command[3]: unknown placeholder {out}; did you mean 'output'?"),
        ((', "{output}"]', "], set: {steps: 1}"), "stages[0].set: has no effect on a command"),
        (("base: base.yaml", "steps: 3"), "unknown key"),
    ],
)
def test_mistakes_are_named_with_their_key(tmp_path: Path, change: tuple[str, str], named: str) -> None:
    with pytest.raises(PlanError) as caught:
        load_stages(Path(write(tmp_path, STAGES.replace(*change))))
    assert named in str(caught.value)


@pytest.mark.parametrize(("value", "named"), [("{stesp: 5}", "did you mean 'steps'"), ("{steps: many}", "a whole number")])
def test_a_mistake_in_a_set_is_named_with_its_line(tmp_path: Path, value: str, named: str) -> None:
    staged = load_stages(Path(write(tmp_path, STAGES.replace("{steps: 5}", value))))
    assert staged is not None
    with pytest.raises(PlanError) as caught:
        staged.load(staged.stages[1], 0)
    assert "checks.yaml:5: stages[1].set." in str(caught.value) and named in str(caught.value)
