"""Learnable synthetic text. In: a seed. Out: batches (inputs, targets) of token ids.

Every token has a few possible successors, the same for all sequences of a seed: a model that learns the table brings its loss from
ln(vocabulary) towards ln(SUCCESSORS). Each sequence is generated from its index, so ranks and workers never share one.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import prefetch_for
from seatrial_workloads.tiny_lm.settings import Settings

SUCCESSORS = 4
# Indices of evaluation sequences, which no training reaches.
EVAL_OFFSET = 1 << 40
EVAL_BATCHES = 4


class SyntheticText(Dataset[tuple[Tensor, Tensor]]):
    """Random walks through a table of successors."""

    def __init__(self, settings: Settings, num_sequences: int, offset: int = 0) -> None:
        self._settings, self._num_sequences, self._offset = settings, num_sequences, offset
        table, vocab_size = random.Random(f"table:{settings.seed}"), settings.vocab_size
        self._successors = [[table.randrange(vocab_size) for _ in range(SUCCESSORS)] for _ in range(vocab_size)]

    def __len__(self) -> int:
        return self._num_sequences

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        walk = random.Random(f"walk:{self._settings.seed}:{self._offset + index}")
        choices = walk.choices(range(SUCCESSORS), k=self._settings.seq_len)
        ids = [walk.randrange(len(self._successors))]
        for choice in choices:
            ids.append(self._successors[ids[-1]][choice])
        tokens = torch.tensor(ids)
        return tokens[:-1], tokens[1:]


def train_loader(settings: Settings, ranks: Ranks, start_step: int = 0) -> DataLoader[tuple[Tensor, Tensor]]:
    """This rank's batches from `start_step` up to `steps`: the same whether training started there or at 0."""
    per_step = settings.micro_batch * ranks.world_size
    text = SyntheticText(settings, (settings.steps - start_step) * per_step, start_step * per_step)
    return DataLoader(
        text,
        batch_size=settings.micro_batch,
        sampler=DistributedSampler(text, num_replicas=ranks.world_size, rank=ranks.rank, shuffle=False),
        num_workers=settings.num_workers,
        prefetch_factor=prefetch_for(settings.num_workers, settings.prefetch_factor),
        pin_memory=ranks.device.type == "cuda",
    )


def eval_batches(settings: Settings, ranks: Ranks) -> list[tuple[Tensor, Tensor]]:
    """The same few batches at every evaluation, on the device."""
    text = SyntheticText(settings, EVAL_BATCHES * settings.micro_batch, EVAL_OFFSET)
    return [(inputs.to(ranks.device), targets.to(ranks.device)) for inputs, targets in DataLoader(text, batch_size=settings.micro_batch)]
