"""What there is to train on, found by manifest and by scan; and what is said when it is not there."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from seatrial_workloads.contrastive.loading.packed import PackedTexts  # noqa: E402
from seatrial_workloads.contrastive.loading.utterances import DatasetError, find_utterances  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402

HEADER = "rel_path\tnum_samples\tduration_sec\n"
REMEDY = "seatrial prepare librispeech --synthetic 200 --output-root"


def settings_of(root: Path, manifest: str | None = "manifest.tsv") -> Settings:
    return Settings(dataset_root=str(root), dataset_manifest_path=None if manifest is None else str(root / manifest))


def rows_of(root: Path) -> list[str]:
    return (root / "manifest.tsv").read_text().splitlines(keepends=True)[1:]


@pytest.mark.parametrize("split_set", ["train", "validation", "test"])
def test_scan_and_manifest_find_the_same(tree, split_set):
    listed, scanned = find_utterances(settings_of(tree), split_set), find_utterances(settings_of(tree, None), split_set)
    assert len(listed) == len(scanned) > 0
    for index in range(len(listed)):
        assert listed.path(index) == scanned.path(index)
        assert listed.texts[index] == scanned.texts[index] != ""
    assert scanned.num_samples is None
    assert scanned.with_lengths().num_samples.tolist() == listed.num_samples.tolist()
    assert listed.with_lengths() is listed


def test_split_sets_are_disjoint_and_sorted_and_a_text_is_that_of_its_file(tree):
    found = {name: find_utterances(settings_of(tree), name) for name in ("train", "validation", "test")}
    paths = {name: [each.paths[index] for index in range(len(each))] for name, each in found.items()}
    assert {path.split("/")[0] for path in paths["train"]} == {"train-clean-100"}
    assert {path.split("/")[0] for path in paths["validation"]} == {"dev-clean"}
    assert sum(map(len, paths.values())) == len(rows_of(tree))
    assert paths["train"] == sorted(paths["train"])
    path = found["train"].path(5)
    transcripts = next(path.parent.glob("*.trans.txt")).read_text().splitlines()
    assert f"{path.stem} {found['train'].texts[5]}" in transcripts


def test_files_without_a_transcript_are_left_out_and_told(own_tree):
    transcript = sorted(own_tree.glob("train-clean-100/*/*/*.trans.txt"))[0]
    lines = transcript.read_text().splitlines(keepends=True)
    transcript.write_text("".join(lines[2:]))
    whole = sum(row.startswith("train") for row in rows_of(own_tree))
    for manifest in ("manifest.tsv", None):
        found = find_utterances(settings_of(own_tree, manifest), "train")
        assert (len(found), found.num_without_text) == (whole - 2, 2)
        assert found.described() == f"train: {whole - 2} utterances in {own_tree}; 2 files without a transcript left out"
    transcript.unlink()
    assert find_utterances(settings_of(own_tree), "train").num_without_text == len(lines)


def test_none_with_a_transcript_is_an_error(own_tree):
    for transcript in own_tree.glob("dev-clean/*/*/*.trans.txt"):
        transcript.unlink()
    with pytest.raises(DatasetError, match=r"none of the 4 validation files has a transcript; expected SPEAKER-CHAPTER.trans.txt"):
        find_utterances(settings_of(own_tree), "validation")


def test_an_empty_text_is_a_text(own_tree):
    transcript = sorted(own_tree.glob("dev-clean/*/*/*.trans.txt"))[0]
    transcript.write_text("".join(f"{line.split()[0]}\n" for line in transcript.read_text().splitlines()))
    assert find_utterances(settings_of(own_tree), "validation").texts[0] == ""


def test_a_missing_root_names_its_key_and_the_remedy(tmp_path):
    with pytest.raises(DatasetError, match=rf"dataset_root {tmp_path}/none is not there; expected a folder with .*{REMEDY} data/synthetic"):
        find_utterances(settings_of(tmp_path / "none", None), "train")


def test_an_empty_split_names_the_folders_that_were_expected(tmp_path):
    with pytest.raises(DatasetError, match=rf"dataset_root .* has no validation utterance; .* dev-clean dev-other; .*{REMEDY}"):
        find_utterances(settings_of(tmp_path, None), "validation")


def test_a_root_one_folder_too_high_is_told_where_to_go(tree):
    with pytest.raises(DatasetError, match=rf"; {tree} has them: set dataset_root to it"):
        find_utterances(settings_of(tree.parent, None), "train")


def test_a_missing_manifest_names_its_key(tree):
    with pytest.raises(
        DatasetError, match=rf"dataset_manifest_path {tree}/other.tsv is not there; .*or null to scan dataset_root.*{REMEDY}"
    ):
        find_utterances(settings_of(tree, "other.tsv"), "train")


def test_a_manifest_of_another_tree_is_noticed_at_once(own_tree):
    first = next(row for row in rows_of(own_tree) if row.startswith("train")).split("\t")[0]
    (own_tree / first).unlink()
    with pytest.raises(DatasetError, match=r"manifest.tsv lists train-clean-100/.*, which is not below dataset_root"):
        find_utterances(settings_of(own_tree), "train")


@pytest.mark.parametrize(
    "row",
    [
        "train-clean-100/1/2/1-2-0000.flac\t100\n",
        "train-clean-100/1/2/1-2-0000.flac\tmany\t1.0\n",
        "train-clean-100/1/2/1-2-0000.flac\t0\t0.0\n",
        "train-clean-100/1/2/1-2-0000.flac\t-5\t1.0\n",
        "/etc/1-2-0000.flac\t100\t1.0\n",
        "train-clean-100/../../1-2-0000.flac\t100\t1.0\n",
        "\t100\t1.0\n",
        "\n",
    ],
)
def test_a_bad_row_is_refused_by_file_and_line(own_tree, row):
    rows = rows_of(own_tree)
    (own_tree / "manifest.tsv").write_text(HEADER + "".join([*rows[:2], row, *rows[2:]]))
    with pytest.raises(DatasetError, match=r"manifest.tsv:4: .*expected .*seatrial prepare librispeech"):
        find_utterances(settings_of(own_tree), "train")


def test_a_row_that_stands_twice_is_refused(own_tree):
    rows = rows_of(own_tree)
    (own_tree / "manifest.tsv").write_text(HEADER + "".join([*rows, rows[0]]))
    with pytest.raises(DatasetError, match=rf"manifest.tsv:{len(rows) + 2}: .*that no row before has"):
        find_utterances(settings_of(own_tree), "train")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00rubbish", b"path,samples\n"])
def test_what_is_no_manifest_is_refused(own_tree, content):
    (own_tree / "manifest.tsv").write_bytes(content)
    with pytest.raises(DatasetError, match=r"dataset_manifest_path cannot be used: .*manifest.tsv"):
        find_utterances(settings_of(own_tree), "train")


def test_a_manifest_with_nothing_of_the_split_set_says_so(own_tree):
    (own_tree / "manifest.tsv").write_text(HEADER + "".join(row for row in rows_of(own_tree) if not row.startswith("dev")))
    with pytest.raises(DatasetError, match=r"dataset_manifest_path .* has no validation utterance; expected FLAC files below dev-clean"):
        find_utterances(settings_of(own_tree), "validation")


def test_a_corrupt_transcript_is_refused_by_name(own_tree):
    transcript = sorted(own_tree.glob("train-clean-100/*/*/*.trans.txt"))[0]
    transcript.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DatasetError, match=rf"the transcript {transcript} cannot be read"):
        find_utterances(settings_of(own_tree), "train")


def test_a_header_that_cannot_be_read_is_refused_by_name(own_tree):
    path = sorted(own_tree.glob("train-clean-100/*/*/*.flac"))[3]
    path.write_bytes(b"no audio")
    with pytest.raises(DatasetError, match=rf"{path} cannot be read \(.*\); training leaves no data out by itself"):
        find_utterances(settings_of(own_tree, None), "train").with_lengths()


def test_part_files_of_a_preparation_under_way_are_no_utterances(own_tree):
    chapter = sorted(own_tree.glob("train-clean-100/*/*"))[0]
    before = len(find_utterances(settings_of(own_tree, None), "train"))
    (chapter / ".x.flac.1234.part").write_bytes(b"")
    (chapter / ".hidden.flac").write_bytes(b"")
    found = find_utterances(settings_of(own_tree, None), "train")
    assert (len(found), found.num_without_text) == (before, 0)


def test_packed_texts_are_few_objects_and_give_every_text_back():
    texts = ["", "A", "ÄÖ → ∀", "", "END"] * 100
    packed = PackedTexts(texts)
    assert [packed[index] for index in range(len(packed))] == texts
    assert packed[np.int64(2)] == "ÄÖ → ∀"
    # One object, not one a text: a fork copies what is counted.
    assert len(pickle.dumps(packed)) < sum(len(text.encode()) + 8 for text in texts) + 500
    for index in (-1, 500):
        with pytest.raises(IndexError):
            packed[index]
    assert len(PackedTexts([])) == 0
