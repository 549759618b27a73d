"""The tokenised dataset. In: settings and a tokenizer. Out: rows of examples, the same on every rank, prepared by one process.

On disk: tokens.bin (int32 ids of all examples), examples.json (length and prompt length of each) and, with packing, rows.json. The folder's
name has the original procedure's form, `<dataset with _>_L<seq>_N<subset>`, and a key of everything that decides its content.
"""

from __future__ import annotations

import array
import hashlib
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from seatrial_workloads.common.errors import StartupError, first_line
from seatrial_workloads.common.prepare_once import content_key, file_hash, prepare_once
from seatrial_workloads.sft.packing import Example, num_learnt, pack
from seatrial_workloads.sft.settings import Settings, token_cache_dir
from seatrial_workloads.sft.sources import GENERATED, INSTEAD, data_files, is_saved_dataset
from seatrial_workloads.sft.text import FIELDS, TEMPLATE, generated_examples, prompt_of, response_of

TOKENS, EXAMPLES, ROWS = "tokens.bin", "examples.json", "rows.json"
HUB_SPLIT = "train"
REQUIRED = ("instruction", "output")
FORMAT = 1


class Rows(Dataset[list[Example]]):
    """Rows of examples: one each, or several that are packed. A row without a token to learn is left out: its loss would be 0 / 0."""

    def __init__(self, folder: Path, loss_on: str = "all") -> None:
        self.name = folder.name
        tokens = array.array("i")
        tokens.frombytes((folder / TOKENS).read_bytes())
        if sys.byteorder != "little":
            tokens.byteswap()
        stored = json.loads((folder / EXAMPLES).read_text(encoding="utf-8"))
        ends = list(itertools.accumulate(stored["lengths"]))
        self.examples = [
            Example(number, tokens[end - length : end], prompt)
            for number, (end, length, prompt) in enumerate(zip(ends, stored["lengths"], stored["prompts"], strict=True))
        ]
        packed = folder / ROWS
        rows: list[list[int]] = json.loads(packed.read_text()) if packed.exists() else [[number] for number in range(len(ends))]
        self.rows = [row for row in rows if any(num_learnt(self.examples[number], loss_on) for number in row)]
        self.num_left_out = len(rows) - len(self.rows)

    def describe(self, seq_len: int) -> str:
        """How long its examples are, and the share of its sequences that is not padding."""
        lengths = sorted(len(example.ids) for example in self.examples)
        share = sum(len(self.examples[number].ids) for row in self.rows for number in row) / (len(self.rows) * seq_len)
        left_out = f"; {self.num_left_out} more are left out, whose responses do not begin within it" if self.num_left_out else ""
        return (
            f"dataset: {len(lengths)} examples, {sum(lengths) / len(lengths):.0f} tokens on average (median {lengths[len(lengths) // 2]}, "
            f"90 % up to {lengths[len(lengths) * 9 // 10]}), {len(self.rows)} sequences of {seq_len}, {100 * share:.1f} % real tokens"
            f"{left_out}"
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> list[Example]:
        return [self.examples[number] for number in self.rows[index]]


def prepared_rows(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Rows:
    """Build the tokenised dataset once for all ranks and hosts, and load it."""
    source = describe_source(settings)
    parts = {
        "format": FORMAT,
        "source": source,
        "subset": settings.subset_size,
        "template": TEMPLATE,
        "tokenizer": tokenizer_fingerprint(tokenizer),
        "length": settings.seq_len,
        "eos": settings.learns_eos,
        "packing": settings.packing,
    }
    name = f"{settings.dataset.strip('/').replace('/', '_')[-80:]}_L{settings.seq_len}_N{settings.subset_size}-{content_key(parts)}"

    def build(folder: Path) -> None:
        write_tokenised(folder, settings, tokenizer, raw_examples(settings, source))

    rows = Rows(prepare_once(token_cache_dir(settings) / name, build), settings.loss_on)
    if not rows.rows:
        shortest = min(example.prompt_length for example in rows.examples)
        raise StartupError(
            f"nothing to learn: none of {len(rows.examples)} examples has a token of its response within seq_len={settings.seq_len} "
            f"(the prompts alone take {shortest} or more): use a larger seq_len, or loss_on=all"
        )
    return rows


def write_tokenised(folder: Path, settings: Settings, tokenizer: PreTrainedTokenizerBase, raw: Iterator[Mapping[str, Any]]) -> None:
    """Tokenise and write the files of a dataset."""
    tokens, lengths, prompts = array.array("i"), [], []
    for example in itertools.islice(raw, settings.subset_size):
        ids, prompt_length = encode(example, settings, tokenizer)
        tokens.extend(ids)
        lengths.append(len(ids))
        prompts.append(prompt_length)
    if not lengths:
        raise StartupError(f"dataset '{settings.dataset}' has no examples: expected the fields {', '.join(FIELDS)}")
    if sys.byteorder != "little":
        tokens.byteswap()
    (folder / TOKENS).write_bytes(tokens.tobytes())
    (folder / EXAMPLES).write_text(json.dumps({"lengths": lengths, "prompts": prompts}), encoding="utf-8")
    if settings.packing:
        (folder / ROWS).write_text(json.dumps(pack(lengths, settings.seq_len)), encoding="utf-8")


def encode(example: Mapping[str, Any], settings: Settings, tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], int]:
    """(ids, tokens of the prompt), cut at seq_len. An example that was cut has no end-of-text token to learn."""
    prompt = prompt_of(example)
    encoded = tokenizer(prompt + response_of(example), return_offsets_mapping=True, verbose=False)
    ids: list[int] = encoded["input_ids"]
    # A token that spans the border belongs to the response.
    prompt_length = sum(1 for begin, end in encoded["offset_mapping"] if end <= len(prompt) and (end > 0 or begin == end == 0))
    if settings.learns_eos and (not ids or ids[-1] != tokenizer.eos_token_id):
        ids = [*ids, tokenizer.eos_token_id]
    return ids[: settings.seq_len], min(prompt_length, settings.seq_len)


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of everything that decides ids."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    text = backend.to_str() if backend is not None else json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(f"{text}|{tokenizer.eos_token_id}|{tokenizer.bos_token_id}".encode()).hexdigest()


def describe_source(settings: Settings) -> dict[str, Any]:
    """What identifies the raw examples: their seed, the content of their files, or a commit of the hub."""
    path = Path(settings.dataset)
    if settings.dataset == GENERATED:
        return {"generated": settings.seed}
    if path.exists():
        files = [path] if path.is_file() else data_files(path)
        return {"files": {str(file.relative_to(path.parent)): file_hash(file) for file in files}}
    return {"hub": settings.dataset, "commit": hub_commit(settings.dataset)}


def hub_commit(name: str) -> str:
    """The dataset's commit on the hub now, or in its cache where the hub is out of reach."""
    from huggingface_hub import HfApi, constants

    try:
        return str(HfApi().dataset_info(name).sha)
    except Exception as error:
        cached = Path(constants.HF_HUB_CACHE) / f"datasets--{name.replace('/', '--')}" / "refs" / "main"
        if cached.is_file():
            return cached.read_text(encoding="ascii").strip()
        raise StartupError(
            f"dataset is '{name}', which is neither a local path nor a reachable hub id ({first_line(error)}): correct it, or {INSTEAD}"
        ) from error


def raw_examples(settings: Settings, source: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Examples with the fields instruction, input and output. StartupError with the place of one that cannot be used."""
    if settings.dataset == GENERATED:
        yield from generated_examples(settings.subset_size, settings.seed)
        return
    for place, example in _placed_examples(settings.dataset, source):
        if not isinstance(example, Mapping):
            raise StartupError(f"{place} is {json.dumps(example)[:40]}: expected an object with {', '.join(FIELDS)}")
        for name in REQUIRED:
            if name not in example:
                raise StartupError(f"{place} has no field '{name}': expected {', '.join(FIELDS)}")
        for name in FIELDS:
            value = example.get(name)
            # An input may be left out or null; numbers are written as text.
            if (value is None and name in REQUIRED) or isinstance(value, (list, dict)):
                raise StartupError(f"{place} has {name} {json.dumps(value)[:40]}: expected text")
        yield example


def _placed_examples(dataset: str, source: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(place, example)."""
    path = Path(dataset)
    if path.exists() and not is_saved_dataset(path):
        for file in [path] if path.is_file() else data_files(path):
            yield from _file_examples(file)
        return
    examples = _saved_examples(path) if path.exists() else _hub_examples(dataset, source["commit"])
    for number, example in enumerate(examples, 1):
        yield f"example {number} of dataset '{dataset}'", example


def _saved_examples(path: Path) -> Any:
    import datasets

    try:
        saved = datasets.load_from_disk(str(path))
    except (OSError, ValueError) as error:
        raise StartupError(f"{path} is not a readable dataset of save_to_disk ({first_line(error)}): save it again") from error
    if not isinstance(saved, datasets.DatasetDict):
        return saved
    if HUB_SPLIT not in saved:
        raise StartupError(f"{path} has the splits {', '.join(saved)} and no {HUB_SPLIT}: save one under that name")
    return saved[HUB_SPLIT]


def _file_examples(path: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".parquet":
        for number, row in enumerate(_parquet_rows(path), 1):
            yield f"{path}, row {number}", row
        return
    text = _text(path)
    if path.suffix == ".json":
        for number, example in enumerate(_json_list(path, text), 1):
            yield f"{path}, example {number}", example
        return
    # Split at line feeds only: JSON strings may hold other line separators, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json.loads(line)
            except ValueError as error:
                raise StartupError(f"{path}, line {number} is not JSON ({error}): expected one example a line") from error


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise StartupError(f"{path}, line {line} is not UTF-8 (byte 0x{content[error.start]:02x}): save the file as UTF-8") from error


def _json_list(path: Path, text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise StartupError(
            f"{path}, line {error.lineno} is not JSON ({error.msg}): expected a list of examples; one example a line is a .jsonl"
        ) from error
    if not isinstance(found, list):
        raise StartupError(f"{path} holds a JSON {type(found).__name__}: expected a list of examples")
    return found


def _parquet_rows(path: Path) -> list[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows: list[Any] = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise StartupError(f"{path} is not a readable Parquet file ({first_line(error)}): write it again") from error
    return rows


def _hub_examples(name: str, commit: str) -> Any:
    import datasets

    return datasets.load_dataset(name, split=HUB_SPLIT, revision=commit)
