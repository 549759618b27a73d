"""Text and batches of the sparse language model: packing, shares of the ranks, validation, a loader that does not deliver."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial.collect.logs.diagnosis import diagnose  # noqa: E402
from seatrial_workloads.common.errors import StartupError  # noqa: E402
from seatrial_workloads.sparse_lm import data as data_module  # noqa: E402
from seatrial_workloads.sparse_lm import documents  # noqa: E402
from seatrial_workloads.sparse_lm.data import (  # noqa: E402
    PackedDocuments,
    Prefetcher,
    SyntheticRows,
    open_text,
    start_text,
    validation_batches,
    within,
)
from seatrial_workloads.sparse_lm.documents import ByteTokenizer, LocalFiles, is_validation, load_tokenizer  # noqa: E402  # noqa: E402
from seatrial_workloads.sparse_lm.settings import Settings, split_batch  # noqa: E402
from tests.workloads.cpu_ranks import ALONE, OtherFailed, cpu_ranks  # noqa: E402

TEXTS = [f"document {number}: {'word ' * (number % 7)}" for number in range(300)]


class Texts:
    """Documents in memory."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def read(self, rank: int, world_size: int, skip: int = 0) -> Iterator[str]:
        yield from self.texts[rank::world_size][skip:]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(documents, "BLOCK_BYTES", 500)
    monkeypatch.setattr(documents, "BLOCK_ROWS", 20)


def jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "id": number}) + "\n" for number, text in enumerate(texts)))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_share_the_documents_and_none_is_read_twice(tmp_path, small_blocks, kind, world_size):
    if kind == "jsonl":
        jsonl(tmp_path / "a.jsonl", TEXTS[:120])
        jsonl(tmp_path / "b.jsonl", TEXTS[120:])
    else:
        # A name that is a pattern is a name all the same.
        pytest.importorskip("polars").DataFrame({"text": TEXTS}).write_parquet(tmp_path / "a[1-2].parquet")
    files = LocalFiles(tmp_path)
    read = [list(files.read(rank, world_size)) for rank in range(world_size)]
    assert sorted(text for own in read for text in own) == sorted(TEXTS)
    assert min(map(len, read)) > len(TEXTS) / world_size / 2
    assert list(files.read(0, world_size, skip=7)) == read[0][7:]


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_the_documents_of_one_small_file(tmp_path, world_size):
    files = LocalFiles(jsonl(tmp_path / "a.jsonl", TEXTS))
    assert len(files.blocks) == 1
    read = [list(files.read(rank, world_size)) for rank in range(world_size)]
    assert [read[place % world_size][place // world_size] for place in range(len(TEXTS))] == TEXTS
    assert list(files.read(1, world_size, skip=7)) == read[1][7:]
    jsonl(tmp_path / "a.jsonl", TEXTS[:1])
    with pytest.raises(StartupError, match=r"rank 1 has no document.*fewer ranks"):
        next(PackedDocuments(LocalFiles(tmp_path), ByteTokenizer(), seq_len=8, rows=1).batches(1, 2))


def test_a_rank_opens_only_its_blocks(tmp_path, small_blocks, monkeypatch):
    files = LocalFiles(jsonl(tmp_path / "a.jsonl", TEXTS))
    seen = []
    monkeypatch.setitem(documents.READERS, ".jsonl", lambda block: seen.append(block) or iter(()))
    assert list(files.read(1, 2)) == []
    assert seen == files.blocks[1::2]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "no such path"), ({}, "no such file"), ({"a.txt": "x"}, "no such file"), ({"a.jsonl": "{}\n"}, "without 'text'")],
)
def test_a_folder_without_text_is_refused(tmp_path, content, problem):
    folder = tmp_path / "data"
    if content is not None:
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_text(text)
    with pytest.raises(StartupError, match=problem):
        list(LocalFiles(folder).read(0, 1))


def test_documents_are_packed_with_separators_and_numbered():
    packed = PackedDocuments(Texts(["abc", "defghij", "k"]), ByteTokenizer(), seq_len=5, rows=2)
    batch = next(packed.batches(0, 1))
    assert batch.tokens.tolist() == [[0, *b"abc", 0, *b"d"], [*b"efghij"]]
    assert batch.documents.tolist() == [[1, 1, 1, 1, 2], [0, 0, 0, 0, 0]]
    inputs = batch.inputs(torch.device("cpu"))
    assert torch.equal(inputs["tokens"][:, 1:], inputs["targets"][:, :-1])


