"""Documents to train on: files in FineWeb-Edu's layout, or the dataset itself, streamed. In: a folder or the hub. Out: texts of one rank.

Files (.jsonl, or .parquet, with a column `text`) are cut into blocks, and rank r of n reads blocks r, r + n, …: ranges of bytes of a
.jsonl, ranges of rows of a .parquet. No rank reads another's blocks; with fewer blocks than ranks each reads all, and keeps every n-th
document. A stream is divided by `datasets` (whole files where their number is a multiple of the ranks, else every n-th document, for which
each rank reads all).

One document in VALIDATION_SHARE, by a hash of its text, is for validation and never trained on.

Texts become token ids by bytes, or by a GPT-2-style tokenizer from a local folder or the hub. Every document begins with the separator, so
that the first token of the text is predicted from it and the last token predicts it. For bytes it is 0, which no UTF-8 text of natural
language contains; for GPT-2 it is <|endoftext|>.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seatrial_workloads.common.errors import StartupError, summarize_error
from seatrial_workloads.sparse_lm.settings import BYTE_VOCABULARY

VALIDATION_SHARE = 50
BLOCK_BYTES = 1 << 20
BLOCK_ROWS = 1000
TEXT = "text"
HUB_DATASET, HUB_SUBSET = "HuggingFaceFW/fineweb-edu", "sample-10BT"


def is_validation(text: str) -> bool:
    """Whether a document is for validation, by its text alone."""
    return zlib.crc32(text.encode("utf-8", errors="replace")) % VALIDATION_SHARE == 0


class Source(Protocol):
    """Documents in a fixed order."""

    def read(self, rank: int, world_size: int, skip: int = 0) -> Iterator[str]:
        """All documents of one rank, once, without the first `skip`."""
        ...


@dataclass(frozen=True)
class Block:
    """Bytes of a .jsonl or rows of a .parquet."""

    path: Path
    start: int
    stop: int


class LocalFiles:
    """A folder of files, or one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = sorted(found for found in path.rglob("*") if found.suffix in READERS) if path.is_dir() else [path]
        if not path.exists() or not files or any(found.suffix not in READERS for found in files):
            expected = f"expected .jsonl or .parquet files with a column '{TEXT}'"
            raise StartupError(
                f"local_path is {path}, and {'it has no such file' if path.exists() else 'there is no such path'}: {expected}"
            )
        self.blocks = [block for found in files for block in (jsonl_blocks if found.suffix == ".jsonl" else parquet_blocks)(found)]

    def read(self, rank: int, world_size: int, skip: int = 0) -> Iterator[str]:
        if len(self.blocks) < world_size:
            # Too little text for a block each: documents are shared instead.
            return itertools.islice(self._texts(self.blocks), rank + skip * world_size, None, world_size)
        return itertools.islice(self._texts(self.blocks[rank::world_size]), skip, None)

    def _texts(self, blocks: Sequence[Block]) -> Iterator[str]:
        for block in blocks:
            yield from READERS[block.path.suffix](block)


def jsonl_blocks(path: Path) -> list[Block]:
    size = path.stat().st_size
    return [Block(path, start, min(start + BLOCK_BYTES, size)) for start in range(0, size, BLOCK_BYTES)]


def read_jsonl(block: Block) -> Iterator[str]:
    """Texts of the lines that begin in the block."""
    with open(block.path, "rb") as source:
        if block.start:
            # Skip to the first line that begins here; from one byte earlier, for a line that begins exactly at the start.
            source.seek(block.start - 1)
            source.readline()
        while source.tell() < block.stop and (line := source.readline()):
            if line.strip():
                yield _text_of(line, block.path)


def _text_of(line: bytes, path: Path) -> str:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise StartupError(f"{path} has a line that is not JSON ({error}): expected one object with '{TEXT}' a line") from error
    text = document.get(TEXT) if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise StartupError(f"{path} has a line without '{TEXT}': expected one object with '{TEXT}' a line")
    return text


def parquet_blocks(path: Path) -> list[Block]:
    polars = _polars(path)
    # From the file's footer; no row is read.
    scan = polars.scan_parquet(path, glob=False)
    if TEXT not in scan.collect_schema().names():
        raise StartupError(f"{path} has no column '{TEXT}': its columns are {', '.join(scan.collect_schema().names())}")
    rows = scan.select(polars.len()).collect().item()
    return [Block(path, start, min(start + BLOCK_ROWS, rows)) for start in range(0, rows, BLOCK_ROWS)]


