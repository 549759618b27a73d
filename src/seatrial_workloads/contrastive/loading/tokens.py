"""Words to numbers. In: the name of a text model, texts. Out: its tokenizer; token ids and mask of a batch.

A text model with weights brings its tokenizer along. `base` and `tiny` have random weights, so any vocabulary will do: theirs is made here,
the same everywhere, with nothing to download. It has the commonest English words and pieces of two and three letters for the rest, so that
a text gives about as many tokens as with BERT's own vocabulary, which is what the speed of the text encoder depends on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from string import ascii_lowercase, digits

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from seatrial_workloads.common.startup_error import StartupError
from seatrial_workloads.contrastive.loading.common_words import COMMON_WORDS
from seatrial_workloads.contrastive.settings import CONFIG_NAMES

LONGEST_TOKENS = 512
# Few widths, so that a compiled or captured text encoder meets few shapes.
WIDTH_MULTIPLE = 8
# [PAD] must stay 0, as in BERT.
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
VOWELS = "aeiouy"
PUNCTUATION = "'.,;:!?-"


def load_tokenizer(text_model: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id, or our own for `base` and `tiny`."""
    # Before the first use: a tokenizer that has worked with threads warns when it finds itself in a forked worker.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return small_tokenizer() if text_model in CONFIG_NAMES else _pretrained(text_model)


def tokenise(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Ids and mask, both (rows, tokens) int64. Lower case: a vocabulary with both cases spells LibriSpeech's capitals letter by letter."""
    encoded = tokenizer(
        [text.lower() for text in texts],
        padding="longest",
        pad_to_multiple_of=WIDTH_MULTIPLE,
        truncation=True,
        max_length=LONGEST_TOKENS,
        return_token_type_ids=False,
        return_tensors="pt",
    )
    return encoded["input_ids"], encoded["attention_mask"]


def small_tokenizer() -> PreTrainedTokenizerFast:
    """WordPiece as BERT has it, over a vocabulary made here in some milliseconds."""
    ids = {piece: number for number, piece in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [SPECIAL["cls_token"], SPECIAL["sep_token"]]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{ends[0]} $A {ends[1]}", special_tokens=[(end, ids[end]) for end in ends]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LONGEST_TOKENS, **SPECIAL)


def vocabulary() -> list[str]:
    """Special tokens, then what a word may start with, then what may follow in it; no piece stands twice."""
    consonants = [letter for letter in ascii_lowercase if letter not in VOWELS]
    pairs = [first + second for first in ascii_lowercase for second in ascii_lowercase]
    syllables = [first + vowel + last for first in consonants for vowel in VOWELS for last in consonants]
    pieces = [*ascii_lowercase, *digits, *pairs, *syllables]
    beginnings = [*PUNCTUATION, *pieces, *COMMON_WORDS]
    return list(dict.fromkeys([*SPECIAL.values(), *beginnings, *(f"##{piece}" for piece in pieces)]))


def _pretrained(text_model: str) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(text_model)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise StartupError(
            f"text_model '{text_model}' gives no tokenizer ({reason}): expected a folder with tokenizer.json or vocab.txt, a hub id that "
            f"can be reached, or one of {', '.join(CONFIG_NAMES)}"
        ) from error
    if tokenizer.pad_token_id is None or tokenizer.cls_token_id is None:
        raise StartupError(f"text_model '{text_model}' has a tokenizer without [PAD] or [CLS]; expected a BERT")
    return tokenizer
