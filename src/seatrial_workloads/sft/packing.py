"""Examples to batches: padded to one length, or packed without padding. In: token ids. Out: the model's inputs.

Packed: a row holds whole examples one after another; their position ids start at 0 again, from which transformers (with no attention mask
and no cache) keeps attention within each, and no example's last token predicts the next one's first. Rows are filled by best fit, the
longest examples first. Rows of a batch are as long as its longest: one row a batch has no padding at all, nor have flat ones.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seatrial_workloads.sft.step_counts import BatchCounts

COUNTS = "counts"
"""Key of a batch's `BatchCounts`, removed before the model sees it."""
IGNORED = -100
"""Label of a token that is not learnt."""
PROBE_LENGTH = 4


@dataclass(frozen=True)
class Example:
    """A tokenised example."""

    number: int
    """Its place in the dataset."""
    ids: Sequence[int]
    prompt_length: int
    """Tokens before the response."""


def pack(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Rows of example numbers: best fit, the longest first. Deterministic."""
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []
    """(tokens left, row), sorted."""
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        place = bisect.bisect_left(free, (lengths[number], -1))
        if place == len(free):
            rows.append([number])
            left, row = row_length - lengths[number], len(rows) - 1
        else:
            left, row = free.pop(place)
            rows[row].append(number)
            left -= lengths[number]
        if left:
            bisect.insort(free, (left, row))
    return rows


def labels_of(example: Example, loss_on: str) -> list[int]:
    """Labels before the model's shift by one."""
    unlearnt = len(example.ids) - num_learnt(example, loss_on)
    return [IGNORED] * unlearnt + list(example.ids[unlearnt:])


def num_learnt(example: Example, loss_on: str) -> int:
    """Number of tokens that are learnt; the first token of an example is never predicted."""
    return max(0, len(example.ids) - (max(1, example.prompt_length) if loss_on == "response" else 1))


@dataclass(frozen=True, kw_only=True)
class Collator:
    """Rows of examples to tensors, with their counts beside them: a plain object, so that reading it waits for no device."""

    pad_id: int
    row_length: int
    loss_on: str = "all"
    packing: bool = False
    static: bool = False
    """Every row has `row_length` tokens, for compiled graphs."""
    flat: bool = False
    """Packed rows one after another in a single one, which flash attention takes apart by position ids: no padding at all."""

    def __call__(self, rows: Sequence[Sequence[Example]]) -> dict[str, Any]:
        examples = [example for row in rows for example in row]
        if self.packing:
            laid_out = [examples] if self.flat else rows
            longest = max(sum(len(example.ids) for example in row) for row in laid_out)
            batch = self._packed(laid_out, self.row_length * len(rows) // len(laid_out) if self.static else longest)
        else:
            batch = self._padded(rows, self.row_length)
        counts = BatchCounts(
            ids=tuple(example.number for example in examples),
            lengths=tuple(len(example.ids) for example in examples),
            computed=batch["input_ids"].numel(),
            learnt=int((batch["labels"] != IGNORED).sum()),
        )
        return {**batch, COUNTS: counts}

    def _padded(self, rows: Sequence[Sequence[Example]], width: int) -> dict[str, Tensor]:
        examples = [example for row in rows for example in row]
        ids = [list(example.ids) + [self.pad_id] * (width - len(example.ids)) for example in examples]
        labels = [labels_of(example, self.loss_on) for example in examples]
        return {
            "input_ids": torch.tensor(ids),
            # By length, not by id: the padding token may be the end-of-text token, which is learnt.
            "attention_mask": torch.tensor([[1] * len(example.ids) + [0] * (width - len(example.ids)) for example in examples]),
            "labels": torch.tensor([row + [IGNORED] * (width - len(row)) for row in labels]),
        }

    def _packed(self, rows: Sequence[Sequence[Example]], width: int) -> dict[str, Tensor]:
        ids, positions, labels = [], [], []
        for row in rows:
            row_ids = [token for example in row for token in example.ids]
            row_positions = [place for example in row for place in range(len(example.ids))]
            row_labels = [label for example in row for label in labels_of(example, self.loss_on)]
            rest = width - len(row_ids)
            ids.append(row_ids + [self.pad_id] * rest)
            # The rest is a separate example that is not learnt.
            positions.append(row_positions + list(range(rest)))
            labels.append(row_labels + [IGNORED] * rest)
        return {"input_ids": torch.tensor(ids), "position_ids": torch.tensor(positions), "labels": torch.tensor(labels)}


@torch.no_grad()
def mixes_examples(model: Any) -> bool:
    """Whether a token of one packed example reaches the next one, tried with two short examples: an architecture that does not read
    positions as transformers' masks do would train on neighbours."""
    was_training, device = model.training, next(model.parameters()).device
    ids = torch.arange(2 * PROBE_LENGTH, device=device)[None] % model.config.vocab_size
    positions = torch.arange(PROBE_LENGTH, device=device).repeat(2)[None]
    changed = ids.clone()
    changed[0, PROBE_LENGTH - 1] = 0
    model.eval()
    before, after = (model(input_ids=given, position_ids=positions, use_cache=False).logits[0, PROBE_LENGTH:] for given in (ids, changed))
    model.train(was_training)
    return not torch.equal(before, after)
