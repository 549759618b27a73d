"""Utterances of a tree, their batches, and time masks."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from seatrial_workloads.contrastive.loading.dataset import SPAN_FRAMES, SpeechTextBatches, normalise, time_mask
from seatrial_workloads.contrastive.loading.sampling import Rows, SliceRule
from seatrial_workloads.contrastive.loading.tokens import tokenise
from seatrial_workloads.contrastive.loading.utterances import DatasetError, PackedTexts, find_utterances
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.audio import trim_bounds
from tests.facts import states
from tests.workloads.contrastive.speech import num_frames

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def mask_of(num_frames: list[int], width: int | None = None, prob: float = 0.05, **changes) -> np.ndarray:
    place = {"seed": 1, "epoch": 0, "indices": np.arange(len(num_frames)), **changes}
    return time_mask(np.array(num_frames), width or max(num_frames), prob=prob, **place)


def spans_of(row: np.ndarray) -> list[int]:
    """Lengths of the masked spans."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return (edges[1::2] - edges[::2]).tolist()


@given(
    num_frames=st.lists(st.integers(1, 400), min_size=1, max_size=20),
    extra=st.integers(0, 50),
    prob=st.floats(0.001, 0.99),
    seed=st.integers(0, 2**32),
)
def test_padding_is_not_masked_and_spans_are_complete(num_frames, extra, prob, seed):
    mask = mask_of(num_frames, max(num_frames) + extra, prob, seed=seed)
    assert mask.shape == (len(num_frames), max(num_frames) + extra)
    for row, length in zip(mask, num_frames, strict=True):
        assert not row[length:].any()
        assert all(span >= SPAN_FRAMES for span in spans_of(row))
        fits = length // SPAN_FRAMES
        assert row.any() == (fits > 0)
        if fits > 1:
            # At least two different starts.
            assert row.sum() > SPAN_FRAMES


def test_a_mask_does_not_depend_on_the_other_rows():
    together = mask_of([99, 149, 30, 60])
    for row, length in enumerate([99, 149, 30, 60]):
        alone = mask_of([length], indices=np.array([row]))
        assert (together[row, :length] == alone[0]).all()


def test_masks_differ_by_epoch_seed_and_utterance():
    masks = [mask_of([99] * 50), mask_of([99] * 50, epoch=1), mask_of([99] * 50, seed=2)]
    assert len({row.tobytes() for mask in masks for row in mask}) > 145


@pytest.mark.parametrize("prob", [0.2, 0.5])
def test_the_masked_share(prob):
    """Spans overlap by chance: 1 - e^-prob."""
    hidden = mask_of([1000] * 200, prob=prob).mean()
    assert hidden == pytest.approx(1 - np.exp(-prob), abs=0.02)


def test_span_starts_are_spread_over_the_row():
    hidden = mask_of([100] * 4000).mean(axis=0)
    assert hidden[20:80].min() > 0.15 and hidden[20:80].max() < 0.27
    assert hidden[0] == pytest.approx(2 / 91, abs=0.01)


def test_the_masked_share_is_that_of_transformers():
    compute = pytest.importorskip("transformers.models.wav2vec2.modeling_wav2vec2")._compute_mask_indices
    np.random.seed(0)
    for length, prob in [(99, 0.05), (149, 0.05), (300, 0.3), (15, 0.05)]:
        theirs = compute((2000, length), prob, SPAN_FRAMES, min_masks=2).mean()
        assert mask_of([length] * 2000, prob=prob).mean() == pytest.approx(theirs, abs=0.01)


HEADER = "rel_path\tnum_samples\tduration_sec\n"


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


def test_splits_are_disjoint_and_sorted_with_the_transcript_of_each_file(tree):
    found = {name: find_utterances(settings_of(tree), name) for name in ("train", "validation", "test")}
    paths = {name: [each.paths[index] for index in range(len(each))] for name, each in found.items()}
    assert {path.split("/")[0] for path in paths["train"]} == {"train-clean-100"}
    assert {path.split("/")[0] for path in paths["validation"]} == {"dev-clean"}
    assert sum(map(len, paths.values())) == len(rows_of(tree))
    assert paths["train"] == sorted(paths["train"])
    path = found["train"].path(5)
    transcripts = next(path.parent.glob("*.trans.txt")).read_text().splitlines()
    assert f"{path.stem} {found['train'].texts[5]}" in transcripts


