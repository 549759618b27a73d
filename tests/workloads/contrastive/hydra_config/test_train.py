"""train.py as a program: what it says, how it ends, what it leaves; the trainer itself is stood in for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("hydra")

from seatrial_workloads.contrastive.hydra_config import train as hydra_train
from seatrial_workloads.contrastive.hydra_config.checks import checked_values
from seatrial_workloads.contrastive.hydra_config.compose import composed_tree
from seatrial_workloads.contrastive.hydra_config.help_text import shown, text_of
from seatrial_workloads.contrastive.hydra_config.keys import KEYS, Key

ROOT = Path(__file__).parents[4]
HERE = "dataset.root_dir=."
STAGE1 = ROOT / "runbooks" / "stage1"
LONGEST_S = 60
# Stands in for the trainer and says where it would write.
STUB = """
import sys, types
trainer = types.ModuleType("seatrial_workloads.contrastive.train")
trainer.train = lambda settings, run_dir, no_effect: print(run_dir)
sys.modules[trainer.__name__] = trainer
from seatrial_workloads.contrastive.hydra_config.train import main
main()
"""
# Two ranks of one launcher, one after the other.
LAUNCHER = """
import os, subprocess, sys
for rank in "10":
    env = {**os.environ, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
    subprocess.run([sys.executable, "stub.py", f"--local_rank={rank}", *sys.argv[1:]], env=env)
"""


@pytest.fixture
def environment() -> dict[str, str]:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "LIBRISPEECH_MANIFEST_PATH")
    return {name: value for name, value in os.environ.items() if not name.startswith("SEATRIAL_") and name not in names}


@pytest.fixture
def trained(monkeypatch, environment, tmp_path) -> list[tuple[object, ...]]:
    """What the trainer was called with; this process's variables and folder are as before afterwards."""
    calls: list[tuple[object, ...]] = []
    stub = types.ModuleType(hydra_train.TRAINER)
    stub.train = lambda *given: calls.append(given)
    monkeypatch.setitem(sys.modules, hydra_train.TRAINER, stub)
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.chdir(tmp_path)
    return calls


def run(*argv: str, env: dict[str, str], cwd: Path = STAGE1) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=LONGEST_S, check=False)


@pytest.fixture
def without_torch(environment, tmp_path) -> dict[str, str]:
    """An environment in which every import of torch fails."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    return {**environment, "PYTHONPATH": str(tmp_path)}


def test_the_trainer_gets_settings_folder_and_what_has_no_effect(trained, tmp_path):
    hydra_train.main(["+experiment=limit_longest_1-3_stage1_bf16", "train.timing_window=50", "experiment_output_dir=out", HERE])
    [(settings, run_dir, no_effect)] = trained
    assert (settings.precision, run_dir) == ("bf16", Path("out"))
    assert list(no_effect) == ["deepspeed_config_yaml.steps_per_print"]
    assert os.environ["SEATRIAL_TIMING_WINDOW"] == "50"
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["resolved_config.yaml", "run_context.json"]


def test_other_ranks_write_nothing(trained, tmp_path):
    os.environ.update(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1")
    hydra_train.main(["experiment_output_dir=out", HERE])
    assert len(trained) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_into_the_same_folder_is_refused(trained, tmp_path, capsys):
    hydra_train.main(["experiment_output_dir=out", HERE])
    (tmp_path / "out" / "events_rank0.jsonl").write_text('{"kind":"step","step":0}')
    with pytest.raises(SystemExit) as ended:
        hydra_train.main(["experiment_output_dir=out", HERE])
    assert ended.value.code == 1
    assert "holds an earlier run" in capsys.readouterr().err
    assert len(trained) == 1


@pytest.mark.parametrize("key", ["train.pretrained_model_checkpoint", "train.resume_from", "dataset.root_dir", "dataset.manifest_path"])
def test_a_file_that_is_not_there_is_told_with_its_key(trained, tmp_path, capsys, key):
    with pytest.raises(SystemExit) as ended:
        hydra_train.main([HERE, f"{key}=nowhere/to/be"])
    assert ended.value.code == 1
    assert f"{key} is nowhere/to/be, and there is no such file or folder, seen from {tmp_path}" in capsys.readouterr().err
    assert (trained, list(tmp_path.iterdir())) == ([], [])


def test_a_variable_of_the_launcher_that_is_no_number_is_named(trained, capsys):
    os.environ["RANK"] = "first"
    with pytest.raises(SystemExit):
        hydra_train.main([])
    assert "RANK is 'first'; a whole number is expected" in capsys.readouterr().err


def test_what_has_no_place_to_be_written_does_not_stop_the_training(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hydra_train, "write_startup_files", lambda start, words: ["run_context.json was not written (disk full)"])
    hydra_train.main(["experiment_output_dir=out", HERE])
    assert capsys.readouterr().err == "train.py: run_context.json was not written (disk full)\n"
    assert len(trained) == 1


def test_wrong_use_is_one_line_and_exit_code_1_before_torch(without_torch):
    done = run("train.py", "--local_rank=0", "++train.log_evry_steps=1", env=without_torch)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "train.py: error: unknown key 'train.log_evry_steps': did you mean 'train.log_every_steps'?\n"


def test_every_rank_says_it_since_the_first_to_end_may_take_the_others_along(without_torch):
    done = run("train.py", "++train.log_evry_steps=1", env={**without_torch, "RANK": "1", "WORLD_SIZE": "2"})
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_help_lists_experiments_and_every_key_without_torch(without_torch):
    done = run("train.py", "--help", env=without_torch)
    assert (done.returncode, done.stderr) == (0, "")
    assert "limit_longest_1-3_stage1_bf16\n      Slices of 1 to 3 s in bf16." in done.stdout
    assert "  train.data.bucket_boundaries_second=[1.0,1.5,2.0,2.5,3.0]\n" in done.stdout
    assert all(f"  {name}=" in done.stdout for name in KEYS)


def test_the_configuration_is_shown_without_torch_and_leaves_nothing(without_torch, tmp_path):
    done = run(str(STAGE1 / "train.py"), "--cfg", "job", "train.seed=5", env=without_torch, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n  seed: 5\n" in done.stdout
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".py" and file.name != "__pycache__"] == []


def test_two_ranks_share_a_folder_that_nobody_named_and_its_files_are_written_once(environment, tmp_path):
    (tmp_path / "stub.py").write_text(STUB)
    done = run("-c", LAUNCHER, "+experiment=limit_longest_1-3_stage1_bf16", HERE, env=environment, cwd=tmp_path)
    assert done.stderr == ""
    said = done.stdout.splitlines()
    assert len(said) == 2 and len(set(said)) == 1
    [folder] = (tmp_path / "outputs" / "train").iterdir()
    assert Path(said[0]) == folder.relative_to(tmp_path)
    assert sorted(file.name for file in folder.iterdir()) == ["resolved_config.yaml", "run_context.json"]
    context = json.loads((folder / "run_context.json").read_text())
    assert context["distributed"] == {"rank": 0, "local_rank": 0, "world_size": 2}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["outputs", "stub.py"]


def test_every_key_stands_in_the_documentation_with_its_default():
    page = (ROOT / "docs" / "stage1.md").read_text(encoding="utf-8")
    tree, _ = composed_tree((), {})
    rows = [f"| `{name}` | `{shown(value)}` | {becomes(KEYS[name])}" for name, value in checked_values(tree).items()]
    assert [row for row in rows if row not in page] == []


def becomes(key: Key) -> str:
    return ", ".join(f"`{name}`" for name in (*key.fields, key.variable) if name) or text_of(key)
