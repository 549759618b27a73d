"""The synthetic tree."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from seatrial_workloads.librispeech import synthetic
from seatrial_workloads.librispeech.audio import read_flac, trim_bounds
from seatrial_workloads.librispeech.pool import CrashedTask
from seatrial_workloads.librispeech.synthetic import WriteOne, create_synthetic_tree, utterances
from seatrial_workloads.librispeech.tree import PrepareError, SyntheticSpec, read_manifest
from seatrial_workloads.librispeech.verify import verify_tree
from tests.workloads.librispeech.trees import bytes_of, prepare

MEAN_S = 1.5


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write_tree(tmp_path_factory.mktemp("tree"), 40, seed=3, mean_s=MEAN_S).parent


def test_the_tree_matches_its_manifest(tree: Path) -> None:
    problems, rows = verify_tree(tree, tree / "manifest.tsv", 16_000, quiet=True)
    assert (problems, rows) == ([], 40)


def test_the_bytes_depend_on_the_seed_alone(tree: Path, tmp_path: Path) -> None:
    synthetic.write_tree(tmp_path / "same", 40, seed=3, mean_s=MEAN_S)
    synthetic.write_tree(tmp_path / "other", 40, seed=4, mean_s=MEAN_S)
    assert bytes_of(tmp_path / "same") == bytes_of(tree)
    assert bytes_of(tmp_path / "other").keys() == bytes_of(tree).keys()
    assert not any(data == bytes_of(tree)[name] for name, data in bytes_of(tmp_path / "other").items())


@pytest.mark.parametrize(("count", "held_out"), [(3, 1), (8, 2), (20, 4), (100, 10)])
def test_most_utterances_are_for_training_and_no_speaker_is_in_two_splits(count: int, held_out: int) -> None:
    created = list(synthetic.utterances(count))
    sizes = {split: sum(one.split == split for one in created) for split in synthetic.SPLITS}
    assert sizes == {"train-clean-100": count - 2 * held_out, "dev-clean": held_out, "test-clean": held_out}
    assert len({one.id for one in created}) == len({one.number for one in created}) == count
    assert len({(one.split, one.speaker) for one in created}) == len({one.speaker for one in created})


def test_too_few_for_three_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="3 or more"):
        list(synthetic.utterances(2))


def test_lengths_spread_around_the_mean() -> None:
    texts = [synthetic.text_of(one, 0) for one in synthetic.utterances(400)]
    seconds = np.array([len(text) * synthetic.LETTER_SAMPLES / 16_000 for text in texts])
    assert 5.4 < seconds.mean() < 6.6 and seconds.min() >= 1.9 and seconds.max() < 17


def test_there_is_silence_at_both_ends(tree: Path) -> None:
    for row in read_manifest(tree / "manifest.tsv"):
        audio, _ = read_flac(tree / row.rel_path)
        start, end = trim_bounds(audio)
        assert 0 < start < end < len(audio)


def test_words_can_be_recognised_by_their_tones(tree: Path) -> None:
    """Every letter has the same length: cut out each word, and find its two tones."""
    for utterance in list(synthetic.utterances(40))[:8]:
        audio, _ = read_flac(tree / utterance.rel_path)
        text = synthetic.text_of(utterance, 3, MEAN_S)
        speech = audio[len(audio) - len(text) * synthetic.LETTER_SAMPLES - silence_after(utterance) :]
        assert [heard(speech, place, word) for place, word in placed(text)] == text.split(" ")


def silence_after(utterance: synthetic.Utterance) -> int:
    samples = synthetic.synthesize_audio(utterance, 3, MEAN_S)
    loud = np.flatnonzero(np.abs(samples) > 100)
    return len(samples) - int(loud[-1]) - 1


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


def test_the_program_writes_the_same_with_one_worker_and_with_two(tmp_path: Path) -> None:
    prepare("--synthetic", "30", "--seed", "5", "--output-root", tmp_path / "one", "--quiet")
    prepare("--synthetic", "30", "--seed", "5", "--output-root", tmp_path / "two", "--workers", "2", "--quiet")
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    manifest = synthetic.write_tree(tmp_path / "function", 30, seed=5)
    assert manifest.read_bytes() == (tmp_path / "one" / "manifest.tsv").read_bytes()
    assert "num_utterances was 30 and would be 31" in prepare("--synthetic", "31", "--output-root", tmp_path / "one", code=1)
    (tmp_path / "one" / "manifest.tsv").unlink()
    prepare("--synthetic", "30", "--seed", "5", "--output-root", tmp_path / "one")
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")


SPEC = SyntheticSpec(num_utterances=3, seed=1)


def create(root: Path, spec: SyntheticSpec = SPEC) -> int:
    return create_synthetic_tree(root, root / "manifest.tsv", spec, quiet=True)


def test_the_same_command_restores_a_missing_file(tmp_path: Path) -> None:
    create(tmp_path)
    first = bytes_of(tmp_path)
    next(tmp_path.rglob("*.flac")).unlink()
    create(tmp_path)
    assert bytes_of(tmp_path) == first


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(PrepareError, match="is not empty"):
        create(tmp_path)
    assert bytes_of(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_worker_returns_the_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one = next(iter(utterances(3)))
    assert isinstance(WriteOne(tmp_path / "file", seed=1)(one), OSError)
    assert WriteOne(tmp_path, seed=1)(one) == WriteOne(tmp_path / "again", seed=1)(one)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (OSError(errno.ENOSPC, "no space"), "is full"),
        (CrashedTask("was killed by SIGKILL"), "a worker process was killed by SIGKILL, twice"),
    ],
)
def test_a_failed_worker_ends_the_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: OSError | CrashedTask, message: str
) -> None:
    monkeypatch.setattr(synthetic.Pool, "results", lambda self, tasks: iter([(tasks[0], result)]))
    with pytest.raises(PrepareError, match=message):
        create(tmp_path)


def test_file_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        create(tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"manifest.tsv", "prepare.json"} <= set(modes) and set(modes.values()) == {0o664}, modes