def test_batches_go_on_from_a_position_over_the_end_of_the_documents():
    packed = PackedDocuments(Texts(TEXTS), ByteTokenizer(), seq_len=64, rows=3)
    batches = packed.batches(1, 2)
    first = [next(batches) for _ in range(60)]
    assert first[-1].position["epoch"] > 0, "the documents were read more than once"
    again = packed.batches(1, 2, first[20].position)
    for expected in first[21:]:
        found = next(again)
        assert torch.equal(found.tokens, expected.tokens) and torch.equal(found.documents, expected.documents)


def test_validation_text_is_never_trained_on():
    kept = [text for text in TEXTS if is_validation(text)]
    assert 0 < len(kept) < len(TEXTS) / 10
    packed = PackedDocuments(Texts(TEXTS), ByteTokenizer(), seq_len=16, rows=2)
    trained, batches = b"", packed.batches(0, 1)
    while (batch := next(batches)).position["epoch"] == 0:
        trained += bytes(batch.tokens.flatten().tolist())
    validation = b"".join(bytes(batch.tokens.flatten().tolist()) for batch in packed.validation(2))
    assert validation.startswith(b"\0" + kept[0].encode()[:20])
    assert not any(b"\0" + text.encode() + b"\0" in trained for text in kept)
    assert PackedDocuments(Texts(TEXTS[:1]), ByteTokenizer(), seq_len=4096, rows=2).validation(1) == []


def test_synthetic_rows_are_the_same_with_any_number_of_ranks():
    settings = Settings(batch_size=5, seq_len=33)
    whole = SyntheticRows(settings, 256, range(5)).batch(3).tokens
    parts = [SyntheticRows(settings, 256, split_batch(5, rank, 2)).batch(3).tokens for rank in range(2)]
    assert whole.shape == (5, 34) and torch.equal(whole, torch.cat(parts))
    assert not torch.equal(whole, SyntheticRows(settings, 256, range(5)).batch(4).tokens)


def test_the_loader_passes_errors_on_and_has_a_timeout():
    def failing() -> Iterator[int]:
        raise StartupError("no text")
        yield 1

    with pytest.raises(StartupError, match="no text"):
        Prefetcher(failing(), 2, pin=False).take(10)
    with pytest.raises(StartupError, match=r"opening x took longer than 0\.01 s"):
        within(0.01, threading.Event().wait, "opening x")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"tokenizer": "gpt2"}, r"loading the tokenizer 'gpt2' took longer than 0\.2 s .*: give a local folder .* as data\.tokenizer"),
        ({"dataset": "fineweb_edu"}, r"opening fineweb_edu took longer than .* s .*: use dataset=fineweb_edu_local"),
    ],
)
def test_a_hub_that_never_answers_is_named_by_what_waits_for_it(monkeypatch, settings, named):
    def wait(*args: object, **kwargs: object) -> None:
        threading.Event().wait()

    monkeypatch.setattr(data_module, "HubStream", wait)
    original = data_module.load_tokenizer
    monkeypatch.setattr(data_module, "load_tokenizer", lambda name: original(name) if name == "byte" else wait())
    with pytest.raises(StartupError, match=named) as refused:
        open_text(Settings(**settings, loader_timeout_s=0.2, seq_len=16), ALONE, print)
    assert diagnose(1, [f"train_showcase: error: {refused.value}"]).signature == "loader_timeout"


def test_a_loader_that_never_yields_ends_before_step_1_unless_synthetic_text_may_take_its_place(tmp_path):
    jsonl(tmp_path / "a.jsonl", TEXTS)
    settings = Settings(dataset="fineweb_edu_local", local_path=str(tmp_path), fault="no_batch", loader_timeout_s=0.2, seq_len=16)
    text, dataset = open_text(settings, ALONE, print)
    assert dataset.effective == "fineweb_edu_local"
    with pytest.raises(StartupError, match=r"no batch of fineweb_edu_local within 0.2 s") as refused:
        start_text(text, settings, ALONE, print, 0, None)
    assert diagnose(1, [f"sparse_lm: error: {refused.value}"]).signature == "loader_timeout"


