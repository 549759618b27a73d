"""Names that are paths, or more than names: refused with a sentence, and nothing is made outside the campaign's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.cli.main import run_command
from seatrial.plan.names import group_name, labels_of, run_name, value_names
from tests.unit.campaign.made_campaign import write_campaign
from tests.unit.security.folders import CANARY, canaries, contents, seatrial

PLAN: dict[str, Any] = {
    "name": "names",
    "workload": {"script": "train.py", "args": ["{a}"]},
    "axes": {"a": {"values": [1]}},
    "output": "out",
}
WAYS_OUT = (
    f"../{CANARY}",
    f"/tmp/{CANARY}",
    "..",
    ".",
    "a/b",
    "a\\..\\b",
    "a\0b",
    "a\nb",
    "\x1b[31mred",
    "[red]a[/red]",
    "x" * 300,
    "",
    " ",
)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "train.py").write_text("print('step 1 loss 1')\n")
    monkeypatch.chdir(folder)
    return folder


def shown(folder: Path, **changes: Any) -> int:
    (folder / "plan.yaml").write_text(yaml.safe_dump({**PLAN, **changes}))
    return run_command(["plan", "show", "plan.yaml"])


def assert_one_sentence(said: str) -> None:
    assert said.startswith("seatrial: ") and said.count("\n") == 1 and "Traceback" not in said
    assert said.rstrip("\n").isprintable(), f"control characters on the terminal: {said!r}"


@pytest.mark.parametrize("name", WAYS_OUT)
@pytest.mark.parametrize("key", ["name", "prefix", "mode", "label"])
def test_words_that_become_file_names_are_refused(inside: Path, capsys: pytest.CaptureFixture[str], key: str, name: str) -> None:
    if key == "prefix" and name == "":
        pytest.skip("no prefix is none")
    changes = {"axes": {"a": {"label": name, "values": [1]}}} if key == "label" else {key: name}
    assert shown(inside, **changes) == 1
    assert_one_sentence(capsys.readouterr().err)
    assert {path.name for path in inside.iterdir()} == {"train.py", "plan.yaml"}
    assert canaries(inside) == []


@pytest.mark.parametrize("value", [*WAYS_OUT, "..", "...", "-", "CON", "é", "\u202e", "𝟙", "a" * 5000])
def test_values_become_one_harmless_name(value: str) -> None:
    for other in ("a", 1, None):
        names = [group_name("", [("p", text)]) for text in value_names([value, other])] if value != other else []
        for name in names:
            run = run_name(name, 1)
            assert Path(run).name == run and run not in (".", "..") and not run.startswith((".", "-", "~"))
            assert len(run.encode()) < 128 and run.isascii() and run.isprintable()


@pytest.mark.parametrize("axis", ["..", "a/b", "a b", "$(x)", "a\nb", "\x1b[31m", "a" * 300, "env...", "env.A B", "env.$(x)", "place.x"])
def test_axes_have_names_of_letters(inside: Path, capsys: pytest.CaptureFixture[str], axis: str) -> None:
    if axis == "a" * 300:
        assert len(labels_of({axis: None})[axis]) <= 300, "a long name is cut where the group's name is"
        return
    assert shown(inside, workload={"script": "train.py"}, axes={axis: [1]}) == 1
    assert_one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize("output", ["a\0b", "x" * 300, "a/" * 3000])
def test_output_folders_that_cannot_be_made_are_told(inside: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    (inside / "plan.yaml").write_text(yaml.safe_dump({**PLAN, "output": output}))
    assert run_command(["run", "plan.yaml"]) in (1, 2)
    assert_one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": {"script": "train\0.py", "args": ["{a}"]}},
        {"workload": {"script": "{nothing}.py", "args": ["{a}"]}},
        {"workload": {"script": "train.py", "args": ["{a}", "x\0y"]}},
        {"axes": {"a": ["x\0y"]}},
        {"env": {"A": "x\0y"}},
        {"env": {"A;B": "x"}},
        {"env": {"A=B": "x"}},
        {"extends": "x\0.yaml"},
        {"extends": "../\x1b[31m"},
        {"\x1b[31mkey": 1},
        {"launcher": {"kind": "python", "program": ["a\0b"]}},
    ],
    ids=str,
)
def test_what_no_command_can_carry_is_refused(inside: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]) -> None:
    assert shown(inside, **changes) == 1
    assert_one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize("module", ["os.system", "../../x", "/etc/passwd", "dummy.train; import os", "seatrial.cli.main", "..dummy"])
def test_only_bundled_workloads_are_imported(inside: Path, capsys: pytest.CaptureFixture[str], module: str) -> None:
    assert shown(inside, workload={"module": module}, axes={}) == 1
    assert_one_sentence(capsys.readouterr().err)


def test_no_tag_of_yaml_makes_anything(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tag in (
        "!!python/object/apply:os.system",
        "!!python/object/new:subprocess.Popen",
        "!!python/name:os.system",
        "!include",
        "!!binary",
    ):
        (inside / "plan.yaml").write_text(f'name: a\nworkload: {tag} ["touch {CANARY}"]\n')
        assert run_command(["plan", "show", "plan.yaml"]) == 1
        assert_one_sentence(capsys.readouterr().err)
    assert canaries(inside) == []


@pytest.mark.parametrize("only", [f"../{CANARY}", "../../*", "/", "[", "\x1b[31m", "mb8_r1/../../x", ""])
def test_only_chooses_among_the_plans_runs(inside: Path, only: str) -> None:
    (inside / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    done = seatrial(inside, "run", "plan.yaml", "--only", only)
    assert done.returncode == 1, done.stdout + done.stderr
    assert_one_sentence(done.stderr)
    assert {path.name for path in inside.iterdir()} == {"train.py", "plan.yaml"}


@pytest.mark.parametrize("way", ["..", "../..", "../outside", "mb8_r1/../../outside", "/", "\x1b[31m", "x" * 300])
@pytest.mark.parametrize("verb", ["logs", "diff", "stop", "watch", "report", "export"])
def test_a_folder_that_is_no_run_is_told_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, way: str) -> None:
    out = write_campaign(tmp_path / "inside" / "out", steps=3).folder
    (tmp_path / "inside" / "outside").mkdir()
    before = contents(tmp_path)
    folder = str(out / way)
    assert run_command([verb, folder, *([folder] if verb == "diff" else [])]) == 1
    assert_one_sentence(capsys.readouterr().err)
    assert contents(tmp_path) == before
