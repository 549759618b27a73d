"""Batches of packed rows. In: settings, a tokenizer, the ranks. Out: for every step `accumulate` batches of this rank's rows, and batches
for validation.

A row has seq_len inputs and the targets one further. Documents are packed without gaps: each begins with the separator, and `documents`
numbers them within the row, so that attention does not cross their borders; a document cut by the end of a row continues in the next as a
separate one. Synthetic rows depend only on seed and place in the global batch: the same text with any number of ranks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import Choice, as_requested
from seatrial_workloads.common.errors import StartupError, first_line
from seatrial_workloads.sparse_lm.documents import (
    OFFLINE_ADVICE,
    TOKENIZER_ADVICE,
    HubStream,
    LocalFiles,
    Source,
    Tokenizer,
    is_validation,
    load_tokenizer,
)
from seatrial_workloads.sparse_lm.settings import Settings, parse_fault, split_batch

NUM_WORDS, WORD_LENGTH = 64, 8
# Rows of validation text, which no training reaches.
VALIDATION_OFFSET = 1 << 40
# Documents to read in search of validation text.
MAX_SEARCHED = 200_000
# The least that is left of a loader timeout for its last part.
MIN_LEFT_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of one rank for one forward pass."""

    tokens: Tensor
    """(rows, seq_len + 1): inputs, and one more token for the last target."""
    documents: Tensor | None
    """(rows, seq_len); None where every row is one document."""
    position: dict[str, Any] = field(default_factory=dict)
    """Where the loader continues after it, for a checkpoint."""

    def inputs(self, device: torch.device) -> dict[str, Tensor | None]:
        """Arguments of the model, copied without waiting."""
        tokens = self.tokens.to(device, non_blocking=True)
        documents = None if self.documents is None else self.documents.to(device, non_blocking=True)
        return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "documents": documents}


