"""What can be asked of `prepare`: defaults, and what is refused before anything is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.records import exit_codes
from seatrial_workloads.librispeech import options
from seatrial_workloads.librispeech.manifest import HEADER
from seatrial_workloads.librispeech.record import PrepareError


def checked(*words: str | Path) -> None:
    options.check(options.parser().parse_args([str(word) for word in words]))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def test_what_is_not_said_has_its_default(tmp_path: Path) -> None:
    found = options.parser().parse_args(["--output-root", str(tmp_path)])
    assert (found.target_sr, found.trim, found.trim_top_db, found.workers, found.log_every) == (16_000, False, 60.0, 1, 500)
    assert (found.input_root, found.manifest_path, found.synthetic, found.seed) == (None, None, None, None)
    assert options.manifest_path(found) == tmp_path / "manifest.tsv"


def test_a_manifest_of_its_own_stands_over_the_trees(tmp_path: Path) -> None:
    found = options.parser().parse_args(["--output-root", str(tmp_path), "--manifest-path", "elsewhere.tsv"])
    assert options.manifest_path(found) == Path("elsewhere.tsv")


@pytest.mark.parametrize("words", [[], ["--output-root"], ["--output-root", ""], ["--output-root", "x", "--workers", "two"]])
def test_wrong_use_ends_with_1_and_a_line_on_stderr(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parser().parse_args(words)
    assert ended.value.code == exit_codes.WRONG_USE
    assert capsys.readouterr().err.splitlines()[-1].startswith("prepare librispeech: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--workers", "0"], "--workers is 0; expected 1 or more"),
        (["--log-every", "-1"], "--log-every is -1"),
        (["--target-sr", "999"], "--target-sr is 999; expected 1000 to 192000 Hz"),
        (["--trim-top-db", "nan"], "--trim-top-db is nan; expected decibels above 0"),
        (["--trim-top-db", "inf"], "--trim-top-db is inf"),
        (["--seed", "1"], "--seed is the synthetic tree's"),
    ],
)
def test_numbers_that_cannot_be_are_refused(tree: Path, tmp_path: Path, words: list[str], says: str) -> None:
    with pytest.raises(PrepareError, match=says):
        checked("--input-root", tree, "--output-root", tmp_path / "out", *words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--synthetic", "2"], "--synthetic is 2; expected 3 or more"),
        (["--synthetic", "5", "--seed", "-1"], "--seed is -1; expected 0 or more"),
        (["--synthetic", "5", "--verify"], "--verify has no meaning with --synthetic"),
        (["--synthetic", "5", "--input-root", "."], "--input-root has no meaning with --synthetic"),
        (["--synthetic", "5", "--target-sr", "8000"], "a synthetic tree has 16000"),
        (["--verify"], "is no folder: name the prepared tree"),
        ([], "--input-root is missing"),
        (["--input-root", "none"], "--input-root none is no folder"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, words: list[str], says: str) -> None:
    with pytest.raises(PrepareError, match=says):
        checked("--output-root", tmp_path / "out", *words)


@pytest.mark.parametrize("output", [".", "inside", "../tree"])
def test_trees_that_lie_in_each_other_are_refused(tree: Path, output: str) -> None:
    with pytest.raises(PrepareError, match="lie in each other"):
        checked("--input-root", tree, "--output-root", tree / output)


@pytest.mark.parametrize(("content", "is_manifest"), [(HEADER, True), ("", True), ("# my notes", False)])
def test_only_a_manifest_is_written_over(tree: Path, tmp_path: Path, content: str, is_manifest: bool) -> None:
    (tmp_path / "m.tsv").write_text(content)
    words = ["--input-root", tree, "--output-root", tmp_path / "out", "--manifest-path", tmp_path / "m.tsv"]
    if is_manifest:
        assert checked(*words) is None
        return
    with pytest.raises(PrepareError, match="is there and is no manifest: choose another name"):
        checked(*words)


def test_a_library_that_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.importlib.util, "find_spec", lambda name: None if name == "soxr" else object())
    with pytest.raises(PrepareError, match=r"soxr must be installed for this: pip install 'seatrial\[stage1\]'"):
        options.check_libraries()
