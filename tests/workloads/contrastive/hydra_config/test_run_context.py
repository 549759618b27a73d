"""resolved_config.yaml, run_context.json and what they say of the code; the folder they go to."""

from __future__ import annotations

import json
import shutil
import subprocess
import types

import pytest
import yaml

pytest.importorskip("hydra")

from seatrial_workloads.contrastive.hydra_config import git_facts, run_context
from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError
from seatrial_workloads.contrastive.hydra_config.compose import Start, settings_from
from seatrial_workloads.contrastive.hydra_config.run_context import write_startup_files
from seatrial_workloads.contrastive.hydra_config.run_folder import make_run_dir


def start_in(folder, *words: str, env: dict[str, str] | None = None) -> Start:
    return settings_from([f"experiment_output_dir={folder}", *words], env or {})


def git(folder, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True, capture_output=True)


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


def test_the_resolved_config_holds_every_key_and_composes_to_the_same(tmp_path):
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


def test_the_context_says_who_ran_what(tmp_path, repository):
    start = start_in(tmp_path / "out", "--local_rank=1", env={"SEATRIAL_TIMING_WINDOW": "20"})
    env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    context = run_context.run_context(start, [str(repository / "train.py"), "--local_rank=1", "train.seed=1"], env)
    assert context["argv"] == [str(repository / "train.py"), "--local_rank=1", "train.seed=1"]
    assert context["command"].endswith("train.py --local_rank=1 train.seed=1")
    assert context["distributed"] == {"rank": 0, "local_rank": 0, "world_size": 2}
    assert context["paths"]["run_dir"] == str(tmp_path / "out")
    assert {"python", "platform", "hostname", "torch_version", "deepspeed_version", "cuda_version", "devices"} == set(context["runtime"])
    assert (context["git"]["branch"], context["git"]["repo_root"], context["git"]["dirty"]) == ("work", str(repository), False)
    assert context["settings"]["seed"] == 123_456
    window = next(variable for variable in context["variables"] if variable["name"] == "SEATRIAL_TIMING_WINDOW")
    assert (window["value"], window["asked"], window["given_by"]) == ("20", "100", "environment")
    assert "train.timing_window" in [told["setting"] for told in context["no_effect"]]
    assert context["timestamp_utc"].endswith("Z")


def test_secrets_in_the_command_are_masked(tmp_path):
    start = start_in(tmp_path)
    write_startup_files(start, ["train.py", "++dataset.root_dir=https://me:hunter2hunter2@host/data", "hub_token=abcdefghijkl"])
    text = (tmp_path / "run_context.json").read_text()
    assert "hunter2" not in text
    assert "abcdefghijkl" not in text
    assert "https://me:***@host/data" in text


def test_each_file_can_be_switched_off(tmp_path):
    off = [f"train.startup_metadata_{name}=false" for name in ("resolved_config", "run_context")]
    write_startup_files(start_in(tmp_path, *off), ["train.py"])
    assert list(tmp_path.iterdir()) == []
    write_startup_files(start_in(tmp_path, off[0], "train.startup_metadata_git=false"), ["train.py"])
    assert [file.name for file in tmp_path.iterdir()] == ["run_context.json"]
    context = json.loads((tmp_path / "run_context.json").read_text())
    assert context["git"]["error"] == "not asked: train.startup_metadata_git is false"
    assert context["paths"]["resolved_config"] is None


def test_a_disk_that_refuses_is_told_and_stops_nothing(tmp_path):
    (tmp_path / "out").write_text("a file where the folder should be")
    told = write_startup_files(start_in(tmp_path / "out"), ["train.py"])
    assert len(told) == 2
    assert all("was not written (" in sentence and sentence.endswith("the training goes on") for sentence in told)


def test_a_write_that_is_cut_short_leaves_the_old_file_whole(tmp_path, monkeypatch):
    start = start_in(tmp_path)
    write_startup_files(start, ["train.py"])
    before = (tmp_path / "run_context.json").read_text()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seatrial.files.os.replace", full)
    assert "No space left on device" in write_startup_files(start, ["train.py"])[1]
    assert (tmp_path / "run_context.json").read_text() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["resolved_config.yaml", "run_context.json"]


def test_gpus_are_named_and_a_driver_that_fails_is_quoted(monkeypatch):
    properties = types.SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=141 << 30)
    cuda = types.SimpleNamespace(device_count=lambda: 1, get_device_properties=lambda index: properties)
    fake = types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(cuda="13.0"))
    monkeypatch.setitem(run_context.sys.modules, "torch", fake)
    told = run_context.runtime()
    assert told["cuda_version"] == "13.0"
    assert told["devices"] == [{"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 144_384}]

    def broken(index: int) -> None:
        raise RuntimeError("CUDA driver\n version is insufficient")

    monkeypatch.setattr(cuda, "get_device_properties", broken)
    assert run_context.runtime()["devices"] == [{"error": "CUDA driver version is insufficient"}]


def test_git_tells_changes_of_tracked_files_and_lists_at_most_200(repository):
    (repository / "notes.txt").write_text("untracked\n")
    facts = git_facts.git_facts(repository)
    assert (facts["available"], facts["dirty"], facts["status_porcelain"]) == (True, False, ["?? notes.txt"])
    assert len(facts["commit"]) == 40
    (repository / "train.py").write_text("2\n")
    for number in range(210):
        (repository / f"file{number}").touch()
    facts = git_facts.git_facts(repository)
    assert (facts["dirty"], len(facts["status_porcelain"]), facts["status_truncated"]) == (True, 200, True)


def test_a_repository_without_a_commit_has_none(tmp_path):
    if not shutil.which("git"):
        pytest.skip("no git here")
    git(tmp_path, "init")
    facts = git_facts.git_facts(tmp_path)
    assert (facts["available"], facts["commit"]) == (True, "")


def test_no_repository_and_no_git_are_said(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    facts = git_facts.git_facts(tmp_path)
    assert (facts["available"], facts["dirty"], facts["status_porcelain"]) == (False, None, [])
    assert "no repository" in facts["error"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_facts.git_facts(tmp_path)["error"] == "no git on PATH"


def test_a_folder_with_an_earlier_run_is_refused(tmp_path):
    make_run_dir(tmp_path / "a" / "b", {})
    (tmp_path / "a" / "b" / "events_rank0.jsonl").write_text('{"kind":"start"}\n')
    # One that did not get as far as a step is no run that could be mixed up with another.
    make_run_dir(tmp_path / "a" / "b", {})
    (tmp_path / "a" / "b" / "events_rank0.jsonl").write_text('{"kind":"start"}\n{"kind":"step","step":0}\n')
    with pytest.raises(ConfigurationError, match=r"holds an earlier run: give a folder of its own; .*add train\.resume_from="):
        make_run_dir(tmp_path / "a" / "b", {})
    # The harness knows what it does, and so does a launcher that starts its ranks again.
    make_run_dir(tmp_path / "a" / "b", {"SEATRIAL_RUN_DIR": str(tmp_path)})
    make_run_dir(tmp_path / "a" / "b", {"TORCHELASTIC_RESTART_COUNT": "1"})


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"experiment_output_dir is .*file/out, which cannot be made \(Not a directory\)"):
        make_run_dir(tmp_path / "file" / "out", {})