def test_files_without_a_transcript_are_skipped_and_counted(own_tree):
    transcript = sorted(own_tree.glob("train-clean-100/*/*/*.trans.txt"))[0]
    lines = transcript.read_text().splitlines(keepends=True)
    transcript.write_text("".join(lines[2:]))
    whole = sum(row.startswith("train") for row in rows_of(own_tree))
    for manifest in ("manifest.tsv", None):
        found = find_utterances(settings_of(own_tree, manifest), "train")
        assert (len(found), found.num_without_text) == (whole - 2, 2)
        assert states(found.summary(), "train", f"{whole - 2} utterances", own_tree, "2 files", "transcript")
    transcript.unlink()
    assert find_utterances(settings_of(own_tree), "train").num_without_text == len(lines)


def test_an_empty_transcript_is_used(own_tree):
    transcript = sorted(own_tree.glob("dev-clean/*/*/*.trans.txt"))[0]
    transcript.write_text("".join(f"{line.split()[0]}\n" for line in transcript.read_text().splitlines()))
    assert find_utterances(settings_of(own_tree), "validation").texts[0] == ""


def drop_transcripts(root: Path) -> None:
    for transcript in root.glob("*/*/*/*.trans.txt"):
        transcript.unlink()


def drop_listed_file(root: Path) -> None:
    (root / next(row for row in rows_of(root) if row.startswith("train")).split("\t")[0]).unlink()


def drop_train_rows(root: Path) -> None:
    (root / "manifest.tsv").write_text(HEADER + "".join(row for row in rows_of(root) if not row.startswith("train")))


def damage_transcript(root: Path) -> None:
    sorted(root.glob("train-clean-100/*/*/*.trans.txt"))[0].write_bytes(b"\xff\xfe\xff")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "dataset_root .* does not exist"),
        (lambda root: (root / "manifest.tsv").unlink(), "dataset_manifest_path .* does not exist"),
        (lambda root: (root / "manifest.tsv").write_bytes(b"\xff\xfe\x00rubbish"), r"cannot be used: .*manifest\.tsv"),
        (lambda root: (root / "manifest.tsv").write_text("path,samples\n"), r"cannot be used: .*manifest\.tsv"),
        (drop_transcripts, "none of the 32 train files has a transcript"),
        (drop_listed_file, r"manifest\.tsv lists train-clean-100/.*, which is not below dataset_root"),
        (drop_train_rows, "has no train utterance; expected FLAC files below train-clean-100"),
        (damage_transcript, r"the transcript .*\.trans\.txt cannot be read"),
    ],
)
def test_an_unusable_tree_is_refused(own_tree, damage, message):
    damage(own_tree)
    with pytest.raises(DatasetError, match=message):
        find_utterances(settings_of(own_tree), "train")


def test_a_root_one_folder_too_high_is_refused_with_the_right_one(tree):
    with pytest.raises(DatasetError, match=rf"; {tree} has them: set dataset_root to it"):
        find_utterances(settings_of(tree.parent, None), "train")


@pytest.mark.parametrize(
    "row",
    [
        "train-clean-100/1/2/1-2-0000.flac\tmany\t1.0\n",
        "train-clean-100/1/2/1-2-0000.flac\t0\t0.0\n",
        "/etc/1-2-0000.flac\t100\t1.0\n",
        "train-clean-100/../../1-2-0000.flac\t100\t1.0\n",
        "\t100\t1.0\n",
        None,
    ],
)
def test_a_bad_or_duplicate_row_is_refused_by_file_and_line(own_tree, row):
    rows = rows_of(own_tree)
    (own_tree / "manifest.tsv").write_text(HEADER + "".join([*rows[:2], row or rows[0], *rows[2:]]))
    with pytest.raises(DatasetError, match=r"manifest\.tsv:4: "):
        find_utterances(settings_of(own_tree), "train")


