"""Text to token ids: bytes, or a GPT-2-style tokenizer from a local folder or the hub.

Every document begins with the separator, so that the first token of the text is predicted from it and the last token predicts it. For
bytes it is 0, which no UTF-8 text of natural language contains; for GPT-2 it is <|endoftext|>.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Protocol

from seatrial_workloads.common.errors import StartupError, summarize_error
from seatrial_workloads.sparse_lm.settings import BYTE_VOCABULARY

SEPARATOR_BYTE = 0


class Tokenizer(Protocol):
    """What the loader needs of one."""

    vocab_size: int
    separator: int

    def encode(self, text: str) -> list[int]:
        """Ids of the text, without separators."""
        ...


class ByteTokenizer:
    """UTF-8 bytes."""

    vocab_size = BYTE_VOCABULARY
    separator = SEPARATOR_BYTE

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", errors="replace").replace(b"\0", b""))


class HubTokenizer:
    """One of transformers."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        if tokenizer.eos_token_id is None:
            raise StartupError(f"the tokenizer {name} has no end-of-text token to separate documents by: use a GPT-2-style one")
        self._tokenizer = tokenizer
        # len counts added tokens, which vocab_size leaves out.
        self.vocab_size: int = len(tokenizer)
        self.separator: int = tokenizer.eos_token_id

    def encode(self, text: str) -> list[int]:
        # Longer than the model it was made for is no problem here: rows are cut by the loader.
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids


def load_tokenizer(name: str) -> Tokenizer:
    """`byte`, a folder, or a name on the hub."""
    if name == "byte":
        return ByteTokenizer()
    if importlib.util.find_spec("transformers") is None:
        raise StartupError(
            f"tokenizer is '{name}', which needs the package transformers: install it (pip install transformers), or use byte"
        )
    from transformers import AutoTokenizer

    is_folder = Path(name).is_dir()
    try:
        return HubTokenizer(AutoTokenizer.from_pretrained(name, local_files_only=is_folder), name)
    except (OSError, ValueError) as error:
        raise StartupError(
            f"the tokenizer '{name}' cannot be loaded ({summarize_error(error)}): "
            "it is not cached and the hub was not reached, or the folder has no tokenizer.json; give a local folder as data.tokenizer"
        ) from error
