"""train.py as a command, and the files rank 0 writes before training."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

from seatrial_workloads.contrastive.hydra_config import run_folder
from seatrial_workloads.contrastive.hydra_config import train as hydra_train
from seatrial_workloads.contrastive.hydra_config.compose import settings_from
from seatrial_workloads.contrastive.hydra_config.keys import KEYS
from seatrial_workloads.contrastive.hydra_config.run_folder import Start, create_run_dir, write_startup_files
from seatrial_workloads.contrastive.hydra_config.to_settings import ConfigurationError
from tests.facts import states

pytest.importorskip("hydra")


def start_in(folder, *arguments: str, env: dict[str, str] | None = None) -> Start:
    return settings_from([f"experiment_output_dir={folder}", *arguments], env or {})


def git(folder, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    if not shutil.which("git"):
        pytest.skip("no git here")
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-b", "work")
    (folder / "train.py").write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def test_the_resolved_config_has_every_key_and_composes_to_the_same(tmp_path):
    start = start_in(tmp_path, "+experiment=limit_longest_1-3_stage1_bf16", "++train.data.num_workers=6", "train.resume_from=")
    assert write_startup_files(start, ["train.py"]) == []
    written = yaml.safe_load((tmp_path / "resolved_config.yaml").read_text())
    assert written == start.resolved
    assert written["train"]["data"]["num_workers"] == 6
    assert written["train"]["resume_from"] is None
    assert written["deepspeed_config_yaml"]["optimizer"]["params"]["eps"] == 1e-8
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "again.yaml").write_text("# @package _global_\n" + (tmp_path / "resolved_config.yaml").read_text())
    again = settings_from([f"hydra.searchpath=[file://{tmp_path}]", "+experiment=again"], {})
    assert (again.settings, again.run_dir) == (start.settings, start.run_dir)


def test_run_context(tmp_path, repository):
    start = start_in(tmp_path / "out", "--local_rank=1", env={"SEATRIAL_TIMING_WINDOW": "20"})
    env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    context = run_folder.run_context(start, [str(repository / "train.py"), "--local_rank=1", "train.seed=1"], env)
    assert context["argv"] == [str(repository / "train.py"), "--local_rank=1", "train.seed=1"]
    assert context["command"].endswith("train.py --local_rank=1 train.seed=1")
    assert context["distributed"] == {"rank": 0, "local_rank": 0, "world_size": 2}
    assert context["paths"]["run_dir"] == str(tmp_path / "out")
    assert {"python", "platform", "hostname", "torch_version", "deepspeed_version", "cuda_version", "devices"} == set(context["runtime"])
    assert (context["git"]["branch"], context["git"]["repo_root"], context["git"]["dirty"]) == ("work", str(repository), False)
    assert context["settings"]["seed"] == 123_456
    window = next(variable for variable in context["variables"] if variable["name"] == "SEATRIAL_TIMING_WINDOW")
    assert (window["value"], window["asked"], window["given_by"]) == ("20", "100", "environment")
    assert "train.timing_window" in [choice["setting"] for choice in context["no_effect"]]
    assert context["timestamp_utc"].endswith("Z")


def test_secrets_in_the_command_are_masked(tmp_path):
    start = start_in(tmp_path)
    write_startup_files(start, ["train.py", "++dataset.root_dir=https://me:hunter2hunter2@host/data", "hub_token=abcdefghijkl"])
    text = (tmp_path / "run_context.json").read_text()
    assert "hunter2" not in text
    assert "abcdefghijkl" not in text
    assert "https://me:***@host/data" in text


def test_each_file_can_be_disabled(tmp_path):
    off = [f"train.startup_metadata_{name}=false" for name in ("resolved_config", "run_context")]
    write_startup_files(start_in(tmp_path, *off), ["train.py"])
    assert list(tmp_path.iterdir()) == []
    write_startup_files(start_in(tmp_path, off[0], "train.startup_metadata_git=false"), ["train.py"])
    assert [file.name for file in tmp_path.iterdir()] == ["run_context.json"]
    context = json.loads((tmp_path / "run_context.json").read_text())
    assert context["git"]["error"] == "train.startup_metadata_git is false"
    assert context["paths"]["resolved_config"] is None


def test_files_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "out").write_text("a file where the folder should be")
    failures = write_startup_files(start_in(tmp_path / "out"), ["train.py"])
    assert ["resolved_config.yaml could not" in failures[0], "run_context.json could not" in failures[1]] == [True, True]


def test_gpus_are_listed_and_a_driver_error_is_quoted(monkeypatch):
    properties = types.SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=141 << 30)
    cuda = types.SimpleNamespace(device_count=lambda: 1, get_device_properties=lambda index: properties)
    fake = types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(cuda="13.0"))
    monkeypatch.setitem(run_folder.sys.modules, "torch", fake)
    runtime = run_folder.runtime()
    assert runtime["cuda_version"] == "13.0"
    assert runtime["devices"] == [{"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 144_384}]

    def broken(index: int) -> None:
        raise RuntimeError("CUDA driver\n version is insufficient")

    monkeypatch.setattr(cuda, "get_device_properties", broken)
    assert run_folder.runtime()["devices"] == [{"error": "CUDA driver version is insufficient"}]


def test_git_state_has_changes_of_tracked_files_and_at_most_200_lines(repository):
    (repository / "notes.txt").write_text("untracked\n")
    facts = run_folder.git_facts(repository)
    assert (facts["available"], facts["dirty"], facts["status_porcelain"]) == (True, False, ["?? notes.txt"])
    assert len(facts["commit"]) == 40
    (repository / "train.py").write_text("2\n")
    for number in range(210):
        (repository / f"file{number}").touch()
    facts = run_folder.git_facts(repository)
    assert (facts["dirty"], len(facts["status_porcelain"]), facts["status_truncated"]) == (True, 200, True)


def test_a_repository_without_a_commit(tmp_path):
    if not shutil.which("git"):
        pytest.skip("no git here")
    git(tmp_path, "init")
    facts = run_folder.git_facts(tmp_path)
    assert (facts["available"], facts["commit"]) == (True, "")


def test_no_repository_and_no_git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    facts = run_folder.git_facts(tmp_path)
    assert (facts["available"], facts["dirty"], facts["status_porcelain"]) == (False, None, [])
    assert "not a repository" in facts["error"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_folder.git_facts(tmp_path)["error"] == "no git on PATH"


def test_a_folder_that_cannot_be_created_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"file/out, which cannot be created \(Not a directory\)"):
        create_run_dir(tmp_path / "file" / "out", {})


ROOT = Path(__file__).parents[3]
HERE = "dataset.root_dir=."
STAGE1 = ROOT / "runbooks" / "stage1"
LONGEST_S = 60
# Replaces the trainer and prints the run folder.
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
    """Calls of the trainer; variables and working folder are restored afterwards."""
    calls: list[tuple[object, ...]] = []
    stub = types.ModuleType(hydra_train.TRAINER)
    stub.train = lambda *arguments: calls.append(arguments)
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


def test_the_trainer_gets_settings_folder_and_keys_without_effect(trained, tmp_path):
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


def test_a_used_folder_is_refused(trained, tmp_path, capsys):
    hydra_train.main(["experiment_output_dir=out", HERE])
    (tmp_path / "out" / "events_rank0.jsonl").write_text('{"kind":"step","step":0}')
    with pytest.raises(SystemExit) as ended:
        hydra_train.main(["experiment_output_dir=out", HERE])
    assert ended.value.code == 1
    assert "holds an earlier run" in capsys.readouterr().err
    assert len(trained) == 1


@pytest.mark.parametrize("key", ["train.pretrained_model_checkpoint", "train.resume_from", "dataset.root_dir", "dataset.manifest_path"])
def test_a_missing_file_is_refused_by_key(trained, tmp_path, capsys, key):
    with pytest.raises(SystemExit) as ended:
        hydra_train.main([HERE, f"{key}=nowhere/to/be"])
    assert ended.value.code == 1
    assert f"{key} is nowhere/to/be, and there is no such file or folder (from {tmp_path}" in capsys.readouterr().err
    assert (trained, list(tmp_path.iterdir())) == ([], [])


def test_a_rank_that_is_not_a_number_is_refused(trained, capsys):
    os.environ["RANK"] = "first"
    with pytest.raises(SystemExit):
        hydra_train.main([])
    assert "RANK is 'first'" in capsys.readouterr().err


def test_a_failed_startup_file_does_not_stop_the_training(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hydra_train, "write_startup_files", lambda start, argv: ["run_context.json could not be written (disk full)"])
    hydra_train.main(["experiment_output_dir=out", HERE])
    assert capsys.readouterr().err == "train.py: run_context.json could not be written (disk full)\n"
    assert len(trained) == 1


@pytest.mark.parametrize("rank", ["0", "1"])
def test_wrong_use_is_one_line_of_every_rank_and_exit_code_1_before_torch(without_torch, rank):
    done = run("train.py", f"--local_rank={rank}", "++train.log_evry_steps=1", env={**without_torch, "RANK": rank, "WORLD_SIZE": "2"})
    assert (done.returncode, done.stdout) == (1, "")
    assert states(done.stderr, "'train.log_evry_steps'", "'train.log_every_steps'") and done.stderr.count("\n") == 1


def test_help_lists_experiments_and_every_key_without_torch(without_torch):
    done = run("train.py", "--help", env=without_torch)
    assert (done.returncode, done.stderr) == (0, "")
    assert "limit_longest_1-3_stage1_bf16\n      Slices of 1 to 3 s in bf16." in done.stdout
    assert "  train.data.bucket_boundaries_second=[1.0,1.5,2.0,2.5,3.0]\n" in done.stdout
    assert all(f"  {name}=" in done.stdout for name in KEYS)


def test_the_configuration_is_printed_without_torch_and_nothing_is_written(without_torch, tmp_path):
    done = run(str(STAGE1 / "train.py"), "--cfg", "job", "train.seed=5", env=without_torch, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n  seed: 5\n" in done.stdout
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".py" and file.name != "__pycache__"] == []


def test_two_ranks_share_a_default_folder_and_its_files_are_written_once(environment, tmp_path):
    (tmp_path / "stub.py").write_text(STUB)
    done = run("-c", LAUNCHER, "+experiment=limit_longest_1-3_stage1_bf16", HERE, env=environment, cwd=tmp_path)
    assert done.stderr == ""
    printed = done.stdout.splitlines()
    assert len(printed) == 2 and len(set(printed)) == 1
    [folder] = (tmp_path / "outputs" / "train").iterdir()
    assert Path(printed[0]) == folder.relative_to(tmp_path)
    assert sorted(file.name for file in folder.iterdir()) == ["resolved_config.yaml", "run_context.json"]
    context = json.loads((folder / "run_context.json").read_text())
    assert context["distributed"] == {"rank": 0, "local_rank": 0, "world_size": 2}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["outputs", "stub.py"]