def test_an_unreadable_header_is_refused_by_name(own_tree):
    path = sorted(own_tree.glob("train-clean-100/*/*/*.flac"))[3]
    path.write_bytes(b"no audio")
    with pytest.raises(DatasetError, match=f"{path} cannot be read"):
        find_utterances(settings_of(own_tree, None), "train").with_lengths()


def test_partial_and_hidden_files_are_skipped(own_tree):
    chapter = sorted(own_tree.glob("train-clean-100/*/*"))[0]
    before = len(find_utterances(settings_of(own_tree, None), "train"))
    (chapter / ".x.flac.1234.part").write_bytes(b"")
    (chapter / ".hidden.flac").write_bytes(b"")
    found = find_utterances(settings_of(own_tree, None), "train")
    assert (len(found), found.num_without_text) == (before, 0)


def test_packed_texts():
    texts = ["", "A", "ÄÖ → ∀", "", "END"] * 100
    packed = PackedTexts(texts)
    assert [packed[index] for index in range(len(packed))] == texts
    assert packed[np.int64(2)] == "ÄÖ → ∀"
    # One object for all texts: counting references copies the pages that forked workers share.
    assert len(pickle.dumps(packed)) < sum(len(text.encode()) + 8 for text in texts) + 500
    for index in (-1, 500):
        with pytest.raises(IndexError):
            packed[index]
    assert len(PackedTexts([])) == 0


ROWS = Rows(2, np.array([7, 0, 19, 4, 5]))


@pytest.fixture
def batches(speech_settings, tokenizer):
    """Creates the dataset of a tree."""

    def make(*where: Path, **changes) -> SpeechTextBatches:
        settings = speech_settings(
            *where, **{name: changes.pop(name) for name in list(changes) if name.startswith(("dataset", "fixed", "max"))}
        )
        return SpeechTextBatches(utterances=find_utterances(settings, "train"), rule=SliceRule.of(settings), tokenizer=tokenizer, **changes)

    return make


def whole_audio(dataset: SpeechTextBatches, index: int) -> np.ndarray:
    return soundfile.read(dataset.utterances.path(index), dtype="float32")[0]


def parts_of(batch) -> dict[str, object]:
    return {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}


def assert_same(first, second) -> None:
    for name, part in parts_of(first).items():
        other = getattr(second, name)
        assert torch.equal(part, other) if isinstance(part, torch.Tensor) else part == other, name


def test_a_row_is_the_slice_of_its_file_as_the_feature_extractor_gives_it(batches):
    dataset = batches()
    batch = dataset[ROWS]
    num_samples = dataset.utterances.num_samples[ROWS.indices]
    slices = dataset.rule.cut(ROWS.epoch, ROWS.indices, num_samples)
    pieces = [
        whole_audio(dataset, index)[start : start + length]
        for index, start, length in zip(ROWS.indices, slices.starts, slices.lengths, strict=True)
    ]
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=True)
    expected = extractor(pieces, sampling_rate=16_000, padding=True, return_tensors="np")
    assert np.array_equal(batch.audio.numpy(), expected["input_values"])
    assert np.array_equal(batch.num_samples.numpy(), expected["attention_mask"].sum(axis=1))
    assert (batch.audio.dtype, batch.num_samples.dtype) == (torch.float32, torch.int64)
    assert not batch.same_length


