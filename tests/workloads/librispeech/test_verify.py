"""`--verify`: each kind of damage is found and named, and nothing is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from seatrial_workloads.librispeech.prepare import main
from seatrial_workloads.librispeech.synthetic import make_tree
from tests.workloads.librispeech.trees import bytes_of, prepare

ONE = "dev-clean/100201/100300/100201-100300-0000.flac"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    make_tree(folder / "source", 8, mean_s=0.8)
    main(["--input-root", str(folder / "source"), "--output-root", str(folder / "tree"), "--trim", "--quiet"])
    return folder / "tree"


@pytest.fixture
def tree(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "tree"))


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))


def row(tree: Path) -> str:
    return next(line for line in (tree / "manifest.tsv").read_text().splitlines() if line.startswith(ONE))


def cut(tree: Path) -> None:
    (tree / ONE).write_bytes((tree / ONE).read_bytes()[:-200])


def shorten(tree: Path) -> None:
    samples, rate = soundfile.read(tree / ONE)
    soundfile.write(tree / ONE, samples[:-1], rate)


def resample(tree: Path) -> None:
    samples, _ = soundfile.read(tree / ONE)
    soundfile.write(tree / ONE, samples, 22_050)


def widen(tree: Path) -> None:
    samples, rate = soundfile.read(tree / ONE)
    soundfile.write(tree / ONE, np.stack([samples, samples], axis=1), rate)


def forget_words(tree: Path) -> None:
    for path in (tree / ONE).parent.glob("*.trans.txt"):
        edit(path, lambda text: text.replace("100201-100300-0000 ", "100201-100300-0099 "))


def silence_words(tree: Path) -> None:
    for path in (tree / ONE).parent.glob("*.trans.txt"):
        edit(path, lambda text: "".join(f"{line.split()[0]}\n" for line in text.splitlines()))


def set_row(tree: Path, number: int, value: str) -> None:
    fields = row(tree).split("\t")
    fields[number] = value
    edit(tree / "manifest.tsv", lambda text: text.replace(row(tree), "\t".join(fields)))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda tree: (tree / ONE).unlink(), f"{ONE}: is in the manifest and not on disk"),
    "cut": (cut, f"{ONE}: cannot be decoded: "),
    "empty": (lambda tree: (tree / ONE).write_bytes(b""), f"{ONE}: the file is empty (0 bytes)"),
    "shorter": (shorten, f"{ONE}: has "),
    "resampled": (resample, f"{ONE}: has 22050 samples a second; expected 16000"),
    "two channels": (widen, f"{ONE}: has 2 channels; expected one"),
    "no id": (forget_words, f"{ONE}: no transcript for 100201-100300-0000"),
    "no words": (silence_words, f"{ONE}: no transcript for 100201-100300-0000"),
    "other length": (lambda tree: set_row(tree, 1, "5"), "the manifest says 5 samples and"),
    "other seconds": (lambda tree: set_row(tree, 2, "9.5"), "which do not agree"),
    "twice": (lambda tree: edit(tree / "manifest.tsv", lambda text: f"{text}{row(tree)}\n"), f"{ONE}: has 2 rows in the manifest"),
    "not in it": (
        lambda tree: edit(tree / "manifest.tsv", lambda text: text.replace(f"{row(tree)}\n", "")),
        f"{ONE}: is on disk and not in the manifest",
    ),
    "out of it": (lambda tree: set_row(tree, 0, "../../etc/passwd.flac"), "../../etc/passwd.flac: is a path out of the tree"),
}


@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_damage_is_found_and_named(kind: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, says = DAMAGE[kind]
    spoil(tree)
    before = bytes_of(tree)
    assert main(["--verify", "--output-root", str(tree), "--quiet"]) == 1
    said = capsys.readouterr()
    assert says in said.out and "problems in" in said.err
    assert bytes_of(tree) == before


def test_a_whole_tree_is_found_whole_by_two_workers(tree: Path) -> None:
    before = bytes_of(tree)
    assert "8 files are what" in prepare("--verify", "--output-root", tree, "--workers", "2")
    assert bytes_of(tree) == before


def test_the_rate_it_was_prepared_with_is_the_right_one(prepared: Path, tmp_path: Path) -> None:
    source = prepared.parent / "source"
    main(["--input-root", str(source), "--output-root", str(tmp_path / "slow"), "--target-sr", "8000", "--quiet"])
    assert main(["--verify", "--output-root", str(tmp_path / "slow"), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("", "is no manifest"),
        ("path,samples\n", "is no manifest"),
        ("rel_path\tnum_samples\tduration_sec\n", "has no rows"),
        ("rel_path\tnum_samples\tduration_sec\na.flac\tmany\t1.0\n", ":2: "),
        ("rel_path\tnum_samples\tduration_sec\na.flac\t1\n", ":2: "),
    ],
)
def test_a_manifest_that_is_none_is_said(text: str | None, says: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "manifest.tsv").unlink()
    if text is not None:
        (tree / "manifest.tsv").write_text(text)
    assert main(["--verify", "--output-root", str(tree), "--quiet"]) == 1
    assert says in capsys.readouterr().err