def read_parquet(block: Block) -> Iterator[str]:
    rows = _polars(block.path).scan_parquet(block.path, glob=False).select(TEXT).slice(block.start, block.stop - block.start).collect()
    yield from (text for text in rows[TEXT] if text is not None)


def _polars(path: Path) -> Any:
    if importlib.util.find_spec("polars") is None:
        raise StartupError(f"{path} is parquet, which needs the package polars: install it (pip install polars), or convert it to .jsonl")
    import polars

    return polars


READERS = {".jsonl": read_jsonl, ".parquet": read_parquet}


class HubStream:
    """FineWeb-Edu from the hub."""

    def __init__(self) -> None:
        if importlib.util.find_spec("datasets") is None:
            raise StartupError(
                "dataset is 'fineweb_edu', which needs the package datasets: install it (pip install datasets), "
                "or use dataset=fineweb_edu_local with local_path"
            )
        import datasets

        try:
            with quiet_hub():
                self._stream = datasets.load_dataset(HUB_DATASET, HUB_SUBSET, split="train", streaming=True)
        # Offline it may be a connection error, a missing cache or a missing file, by version.
        except Exception as error:
            raise StartupError(f"{HUB_DATASET} was not reached ({summarize_error(error)}): {OFFLINE_ADVICE}") from error

    def read(self, rank: int, world_size: int, skip: int = 0) -> Iterator[str]:
        from datasets.distributed import split_dataset_by_node

        own = split_dataset_by_node(self._stream, rank=rank, world_size=world_size) if world_size > 1 else self._stream
        # Not the stream's own skip, which counts the documents of all ranks.
        for document in itertools.islice(own, skip, None):
            yield document[TEXT]


@contextlib.contextmanager
def quiet_hub() -> Iterator[None]:
    """Silence the hub client's lines about retries: the final error reports it. HF_HUB_VERBOSITY set by the user is kept."""
    from huggingface_hub.utils import logging

    before = logging.get_verbosity()
    if not os.environ.get("HF_HUB_VERBOSITY"):
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


OFFLINE_ADVICE = "use dataset=fineweb_edu_local with local_path (--dataset fineweb_edu_local --local-path FOLDER)"


SEPARATOR_BYTE = 0
END_OF_TEXT = "<|endoftext|>"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
TOKENIZER_ADVICE = "give a local folder that has a tokenizer.json as data.tokenizer, or use byte"


class Tokenizer(Protocol):
    """What the loader needs of a tokenizer."""

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
    """A tokenizer of transformers."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        # A tokenizer.json alone does not name the token that ends a text.
        separator = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.get_vocab().get(END_OF_TEXT)
        if separator is None:
            raise StartupError(
                f"the tokenizer '{name}' has neither {END_OF_TEXT} nor an eos_token to separate documents by: "
                "name one as eos_token in its tokenizer_config.json, or use byte"
            )
        self._tokenizer = tokenizer
        # len counts added tokens, which vocab_size leaves out.
        self.vocab_size: int = len(tokenizer)
        self.separator: int = separator

    def encode(self, text: str) -> list[int]:
        # A text may exceed the length of the tokenizer's own model: the loader cuts rows.
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
    folder = Path(name)
    if folder.is_file():
        raise StartupError(f"the tokenizer '{name}' is a file: give the folder that has it")
    try:
        with quiet_hub():
            return HubTokenizer(_from_folder(folder) if folder.is_dir() else _from_hub(name), name)
    except StartupError:
        raise
    # The parser may raise anything for a damaged tokenizer.json.
    except Exception as error:
        why = "" if folder.is_dir() else "there is no such folder here, and neither the cache nor the hub gave it; "
        raise StartupError(f"the tokenizer '{name}' cannot be loaded ({summarize_error(error)}): {why}{TOKENIZER_ADVICE}") from error


def _from_folder(folder: Path) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if (folder / TOKENIZER_CONFIG).exists() or not (folder / TOKENIZER).exists():
        if not any((folder / name).exists() for name in (TOKENIZER, TOKENIZER_CONFIG, "vocab.json")):
            raise StartupError(f"the tokenizer folder '{folder}' has no {TOKENIZER}: {TOKENIZER_ADVICE}")
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    # It is complete by itself; tokenizer_config.json would only name the class that wraps it.
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER))


def _from_hub(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)