def test_texts_are_cut_as_the_audio_is(batches, tokenizer):
    dataset = batches()
    batch = dataset[ROWS]
    num_samples = dataset.utterances.num_samples[ROWS.indices]
    slices = dataset.rule.cut(ROWS.epoch, ROWS.indices, num_samples)
    texts = []
    for index, start, length, whole in zip(ROWS.indices, *slices, num_samples, strict=True):
        text = dataset.utterances.texts[index]
        texts.append(text[start * len(text) // whole : (start + length) * len(text) // whole])
    token_ids, token_mask = tokenise(tokenizer, texts)
    assert torch.equal(batch.token_ids, token_ids)
    assert torch.equal(batch.token_mask, token_mask)


def test_silence_is_normalised_to_zeros():
    row = np.full(500, 0.25, dtype=np.float32)
    normalise(row)
    assert np.array_equal(row, np.zeros(500))


def test_lengths_from_headers_give_the_same_batch(batches):
    known, unknown = batches(), batches(dataset_manifest_path=None)
    assert unknown.utterances.num_samples is None
    assert_same(known[ROWS], unknown[ROWS])


def test_fixed_slices_have_the_same_length(batches):
    batch = batches(fixed_slice_s=1.0)[ROWS]
    assert batch.same_length
    assert batch.audio.shape == (5, 16_000)


def test_a_row_does_not_depend_on_the_others(batches):
    dataset = batches(mask_time_prob=0.05, num_frames=num_frames)
    together, alone = dataset[ROWS], dataset[Rows(2, ROWS.indices[1:2])]
    length = alone.audio.shape[1]
    assert alone.same_length
    assert torch.equal(together.audio[1, :length], alone.audio[0])
    assert torch.equal(together.time_mask[1, : num_frames(length)], alone.time_mask[0])


def test_the_time_mask_has_every_frame_and_masks_no_padding(batches):
    batch = batches(mask_time_prob=0.3, num_frames=num_frames)[ROWS]
    assert batch.time_mask.shape == (5, num_frames(batch.audio.shape[1]))
    assert batch.time_mask.dtype == torch.bool
    for row, length in zip(batch.time_mask, batch.num_samples.tolist(), strict=True):
        assert row.any()
        assert not row[num_frames(length) :].any()


def test_no_time_mask_without_a_share(batches):
    assert batches(mask_time_prob=0.0, num_frames=num_frames)[ROWS].time_mask is None
    assert batches()[ROWS].time_mask is None


def test_epochs_have_different_slices(batches):
    dataset = batches()
    assert dataset[ROWS].num_samples.tolist() != dataset[Rows(3, ROWS.indices)].num_samples.tolist()


def test_silence_is_trimmed_before_slicing(batches):
    plain, trimming = batches(max_slice_s=60.0), batches(max_slice_s=60.0, trims=True)
    whole, trimmed = plain[ROWS], trimming[ROWS]
    for row, index in enumerate(ROWS.indices):
        audio = whole_audio(plain, index)
        start, end = trim_bounds(audio)
        assert trimmed.num_samples[row] == end - start < whole.num_samples[row] == len(audio)
        expected = audio[start:end].copy()
        normalise(expected)
        assert np.array_equal(trimmed.audio[row, : end - start].numpy(), expected)
    # All of the speech is used, so all of the text.
    assert torch.equal(trimmed.token_ids, whole.token_ids)


def write_audio(samples: int, channels: int = 1, sample_rate: int = 16_000) -> Callable[[Path], None]:
    shape = samples if channels == 1 else (samples, channels)
    return lambda path: soundfile.write(path, np.zeros(shape, dtype=np.int16), sample_rate)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message", "options"),
    [
        (write_audio(90_000, sample_rate=22_050), "has 1 channels at 22050 Hz", {}),
        (write_audio(90_000, sample_rate=22_050), "has 1 channels at 22050 Hz", {"trims": True}),
        (write_audio(90_000, channels=2), "has 2 channels", {}),
        (write_audio(90_000), r"has 90000 samples, and dataset_manifest_path lists \d+", {}),
        (write_audio(399), "has 399 samples, and the speech encoder needs at least 400", {"dataset_manifest_path": None}),
        (write_audio(200), "has speech of .* samples", {"trims": True}),
        (Path.unlink, "cannot be read", {}),
        (lambda path: path.write_bytes(b"rubbish" * 1000), "cannot be read", {}),
        (lambda path: path.write_bytes(b""), "cannot be read", {"trims": True}),
        (cut_in_half, "cannot be read", {"max_slice_s": 60.0}),
        (flip_a_bit, "cannot be read", {"max_slice_s": 60.0}),
    ],
)
def test_a_bad_file_is_refused_by_name(batches, own_tree, damage, message, options):
    dataset = batches(own_tree, **options)
    path = dataset.utterances.path(4)
    damage(path)
    with pytest.raises(DatasetError, match=f"{path} {message}"):
        dataset[Rows(0, np.array([1, 4]))]
