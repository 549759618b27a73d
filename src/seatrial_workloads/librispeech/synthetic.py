"""A small tree of LibriSpeech's shape that can be learnt from. In: how many utterances, a seed. Out: FLAC files, transcripts, manifest.

    root/train-clean-100/201/300/201-300-0000.flac      16 kHz, mono, 16 bit, a little silence at both ends
    root/train-clean-100/201/300/201-300.trans.txt      201-300-0000 HARBOUR WIND NINE …
    root/manifest.tsv

Every word is a sound of its own, two tones that no other word has together, and every letter takes the same time. So a slice of the audio
says what the same slice of the text says, and a speech–text model has something to learn. An utterance keeps to a handful of words:
slices of it are like each other and unlike those of others. Each utterance is made from the seed and its own number, so the bytes are the
same in whatever order and by however many processes they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seatrial.files import BY_UMASK, write_text
from seatrial_workloads.librispeech.flac import write_flac
from seatrial_workloads.librispeech.manifest import SAMPLE_RATE, write_manifest
from seatrial_workloads.librispeech.record import FEWEST_UTTERANCES

MEAN_S = 6.0
SPLITS = ("train-clean-100", "dev-clean", "test-clean")
UTTERANCES_PER_CHAPTER = 10
CHAPTERS_PER_SPEAKER = 2
# As people read aloud: about 14 letters a second.
LETTER_SAMPLES = 1_150
WORDS_OF_ONE_UTTERANCE = 6
# Shortest and longest utterance and edge of silence, as LibriSpeech has them: utterances of 2 to 16 s where the mean is 6.
LENGTH_RATIOS = (1 / 3, 8 / 3)
SILENCE_S = (0.1, 0.5)
# Full scale is 1. The hiss under the words makes the files as hard to compress as speech is; that of the silence is 60 dB below the words.
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
# Where the two tones lie: eight places for each, as far apart as the first two formants of vowels.
LOW_HZ = np.geomspace(260.0, 900.0, 8)
HIGH_HZ = np.geomspace(1_150.0, 3_500.0, 8)


@dataclass(frozen=True)
class Utterance:
    """Where an utterance stands in the tree; its number is the seed of what it says."""

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


def make_tree(root: Path, num_utterances: int, seed: int = 0, mean_s: float = MEAN_S) -> Path:
    """Make the tree at `root` and return its manifest."""
    lengths = {utterance.rel_path: write_utterance(root, utterance, seed, mean_s) for utterance in utterances(num_utterances)}
    write_transcripts(root, num_utterances, seed, mean_s)
    manifest = root / "manifest.tsv"
    write_manifest(manifest, lengths, SAMPLE_RATE)
    return manifest


def utterances(count: int) -> Iterator[Utterance]:
    """Every utterance of a tree: most of them to train on, a few of other speakers to validate and test with."""
    if count < FEWEST_UTTERANCES:
        raise ValueError(f"{count} utterances were asked for; a tree has {FEWEST_UTTERANCES} or more, one for each of its splits")
    held_out = max(1, min(max(4, count // 10), count // 4))
    number = 0
    for index, (split, size) in enumerate(zip(SPLITS, (count - 2 * held_out, held_out, held_out), strict=True)):
        for place in range(size):
            chapter = place // UTTERANCES_PER_CHAPTER
            # Far apart, so that speakers and chapters of one split are never those of another.
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
    audio = spoken(utterance, seed, mean_s)
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
    """What is said: words from a handful of its own, never the same twice running, until the length it has drawn is full."""
    random = np.random.default_rng([seed, utterance.number, 0])
    ratio = float(np.clip(random.lognormal(-0.125, 0.5), *LENGTH_RATIOS))
    letters = round(ratio * mean_s * SAMPLE_RATE / LETTER_SAMPLES)
    handful = random.choice(len(WORDS), WORDS_OF_ONE_UTTERANCE, replace=False)
    said = [int(random.integers(WORDS_OF_ONE_UTTERANCE))]
    text = str(WORDS[handful[said[0]]])
    while len(text) < letters:
        said.append((said[-1] + 1 + int(random.integers(WORDS_OF_ONE_UTTERANCE - 1))) % WORDS_OF_ONE_UTTERANCE)
        text = f"{text} {WORDS[handful[said[-1]]]}"
    return text


def spoken(utterance: Utterance, seed: int, mean_s: float = MEAN_S) -> np.ndarray:
    """The audio as 16 bit samples: silence, the words, silence."""
    random = np.random.default_rng([seed, utterance.number, 1])
    loudness = random.uniform(*LOUDNESS)
    # A speaker is a little higher or lower than others, much less than words are apart.
    pitch = np.random.default_rng([seed, utterance.speaker, 2]).uniform(0.97, 1.03)
    words = np.concatenate([word_sound(word, pitch) for word in text_of(utterance, seed, mean_s).split(" ")])[:-LETTER_SAMPLES]
    words += HISS * random.standard_normal(len(words), dtype=np.float32)
    before, after = (int(random.uniform(*SILENCE_S) * SAMPLE_RATE) for _ in range(2))
    audio = np.pad(loudness * words, (before, after)) + HUM * random.standard_normal(before + len(words) + after, dtype=np.float32)
    samples: np.ndarray = np.rint(audio * 32767).astype(np.int16)
    return samples


def word_sound(word: str, pitch: float) -> np.ndarray:
    """The word's two tones for as long as its letters take, then a gap of one letter."""
    number = WORDS.index(word)
    seconds = np.arange(len(word) * LETTER_SAMPLES) / SAMPLE_RATE
    low, high = (np.sin(2 * np.pi * pitch * hz * seconds) for hz in (LOW_HZ[number % 8], HIGH_HZ[number // 8]))
    sound = np.zeros((len(word) + 1) * LETTER_SAMPLES, dtype=np.float32)
    sound[: len(seconds)] = 0.6 * low + 0.4 * high
    fade = np.linspace(0.0, 1.0, FADE_SAMPLES, dtype=np.float32)
    sound[:FADE_SAMPLES] *= fade
    sound[len(seconds) - FADE_SAMPLES : len(seconds)] *= fade[::-1]
    return sound