def test_synthetic_text_in_place_of_a_dataset_is_recorded_as_such(tmp_path):
    settings = Settings(dataset="fineweb_edu_local", local_path=str(tmp_path), synthetic_on_fail=True)
    text, dataset = open_text(settings, ALONE, print)
    assert (dataset.requested, dataset.effective) == ("fineweb_edu_local", "synthetic") and "no such file" in dataset.reason
    text.start(0, None)
    assert next(text.steps(1))[0].tokens.shape == (8, 129)
    text.close()
    with pytest.raises(StartupError, match="every rank needs one"):
        open_text(Settings(batch_size=1), cpu_ranks(0, 2, OtherFailed), print)


def test_opening_and_the_first_batch_share_the_loader_timeout(tmp_path):
    jsonl(tmp_path / "a.jsonl", TEXTS)
    settings = Settings(dataset="fineweb_edu_local", local_path=str(tmp_path), fault="no_batch", loader_timeout_s=3600.0, seq_len=16)
    text, _ = open_text(settings, ALONE, print)
    text.opened_in_s = 3599.99
    with pytest.raises(StartupError, match=r"fineweb_edu_local within 3600 s .*3600\.0 s of them"):
        start_text(text, settings, ALONE, print, 0, None)


def test_validation_batches_have_the_loader_timeout(tmp_path, monkeypatch):
    jsonl(tmp_path / "a.jsonl", TEXTS)
    settings = Settings(dataset="fineweb_edu_local", local_path=str(tmp_path), loader_timeout_s=0.2, seq_len=16, eval_batches=1)
    text, _ = open_text(settings, ALONE, print)
    assert len(validation_batches(text, dataclasses.replace(settings, loader_timeout_s=60.0), ALONE)) == 1
    monkeypatch.setattr(text, "validation", threading.Event().wait)
    with pytest.raises(StartupError, match=r"validation batches of fineweb_edu_local.*0\.2 s"):
        validation_batches(text, settings, ALONE)
    with pytest.raises(StartupError, match="another rank cannot read"):
        monkeypatch.setattr(text, "validation", list)
        validation_batches(text, settings, cpu_ranks(0, 2, OtherFailed))


def test_a_gpt2_style_tokenizer_comes_from_a_folder_and_what_is_missing_is_one_true_sentence(tmp_path, monkeypatch):
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")

    def folder(name: str, vocabulary: dict[str, int], config: dict[str, str] | None) -> str:
        (tmp_path / name).mkdir()
        tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [])).save(str(tmp_path / name / "tokenizer.json"))
        if config is not None:
            (tmp_path / name / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}))
        return str(tmp_path / name)

    letters = {"a": 0, "b": 1}
    for name in (
        folder("both", {**letters, "</s>": 2}, {"eos_token": "</s>"}),
        folder("tokenizer.json alone", {**letters, "<|endoftext|>": 2}, None),
    ):
        loaded = load_tokenizer(name)
        assert (loaded.vocab_size, loaded.separator, loaded.encode("abba")) == (3, 2, [0, 1, 1, 0])
    # The variable is read at import.
    monkeypatch.setattr(pytest.importorskip("huggingface_hub").constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    for name, problem in (
        (str(tmp_path / "empty"), r"folder '.*empty' has no tokenizer\.json: give a local folder"),
        (str(tmp_path / "broken"), r"cannot be loaded \(.*\): give a local folder"),
        (str(tmp_path / "broken" / "tokenizer.json"), "is a file: give the folder that has it"),
        (folder("no end", letters, None), r"neither <\|endoftext\|> nor an eos_token .*: name one as eos_token in its tokenizer_config"),
        ("no_such_tokenizer", "there is no such folder here, and neither the cache nor the hub gave it"),
    ):
        with pytest.raises(StartupError, match=problem) as error:
            load_tokenizer(name)
        assert "\n" not in str(error.value) and ("the hub" in str(error.value)) == (name == "no_such_tokenizer")


def test_retries_of_the_hub_are_not_printed_unless_asked_for(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    before = hub.utils.logging.get_verbosity()
    with documents.quiet_hub():
        assert hub.utils.logging.get_verbosity() == logging.ERROR
    assert hub.utils.logging.get_verbosity() == before
    monkeypatch.setenv("HF_HUB_VERBOSITY", "info")
    with documents.quiet_hub():
        assert hub.utils.logging.get_verbosity() == before
