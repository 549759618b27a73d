"""Synthetic text with something to learn. In: a seed. Out: batches (inputs, targets) of token ids.

Every token has a few likely successors, the same for all sequences of one seed: a model that learns the table falls from ln(vocabulary)
towards ln(SUCCESSORS). Sequences are made when asked for, each from its own index, so ranks and workers never share one.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.made_ahead import prefetch_for
from seatrial_workloads.tiny_lm.settings import Settings

SUCCESSORS = 4
# Evaluation takes its sequences from indices no training reaches.
EVAL_OFFSET = 1 << 40
EVAL_BATCHES = 4


class SyntheticText(Dataset[tuple[Tensor, Tensor]]):
    """Walks through a random table of successors."""

    def __init__(self, *, num_sequences: int, seq_len: int, vocab_size: int, seed: int, offset: int = 0) -> None:
        table = random.Random(f"table:{seed}")
        self._successors = [[table.randrange(vocab_size) for _ in range(SUCCESSORS)] for _ in range(vocab_size)]
        self._num_sequences = num_sequences
        self._seq_len = seq_len
        self._seed = seed
        self._offset = offset

    def __len__(self) -> int:
        return self._num_sequences

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        walk = random.Random(f"walk:{self._seed}:{self._offset + index}")
        choices = walk.choices(range(SUCCESSORS), k=self._seq_len)
        ids = [walk.randrange(len(self._successors))]
        for choice in choices:
            ids.append(self._successors[ids[-1]][choice])
        tokens = torch.tensor(ids)
        return tokens[:-1], tokens[1:]


def train_loader(settings: Settings, ranks: Ranks) -> DataLoader[tuple[Tensor, Tensor]]:
    """Exactly `steps` batches for this rank."""
    text = SyntheticText(
        num_sequences=settings.steps * settings.micro_batch * ranks.world_size,
        seq_len=settings.seq_len,
        vocab_size=settings.vocab_size,
        seed=settings.seed,
    )
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
    text = SyntheticText(
        num_sequences=EVAL_BATCHES * settings.micro_batch,
        seq_len=settings.seq_len,
        vocab_size=settings.vocab_size,
        seed=settings.seed,
        offset=EVAL_OFFSET,
    )
    return [(inputs.to(ranks.device), targets.to(ranks.device)) for inputs, targets in DataLoader(text, batch_size=settings.micro_batch)]
