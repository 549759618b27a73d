"""A manifest that is not where it was said to be: what lies in the tree is named, by settings and by train.py alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial_workloads.contrastive.hydra_config import train as hydra_train
from seatrial_workloads.contrastive.manifests_nearby import clause_of_others, manifests_in
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.manifest import HEADER, write_manifest

WRONG = "data/16k_trim/LibriSpeech/manifest_16k_trim.tsv"
TREE = "data/LibriSpeech/16k_trim"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prepared tree with its manifest, seen from the folder a command would be typed in."""
    tree = tmp_path / TREE
    tree.mkdir(parents=True)
    write_manifest(tree / "manifest_16k_trim.tsv", {"dev-clean/1/2/a.flac": 16000}, 16000)
    (tree / "notes.tsv").write_text("a\tb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LIBRISPEECH_MANIFEST_PATH", raising=False)
    return tmp_path


def test_only_manifests_are_named(folder: Path) -> None:
    assert manifests_in(folder / TREE) == ["manifest_16k_trim.tsv"]
    assert manifests_in(folder / "nowhere") == []


def test_several_are_all_named(folder: Path) -> None:
    write_manifest(folder / TREE / "all.tsv", {}, 16000)
    told = clause_of_others(TREE, folder, "KEY")
    assert told == f"; {TREE} holds 2 (all.tsv, manifest_16k_trim.tsv): give KEY={TREE}/all.tsv"


def test_settings_name_the_one_in_the_tree(folder: Path) -> None:
    settings = Settings(dataset_root=TREE, dataset_manifest_path=WRONG)
    assert settings.host_problems(num_gpus=1, cwd=folder) == [
        (
            "dataset_manifest_path",
            f"there is no manifest {WRONG}; {TREE} holds one: give dataset_manifest_path={TREE}/manifest_16k_trim.tsv",
        )
    ]


def test_without_one_in_the_tree_settings_say_to_correct_it(folder: Path) -> None:
    (folder / TREE / "manifest_16k_trim.tsv").unlink()
    problems = Settings(dataset_root=TREE, dataset_manifest_path=WRONG).host_problems(num_gpus=1, cwd=folder)
    assert problems == [("dataset_manifest_path", f"there is no manifest {WRONG}: correct dataset_manifest_path, or leave it out")]


def test_train_py_names_the_one_in_the_tree(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        hydra_train.main([f"++dataset.root_dir={TREE}", f"++dataset.manifest_path={WRONG}"])
    told = capsys.readouterr().err
    assert ended.value.code == 1
    assert f"dataset.manifest_path is {WRONG}, and there is no such file" in told
    assert f"{TREE} holds one: give dataset.manifest_path={TREE}/manifest_16k_trim.tsv" in told


def test_a_file_that_is_no_manifest_of_the_tree_is_told_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "tree" / "train-clean-100").mkdir(parents=True)
    (tmp_path / "passwd").write_text("root:x:0:0\n")
    (tmp_path / "other.tsv").write_text(f"{HEADER}\ntrain-clean-100/1/2/1-2-0000.flac\t16000\t1.000000\n")
    (tmp_path / "weights").mkdir()

    def told(**settings: str) -> dict[str, str]:
        return dict(Settings(dataset_root="tree", **settings).host_problems(num_gpus=0, cwd=tmp_path))

    assert "is no manifest: its first line is 'root:x:0:0'" in told(dataset_manifest_path="passwd")["dataset_manifest_path"]
    assert "they belong to different trees" in told(dataset_manifest_path="other.tsv")["dataset_manifest_path"]
    assert told(speech_model="weights") == {
        "speech_model": "the folder weights has no config.json in it: give the one that the model's files lie in"
    }
    (tmp_path / "tree" / "train-clean-100" / "1" / "2").mkdir(parents=True)
    (tmp_path / "tree" / "train-clean-100" / "1" / "2" / "1-2-0000.flac").touch()
    assert told(dataset_manifest_path="other.tsv") == {}