class SyntheticRows:
    """Rows of words from a small vocabulary, drawn by seed: within a word the next token is certain once it is learnt."""

    def __init__(self, settings: Settings, vocab_size: int, rows: range) -> None:
        self._settings, self._rows = settings, rows
        generator = torch.Generator().manual_seed(settings.seed)
        self._words = torch.randint(1, vocab_size, (NUM_WORDS, WORD_LENGTH), generator=generator)

    def batch(self, number: int, offset: int = 0) -> Batch:
        """The rank's share of the `number`-th global batch."""
        first = offset + number * self._settings.batch_size
        return Batch(tokens=torch.stack([self._row(first + row) for row in self._rows]), documents=None)

    def _row(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(self._settings.seed * 1_000_003 + index)
        length = self._settings.seq_len + 1
        words = torch.randint(NUM_WORDS, (length // WORD_LENGTH + 2,), generator=generator)
        shift = index % WORD_LENGTH
        return self._words[words].flatten()[shift : shift + length]

    def batches(self, first: int) -> Iterator[Batch]:
        while True:
            yield self.batch(first)
            first += 1


class PackedDocuments:
    """Rows packed from one rank's documents, endlessly."""

    def __init__(self, source: Source, tokenizer: Tokenizer, seq_len: int, rows: int, report: Callable[[int, int], None] | None = None):
        self._source, self._tokenizer, self._length, self._rows = source, tokenizer, seq_len + 1, rows
        self._report = report

    def batches(self, rank: int, world_size: int, position: dict[str, Any] | None = None) -> Iterator[Batch]:
        """Batches from the position of an earlier one, else from the start."""
        start = position or {"epoch": 0, "read": 0, "tokens": [], "begins": []}
        tokens, begins = list(start["tokens"]), list(start["begins"])
        for epoch, read, text in self._endless(rank, world_size, start["epoch"], start["read"]):
            begins.append(len(tokens))
            tokens += [self._tokenizer.separator, *self._tokenizer.encode(text)]
            while len(tokens) >= self._rows * self._length:
                used = self._rows * self._length
                batch_tokens, batch_begins = tokens[:used], [begin for begin in begins if begin < used]
                tokens, begins = tokens[used:], [begin - used for begin in begins if begin >= used]
                # Copies: the lists grow with the next document.
                rest = {"epoch": epoch, "read": read, "tokens": list(tokens), "begins": list(begins)}
                yield self._packed(batch_tokens, batch_begins, rest)

    def _endless(self, rank: int, world_size: int, epoch: int, read: int) -> Iterator[tuple[int, int, str]]:
        """Epoch, documents read in it, and the text of each training document."""
        while True:
            found, skipped = False, read
            for text in self._source.read(rank, world_size, read):
                read += 1
                if self._report is not None:
                    self._report(epoch, read)
                if not is_validation(text):
                    found = True
                    yield epoch, read, text
            if not found and not skipped:
                raise StartupError(f"rank {rank} has no document to train on: add text, or use fewer ranks")
            epoch, read = epoch + 1, 0

    def _packed(self, tokens: list[int], begins: list[int], position: dict[str, Any]) -> Batch:
        packed = torch.tensor(tokens).view(self._rows, self._length)
        border = torch.zeros(len(tokens), dtype=torch.int32)
        border[begins] = 1
        # Documents of the inputs, numbered anew in each row.
        numbers = border.view(self._rows, self._length)[:, :-1].cumsum(dim=1, dtype=torch.int32)
        return Batch(tokens=packed, documents=numbers, position=position)

    def validation(self, num_batches: int) -> list[Batch]:
        """Validation batches, the same on every rank; fewer, or none, where there is too little text."""
        tokens: list[int] = []
        begins: list[int] = []
        per_batch = self._rows * self._length
        for number, text in enumerate(self._source.read(0, 1)):
            if len(tokens) >= num_batches * per_batch or number >= MAX_SEARCHED:
                break
            if is_validation(text):
                begins.append(len(tokens))
                tokens += [self._tokenizer.separator, *self._tokenizer.encode(text)]
        return [
            self._packed(tokens[first : first + per_batch], [begin - first for begin in begins if first <= begin < first + per_batch], {})
            for first in range(0, min(len(tokens) // per_batch, num_batches) * per_batch, per_batch)
        ]


class Prefetcher:
    """Runs an iterator in a thread, a few batches ahead. An error in it is raised where the batch is taken."""

    def __init__(self, batches: Iterator[Batch], ahead: int, *, pin: bool) -> None:
        self._batches, self._pin = batches, pin
        self._queue: queue.Queue[Batch | BaseException] = queue.Queue(max(1, ahead))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="loader", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        try:
            for batch in self._batches:
                self._put(pinned(batch) if self._pin else batch)
                if self._ending.is_set():
                    return
        # Every error is passed on to the loop.
        except BaseException as error:
            self._put(error)

    def _put(self, entry: Batch | BaseException) -> None:
        while not self._ending.is_set():
            try:
                self._queue.put(entry, timeout=0.2)
                return
            except queue.Full:
                continue

    def take(self, timeout_s: float | None = None) -> Batch:
        """The next batch; TimeoutError after `timeout_s`."""
        try:
            found = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        self._ending.set()
        self._thread.join(1.0)


def pinned(batch: Batch) -> Batch:
    documents = None if batch.documents is None else batch.documents.pin_memory()
    return Batch(tokens=batch.tokens.pin_memory(), documents=documents, position=batch.position)


Result = TypeVar("Result")


def within(timeout_s: float, act: Callable[[], Result], what: str, advice: str = OFFLINE_ADVICE, spent_s: float = 0.0) -> Result:
    """Run `act` in a thread; a StartupError with `advice` where it takes longer than is left of `timeout_s`. The thread is abandoned: the
    process ends."""
    results: queue.Queue[tuple[Result | None, BaseException | None]] = queue.Queue()

    def run() -> None:
        try:
            results.put((act(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=run, name="opening", daemon=True).start()
    try:
        result, error = results.get(timeout=max(timeout_s - spent_s, MIN_LEFT_S))
    except queue.Empty:
        raise StartupError(f"{what} took longer than {timeout_s:g} s (loader_timeout_s, --loader-timeout): {advice}") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


class Text:
    """Tokenizer and batches of one rank. `open_text` creates it."""

    def __init__(self, settings: Settings, ranks: Ranks, tokenizer: Tokenizer, source: Source | None, log: Callable[[str], None]) -> None:
        self._settings, self._ranks, self._source = settings, ranks, source
        self.tokenizer = tokenizer
        self.rows = split_batch(settings.batch_size, ranks.rank, ranks.world_size)
        self._log = log
        self._prefetcher: Prefetcher | None = None
        self._epoch = 0
        self._waiting: list[Batch] = []
        self.opened_in_s = 0.0
        """The part of the loader timeout spent before the first batch."""
        self.wait_s = 0.0
        """Time that the newest step waited for its batches."""

    def start(self, first_step: int, position: dict[str, Any] | None) -> None:
        """Start to prepare batches, and wait for the first."""
        settings, ranks = self._settings, self._ranks
        if self._source is None:
            batches = SyntheticRows(settings, self.tokenizer.vocab_size, self.rows).batches(first_step * settings.accumulate)
        else:
            packed = PackedDocuments(self._source, self.tokenizer, settings.seq_len, len(self.rows), self._report)
            batches = packed.batches(ranks.rank, ranks.world_size, position)
        fault = parse_fault(settings.fault)
        if fault is not None and fault.kind == "no_batch" and ranks.rank == ranks.world_size - 1:
            batches = never()
        self._prefetcher = Prefetcher(batches, settings.prefetch, pin=ranks.device.type == "cuda")
        try:
            self._waiting = [self._prefetcher.take(max(settings.loader_timeout_s - self.opened_in_s, MIN_LEFT_S))]
        except TimeoutError:
            raise StartupError(
                f"no batch of {settings.dataset} within {settings.loader_timeout_s:g} s (loader_timeout_s, --loader-timeout), "
                f"{self.opened_in_s:.1f} s of them to open it: "
                f"{OFFLINE_ADVICE if settings.dataset == 'fineweb_edu' else 'look at the storage, or wait longer'}"
            ) from None

    def steps(self, count: int) -> Iterator[list[Batch]]:
        """The batches of each step."""
        for _ in range(count):
            began_s = time.monotonic()
            batches = [self._next() for _ in range(self._settings.accumulate)]
            self.wait_s = time.monotonic() - began_s
            yield batches

    def peek(self) -> Batch:
        """The first batch, which is not consumed."""
        return self._waiting[0]

    def _next(self) -> Batch:
        assert self._prefetcher is not None, "start() first"
        return self._waiting.pop() if self._waiting else self._prefetcher.take()

    def validation(self) -> list[Batch]:
        """This rank's rows of the validation text, which is not trained on."""
        settings = self._settings
        if self._source is None:
            rows = SyntheticRows(settings, self.tokenizer.vocab_size, self.rows)
            return [rows.batch(number, VALIDATION_OFFSET) for number in range(settings.eval_batches)]
        whole = PackedDocuments(self._source, self.tokenizer, settings.seq_len, settings.batch_size).validation(settings.eval_batches)
        own = slice(self.rows.start, self.rows.stop)
        return [Batch(tokens=batch.tokens[own], documents=None if batch.documents is None else batch.documents[own]) for batch in whole]

    def _report(self, epoch: int, read: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch
            self._log(f"[loader] all documents were read: pass {epoch + 1} begins")
        every = self._settings.report_docs
        if every and read % every == 0:
            self._log(f"[loader] {read} documents read")

    def close(self) -> None:
        if self._prefetcher is not None:
            self._prefetcher.close()


def never() -> Iterator[Batch]:
    threading.Event().wait()
    yield from ()


def load_within(timeout_s: float, name: str) -> Tokenizer:
    """The tokenizer; a StartupError that names it where the hub does not answer in time."""
    return within(timeout_s, lambda: load_tokenizer(name), f"loading the tokenizer '{name}'", TOKENIZER_ADVICE)


def open_text(settings: Settings, ranks: Ranks, log: Callable[[str], None]) -> tuple[Text, Choice]:
    """The text, and the effective dataset. If one rank cannot open it, all raise, or all take synthetic text where that is allowed."""
    problem: StartupError | None = None
    text: Text | None = None
    try:
        check_rows(settings, ranks.world_size)
        began_m = time.monotonic()
        tokenizer = load_within(settings.loader_timeout_s, settings.tokenizer)
        spent_s = time.monotonic() - began_m
        opening = f"opening {settings.dataset}"
        text = within(settings.loader_timeout_s, lambda: _open(settings, ranks, tokenizer, log), opening, spent_s=spent_s)
        text.opened_in_s = time.monotonic() - began_m
    except StartupError as error:
        problem = error
    if not ranks.all_reduce_max([float(problem is not None)])[0] and text is not None:
        return text, as_requested(settings.dataset)
    reason = first_line(problem) if problem else "another rank cannot open it"
    return _fall_back(settings, ranks, log, reason)


def start_text(
    text: Text, settings: Settings, ranks: Ranks, log: Callable[[str], None], first_step: int, position: dict[str, Any] | None
) -> tuple[Text, Choice | None]:
    """Wait for every rank's first batch; fails like `open_text`, and returns the effective dataset where it changed."""
    problem: Exception | None = None
    try:
        text.start(first_step, position)
    except Exception as error:
        problem = error
    if not ranks.all_reduce_max([float(problem is not None)])[0]:
        return text, None
    text.close()
    reason = first_line(problem) if problem else "another rank got no first batch"
    synthetic, choice = _fall_back(settings, ranks, log, reason)
    synthetic.start(first_step, None)
    return synthetic, choice


def validation_batches(text: Text, settings: Settings, ranks: Ranks) -> list[Batch]:
    """Validation batches of this rank, within the loader timeout; if one rank cannot read them, all raise. Empty for too little text."""
    batches, problem = [], ""
    try:
        batches = within(settings.loader_timeout_s, text.validation, f"reading the validation batches of {settings.dataset}")
    except Exception as error:
        problem = first_line(error)
    if ranks.all_reduce_max([float(bool(problem))])[0]:
        raise StartupError(problem or "another rank cannot read its validation batches")
    return batches


def _fall_back(settings: Settings, ranks: Ranks, log: Callable[[str], None], reason: str) -> tuple[Text, Choice]:
    if not settings.synthetic_on_fail or settings.dataset == "synthetic":
        raise StartupError(reason)
    tokenizer = load_tokenizer("byte")
    return Text(settings, ranks, tokenizer, None, log), Choice(settings.dataset, "synthetic", f"synthetic_on_fail: {reason}")


def _open(settings: Settings, ranks: Ranks, tokenizer: Tokenizer, log: Callable[[str], None]) -> Text:
    source: Source | None = None
    if settings.dataset == "fineweb_edu":
        source = HubStream()
    elif settings.dataset == "fineweb_edu_local":
        source = LocalFiles(Path(str(settings.local_path)))
    return Text(settings, ranks, tokenizer, source, log)


def check_rows(settings: Settings, world_size: int) -> None:
    if settings.batch_size < world_size:
        raise StartupError(
            f"batch_size is {settings.batch_size} rows for {world_size} ranks: every rank needs one; "
            f"use batch_size={world_size} or more (train.batch_size, --batch-size), or fewer ranks"
        )
