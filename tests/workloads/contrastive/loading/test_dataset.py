"""Batches made from files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import soundfile

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from seatrial_workloads.contrastive.loading.dataset import SpeechTextBatches, normalise  # noqa: E402
from seatrial_workloads.contrastive.loading.order import Rows  # noqa: E402
from seatrial_workloads.contrastive.loading.slices import SliceRule  # noqa: E402
from seatrial_workloads.contrastive.loading.tokens import tokenise  # noqa: E402
from seatrial_workloads.contrastive.loading.utterances import DatasetError, find_utterances  # noqa: E402
from seatrial_workloads.librispeech.trim import trim_bounds  # noqa: E402
from tests.workloads.contrastive.speech import num_frames  # noqa: E402

ROWS = Rows(2, np.array([7, 0, 19, 4, 5]))


@pytest.fixture
def batches(speech_settings, tokenizer):
    """Makes the dataset of a tree."""

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


def test_every_row_has_mean_0_and_variance_1_over_its_own_samples_and_zeros_behind(batches):
    batch = batches()[ROWS]
    for row, length in zip(batch.audio, batch.num_samples, strict=True):
        assert row[:length].mean().abs() < 1e-5
        assert row[:length].var(unbiased=False) == pytest.approx(1, abs=1e-3)
        assert not row[length:].any()
    assert batch.audio.shape[1] == batch.num_samples.max()


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


def test_silence_is_not_divided_by_zero():
    row = np.full(500, 0.25, dtype=np.float32)
    normalise(row)
    assert np.array_equal(row, np.zeros(500))


def test_lengths_that_are_not_known_change_nothing(batches):
    known, unknown = batches(), batches(dataset_manifest_path=None)
    assert unknown.utterances.num_samples is None
    assert_same(known[ROWS], unknown[ROWS])


def test_a_fixed_slice_fills_the_batch_and_says_so(batches):
    batch = batches(fixed_slice_s=1.0)[ROWS]
    assert batch.same_length
    assert batch.audio.shape == (5, 16_000)


def test_one_row_is_a_batch(batches):
    batch = batches(mask_time_prob=0.05, num_frames=num_frames)[Rows(0, np.array([3]))]
    assert len(batch.audio) == 1
    assert batch.same_length
    assert batch.time_mask.shape == (1, num_frames(batch.audio.shape[1]))


def test_a_row_does_not_depend_on_those_beside_it(batches):
    dataset = batches(mask_time_prob=0.05, num_frames=num_frames)
    together, alone = dataset[ROWS], dataset[Rows(2, ROWS.indices[1:2])]
    length = alone.audio.shape[1]
    assert torch.equal(together.audio[1, :length], alone.audio[0])
    assert torch.equal(together.time_mask[1, : num_frames(length)], alone.time_mask[0])


def test_the_time_mask_has_a_place_for_every_frame_and_hides_nothing_behind_a_row(batches):
    batch = batches(mask_time_prob=0.3, num_frames=num_frames)[ROWS]
    assert batch.time_mask.shape == (5, num_frames(batch.audio.shape[1]))
    assert batch.time_mask.dtype == torch.bool
    for row, length in zip(batch.time_mask, batch.num_samples.tolist(), strict=True):
        assert row.any()
        assert not row[num_frames(length) :].any()


def test_without_a_share_nothing_is_hidden(batches):
    assert batches(mask_time_prob=0.0, num_frames=num_frames)[ROWS].time_mask is None
    assert batches()[ROWS].time_mask is None


def test_epochs_cut_other_slices(batches):
    dataset = batches()
    assert dataset[ROWS].num_samples.tolist() != dataset[Rows(3, ROWS.indices)].num_samples.tolist()


def test_trimming_while_loading_cuts_from_what_is_left(batches):
    plain, trimming = batches(max_slice_s=60.0), batches(max_slice_s=60.0, trims=True)
    whole, trimmed = plain[ROWS], trimming[ROWS]
    for row, index in enumerate(ROWS.indices):
        audio = whole_audio(plain, index)
        first, behind = trim_bounds(audio)
        assert trimmed.num_samples[row] == behind - first < whole.num_samples[row] == len(audio)
        expected = audio[first:behind].copy()
        normalise(expected)
        assert np.array_equal(trimmed.audio[row, : behind - first].numpy(), expected)
    # Words are spread over the speech alone, and all of it was fed.
    assert torch.equal(trimmed.token_ids, whole.token_ids)


def flac_of(dataset: SpeechTextBatches) -> tuple[Path, Rows]:
    return dataset.utterances.path(4), Rows(0, np.array([1, 4]))


@pytest.mark.parametrize("trims", [False, True])
def test_another_sample_rate_is_refused_by_name(batches, own_tree, trims):
    dataset = batches(own_tree, trims=trims)
    path, rows = flac_of(dataset)
    soundfile.write(path, np.zeros(90_000, dtype=np.int16), 22_050)
    with pytest.raises(DatasetError, match=rf"{path} has 1 channels at 22050 Hz; expected one at 16000 Hz: .*seatrial prepare librispeech"):
        dataset[rows]


def test_two_channels_are_refused_by_name(batches, own_tree):
    dataset = batches(own_tree)
    path, rows = flac_of(dataset)
    soundfile.write(path, np.zeros((90_000, 2), dtype=np.int16), 16_000)
    with pytest.raises(DatasetError, match=f"{path} has 2 channels"):
        dataset[rows]


@pytest.mark.parametrize("trims", [False, True])
@pytest.mark.parametrize("content", [None, b"", b"fLaC", b"rubbish" * 1000])
def test_a_file_that_cannot_be_read_is_named(batches, own_tree, content, trims):
    dataset = batches(own_tree, trims=trims)
    path, rows = flac_of(dataset)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DatasetError, match=rf"{path} cannot be read \(.*\); training leaves no data out by itself: .*rejected.tsv"):
        dataset[rows]


def test_a_file_cut_short_is_named(batches, own_tree):
    dataset = batches(own_tree, max_slice_s=60.0)
    path, rows = flac_of(dataset)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DatasetError, match=f"{path} cannot be read"):
        dataset[rows]


def test_a_flipped_bit_in_the_audio_is_named(batches, own_tree):
    dataset = batches(own_tree, max_slice_s=60.0)
    path, rows = flac_of(dataset)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=f"{path} cannot be read"):
        dataset[rows]


def test_a_manifest_that_does_not_fit_the_file_is_noticed(batches, own_tree):
    dataset = batches(own_tree)
    path, rows = flac_of(dataset)
    soundfile.write(path, np.zeros(90_000, dtype=np.int16), 16_000)
    with pytest.raises(DatasetError, match=rf"{path} has 90000 samples, and dataset_manifest_path says \d+"):
        dataset[rows]


def test_a_file_too_short_for_a_frame_is_named(batches, own_tree):
    dataset = batches(own_tree, dataset_manifest_path=None)
    path, rows = flac_of(dataset)
    soundfile.write(path, np.zeros(399, dtype=np.int16), 16_000)
    with pytest.raises(DatasetError, match=f"{path} has 399 samples, and the speech encoder makes no frame of less than 400"):
        dataset[rows]


def test_a_file_of_silence_has_nothing_left_after_trimming(batches, own_tree):
    dataset = batches(own_tree, trims=True)
    path, rows = flac_of(dataset)
    soundfile.write(path, np.zeros(200, dtype=np.int16), 16_000)
    with pytest.raises(DatasetError, match=f"{path} has speech of .* samples"):
        dataset[rows]
