"""A small learnable synthetic tree of LibriSpeech's shape: FLAC files, transcripts, manifest and prepare.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seatrial.core.files import BY_UMASK, remove_partial_files, write_text
from seatrial_workloads.librispeech.audio import write_flac
from seatrial_workloads.librispeech.pool import CrashedTask, Pool
from seatrial_workloads.librispeech.progress import progress
from seatrial_workloads.librispeech.tree import (
    MIN_UTTERANCES,
    SAMPLE_RATE,
    PrepareError,
    SyntheticSpec,
    TreePaths,
    describe_differences,
    locked_folder,
    read_record,
    write_error,
    write_manifest,
    write_record,
)

MEAN_S = 6.0
SPLITS = ("train-clean-100", "dev-clean", "test-clean")
UTTERANCES_PER_CHAPTER = 10
CHAPTERS_PER_SPEAKER = 2
# Reading speed: about 14 letters a second.
LETTER_SAMPLES = 1_150
WORDS_OF_ONE_UTTERANCE = 6
# Range of utterance lengths and silence at the ends, as in LibriSpeech: 2 to 16 s with a mean of 6.
LENGTH_RATIOS = (1 / 3, 8 / 3)
SILENCE_S = (0.1, 0.5)
# Full scale is 1. The hiss makes the files as hard to compress as speech; silence is 60 dB below the words.
LOUDNESS = (0.08, 0.3)
HISS, HUM = 6e-3, 3e-5
FADE_SAMPLES = 160

ALL_WORDS = """
ABLE ANCHOR APRIL AUTUMN BASKET BELL BLUE BRIDGE CANDLE CLOUD COPPER DANCE DEEP DOOR EAGLE EARLY
EIGHT FEATHER FIELD FIRE FLUTE GARDEN GLASS GREEN HARBOUR HILL HONEY ISLAND IVORY JOURNEY KETTLE LANTERN
LEMON LIGHT MARBLE MEADOW MOON NINE NORTH OCEAN ORCHARD PAPER PILOT QUIET RAIN RIVER ROAD SAIL
SEVEN SILVER SNOW STONE SUMMER TABLE THUNDER TIMBER VALLEY VIOLET WATER WHEEL WIND WINTER WONDER YELLOW
"""
WORDS = ALL_WORDS.split()
# Frequencies of the two tones, in the range of the first two formants of vowels.
LOW_HZ = np.geomspace(260.0, 900.0, 8)
HIGH_HZ = np.geomspace(1_150.0, 3_500.0, 8)


@dataclass(frozen=True)
class Utterance:
    """An utterance's place in the tree; its number seeds its content."""

    number: int
    split: str
    speaker: int
    chapter: int
    place: int

    @property
    def id(self) -> str:
        return f"{self.speaker}-{self.chapter}-{self.place:04d}"

    @property
    def chapter_folder(self) -> str:
        return f"{self.split}/{self.speaker}/{self.chapter}"

    @property
    def rel_path(self) -> str:
        return f"{self.chapter_folder}/{self.id}.flac"


def write_tree(root: Path, num_utterances: int, seed: int = 0, mean_s: float = MEAN_S) -> Path:
    """Write the tree at `root` in this process and return its manifest."""
    lengths = {utterance.rel_path: write_utterance(root, utterance, seed, mean_s) for utterance in utterances(num_utterances)}
    write_transcripts(root, num_utterances, seed, mean_s)
    manifest = root / "manifest.tsv"
    write_manifest(manifest, lengths, SAMPLE_RATE)
    return manifest


