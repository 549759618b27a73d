"""The synthetic tree: LibriSpeech's shape, the same bytes each time, and sound that follows the words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seatrial_workloads.librispeech import synthetic
from seatrial_workloads.librispeech.flac import read_flac
from seatrial_workloads.librispeech.manifest import read_manifest
from seatrial_workloads.librispeech.trim import trim_bounds
from seatrial_workloads.librispeech.verify import problems_of_tree
from tests.workloads.librispeech.trees import bytes_of, prepare

MEAN_S = 1.5


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.make_tree(tmp_path_factory.mktemp("tree"), 40, seed=3, mean_s=MEAN_S).parent


def test_it_is_what_its_manifest_says(tree: Path) -> None:
    problems, rows = problems_of_tree(tree, tree / "manifest.tsv", 16_000, quiet=True)
    assert (problems, rows) == ([], 40)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(tree: Path, tmp_path: Path) -> None:
    synthetic.make_tree(tmp_path / "same", 40, seed=3, mean_s=MEAN_S)
    synthetic.make_tree(tmp_path / "other", 40, seed=4, mean_s=MEAN_S)
    assert bytes_of(tmp_path / "same") == bytes_of(tree)
    assert bytes_of(tmp_path / "other").keys() == bytes_of(tree).keys()
    assert not any(data == bytes_of(tree)[name] for name, data in bytes_of(tmp_path / "other").items())


@pytest.mark.parametrize(("count", "held_out"), [(3, 1), (8, 2), (20, 4), (100, 10)])
def test_most_is_to_train_on_and_no_speaker_is_in_two_splits(count: int, held_out: int) -> None:
    made = list(synthetic.utterances(count))
    sizes = {split: sum(one.split == split for one in made) for split in synthetic.SPLITS}
    assert sizes == {"train-clean-100": count - 2 * held_out, "dev-clean": held_out, "test-clean": held_out}
    assert len({one.id for one in made}) == len({one.number for one in made}) == count
    assert len({(one.split, one.speaker) for one in made}) == len({one.speaker for one in made})


def test_too_few_for_three_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="3 or more"):
        list(synthetic.utterances(2))


def test_lengths_are_spread_around_the_mean() -> None:
    texts = [synthetic.text_of(one, 0) for one in synthetic.utterances(400)]
    seconds = np.array([len(text) * synthetic.LETTER_SAMPLES / 16_000 for text in texts])
    assert 5.4 < seconds.mean() < 6.6 and seconds.min() >= 1.9 and seconds.max() < 17


def test_silence_at_both_ends_is_cut(tree: Path) -> None:
    for row in read_manifest(tree / "manifest.tsv"):
        audio, _ = read_flac(tree / row.rel_path)
        start, end = trim_bounds(audio)
        assert 0 < start < end < len(audio)


def test_words_can_be_told_from_their_sound(tree: Path) -> None:
    """Cut the audio where the letters say a word lies, look for its two tones, and get the word back."""
    for utterance in list(synthetic.utterances(40))[:8]:
        audio, _ = read_flac(tree / utterance.rel_path)
        text = synthetic.text_of(utterance, 3, MEAN_S)
        speech = audio[len(audio) - len(text) * synthetic.LETTER_SAMPLES - silence_after(utterance) :]
        assert [heard(speech, place, word) for place, word in placed(text)] == text.split(" ")


def silence_after(utterance: synthetic.Utterance) -> int:
    spoken = synthetic.spoken(utterance, 3, MEAN_S)
    loud = np.flatnonzero(np.abs(spoken) > 100)
    return len(spoken) - int(loud[-1]) - 1


def placed(text: str) -> list[tuple[int, str]]:
    places = np.cumsum([0, *(len(word) + 1 for word in text.split(" "))])
    return [(int(place), word) for place, word in zip(places[:-1], text.split(" "), strict=True)]


def heard(speech: np.ndarray, place: int, word: str) -> str:
    sound = speech[place * synthetic.LETTER_SAMPLES :][: len(word) * synthetic.LETTER_SAMPLES]
    spectrum, bins = np.abs(np.fft.rfft(sound, 16_000)), np.arange(8_001)
    low = bins[:1_000][np.argmax(spectrum[:1_000])]
    high = bins[1_000:][np.argmax(spectrum[1_000:])]
    number = np.argmin(np.abs(synthetic.LOW_HZ - low)) + 8 * np.argmin(np.abs(synthetic.HIGH_HZ - high))
    return synthetic.WORDS[number]


def test_the_program_makes_the_same_with_one_process_and_with_two(tmp_path: Path) -> None:
    prepare("--synthetic", "30", "--seed", "5", "--output-root", tmp_path / "one", "--quiet")
    prepare("--synthetic", "30", "--seed", "5", "--output-root", tmp_path / "two", "--workers", "2", "--quiet")
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    manifest = synthetic.make_tree(tmp_path / "function", 30, seed=5)
    assert manifest.read_bytes() == (tmp_path / "one" / "manifest.tsv").read_bytes()
    said = prepare("--synthetic", "31", "--seed", "5", "--output-root", tmp_path / "one", code=1)
    assert "num_utterances was 30 and would be 31" in said
    (tmp_path / "one" / "manifest.tsv").unlink()
    prepare("--synthetic", "30", "--seed", "5", "--output-root", tmp_path / "one")
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert "is not empty" in prepare("--synthetic", "3", "--output-root", tmp_path, code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