def utterances(count: int) -> Iterator[Utterance]:
    """Every utterance of a tree: most for training, a few of other speakers for validation and test."""
    if count < MIN_UTTERANCES:
        raise ValueError(f"{count} utterances requested; a tree needs {MIN_UTTERANCES} or more, one per split")
    held_out = max(1, min(max(4, count // 10), count // 4))
    number = 0
    for index, (split, size) in enumerate(zip(SPLITS, (count - 2 * held_out, held_out, held_out), strict=True)):
        for place in range(size):
            chapter = place // UTTERANCES_PER_CHAPTER
            # Far apart, so that splits share no speaker or chapter.
            yield Utterance(
                number=number,
                split=split,
                speaker=index * 100_000 + 201 + chapter // CHAPTERS_PER_SPEAKER,
                chapter=index * 100_000 + 300 + chapter,
                place=place % UTTERANCES_PER_CHAPTER,
            )
            number += 1


def write_utterance(root: Path, utterance: Utterance, seed: int, mean_s: float = MEAN_S) -> int:
    """Write its FLAC file and return the number of samples."""
    path = root / utterance.rel_path
    path.parent.mkdir(parents=True, exist_ok=True)
    audio = synthesize_audio(utterance, seed, mean_s)
    write_flac(path, audio, SAMPLE_RATE)
    return len(audio)


def write_transcripts(root: Path, num_utterances: int, seed: int, mean_s: float = MEAN_S) -> None:
    """Write one transcript for each chapter."""
    chapters: dict[Path, list[str]] = {}
    for utterance in utterances(num_utterances):
        path = root / utterance.chapter_folder / f"{utterance.speaker}-{utterance.chapter}.trans.txt"
        chapters.setdefault(path, []).append(f"{utterance.id} {text_of(utterance, seed, mean_s)}\n")
    for path, lines in chapters.items():
        write_text(path, "".join(lines), BY_UMASK)


def text_of(utterance: Utterance, seed: int, mean_s: float = MEAN_S) -> str:
    """Transcript: random words from a small set, never the same twice in a row, up to a random length."""
    random = np.random.default_rng([seed, utterance.number, 0])
    ratio = float(np.clip(random.lognormal(-0.125, 0.5), *LENGTH_RATIOS))
    letters = round(ratio * mean_s * SAMPLE_RATE / LETTER_SAMPLES)
    vocabulary = random.choice(len(WORDS), WORDS_OF_ONE_UTTERANCE, replace=False)
    indices = [int(random.integers(WORDS_OF_ONE_UTTERANCE))]
    text = str(WORDS[vocabulary[indices[0]]])
    while len(text) < letters:
        indices.append((indices[-1] + 1 + int(random.integers(WORDS_OF_ONE_UTTERANCE - 1))) % WORDS_OF_ONE_UTTERANCE)
        text = f"{text} {WORDS[vocabulary[indices[-1]]]}"
    return text


def synthesize_audio(utterance: Utterance, seed: int, mean_s: float = MEAN_S) -> np.ndarray:
    """16-bit samples: silence, the words, silence."""
    random = np.random.default_rng([seed, utterance.number, 1])
    loudness = random.uniform(*LOUDNESS)
    # Speakers differ in pitch much less than words do.
    pitch = np.random.default_rng([seed, utterance.speaker, 2]).uniform(0.97, 1.03)
    words = np.concatenate([word_sound(word, pitch) for word in text_of(utterance, seed, mean_s).split(" ")])[:-LETTER_SAMPLES]
    words += HISS * random.standard_normal(len(words), dtype=np.float32)
    before, after = (int(random.uniform(*SILENCE_S) * SAMPLE_RATE) for _ in range(2))
    audio = np.pad(loudness * words, (before, after)) + HUM * random.standard_normal(before + len(words) + after, dtype=np.float32)
    samples: np.ndarray = np.rint(audio * 32767).astype(np.int16)
    return samples


def word_sound(word: str, pitch: float) -> np.ndarray:
    """The word's two tones for the duration of its letters, then silence for one letter."""
    number = WORDS.index(word)
    seconds = np.arange(len(word) * LETTER_SAMPLES) / SAMPLE_RATE
    low, high = (np.sin(2 * np.pi * pitch * hz * seconds) for hz in (LOW_HZ[number % 8], HIGH_HZ[number // 8]))
    sound = np.zeros((len(word) + 1) * LETTER_SAMPLES, dtype=np.float32)
    sound[: len(seconds)] = 0.6 * low + 0.4 * high
    fade = np.linspace(0.0, 1.0, FADE_SAMPLES, dtype=np.float32)
    sound[:FADE_SAMPLES] *= fade
    sound[len(seconds) - FADE_SAMPLES : len(seconds)] *= fade[::-1]
    return sound


@dataclass(frozen=True)
class WriteOne:
    """A worker's task: write one utterance; the number of samples, or the disk's error."""

    root: Path
    seed: int

    def __call__(self, utterance: Utterance) -> int | OSError:
        try:
            return write_utterance(self.root, utterance, self.seed)
        except OSError as error:
            return error


def create_synthetic_tree(
    root: Path, manifest_path: Path, spec: SyntheticSpec, *, num_workers: int = 1, log_every: int = 500, quiet: bool = False
) -> int:
    """Write every file, also those of an earlier attempt; returns the number of utterances."""
    paths = TreePaths(root)
    with locked_folder(root):
        _check_record(paths, spec)
        remove_partial_files(root, foreign=False)
        manifest_path.unlink(missing_ok=True)
        lengths = {}
        with (
            progress("creating", spec.num_utterances, log_every, quiet=quiet) as advance,
            Pool(WriteOne(root, spec.seed), num_workers) as pool,
        ):
            for utterance, length in pool.results(list(utterances(spec.num_utterances))):
                lengths[utterance.rel_path] = _checked(root, length)
                advance("")
        write_transcripts(root, spec.num_utterances, spec.seed)
        manifest_path.parent.mkdir(parents=True, exist_ok=True)
        write_manifest(manifest_path, lengths, SAMPLE_RATE)
    return len(lengths)


def _checked(root: Path, length: int | OSError | CrashedTask) -> int:
    if isinstance(length, OSError):
        raise write_error(root, length.errno, str(length))
    if isinstance(length, CrashedTask):
        raise PrepareError(f"a worker process {length.reason}, twice: run the same command again")
    return length


def _check_record(paths: TreePaths, spec: SyntheticSpec) -> None:
    """Accept only an empty folder or an earlier attempt at the same tree, so that no real data is mixed with synthetic."""
    existing = read_record(paths.record)
    if existing == spec.record:
        return
    if existing is not None:
        raise PrepareError(f"{paths.root} has another tree ({describe_differences(existing, spec.record)}): choose another --output-root")
    if any(not path.name.startswith(".") for path in paths.root.iterdir()):
        raise PrepareError(f"{paths.root} is not empty: choose another --output-root for the synthetic tree")
    write_record(paths.record, spec.record)
