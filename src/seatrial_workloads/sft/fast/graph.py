"""A whole training step as one CUDA graph: forward, backward, clipping and optimiser, launched at once.

    step = GraphedStep(train_on)      # train_on(batch) -> loss, all of it on the GPU, no value read back
    loss = step(batch)

With `weights` the step is forward and backward only, and leaves their gradients to an optimiser outside, which frees them after each step.

The first steps run as they are, on a stream of their own; then the step is captured, and from there on replayed with each batch copied
into the captured one's memory. That is for transformers' Trainer, which owns the loop; `common.engines.step_graph` captures before training
begins and undoes its warm-up. The loss is overwritten by the next step. The optimiser must be capturable, its learning rate a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

Batch = Mapping[str, Tensor]
# Steps before the capture, for what is compiled, autotuned or allocated on first use.
WARM_UP_STEPS = 3


class GraphedStep:
    """Steps over batches of one shape."""

    def __init__(self, step: Callable[[Batch], Tensor], weights: Sequence[Tensor] = ()) -> None:
        self._step, self._weights, self._stream = step, weights, torch.cuda.Stream()
        self._grads: list[Tensor | None] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: dict[str, Tensor] = {}
        self._loss = torch.empty(0)
        self._num_run = 0

    @property
    def is_captured(self) -> bool:
        return self._graph is not None

    def __call__(self, batch: Batch) -> Tensor:
        if not self._batch:
            self._batch = {name: tensor.clone() for name, tensor in batch.items()}
        self._copy_in(batch)
        self._num_run += 1
        if self._num_run <= WARM_UP_STEPS:
            return self._run_aside()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._loss = self._step(self._batch)
            self._grads = [weight.grad for weight in self._weights]
        self._graph.replay()
        for weight, grad in zip(self._weights, self._grads, strict=True):
            weight.grad = grad
        return self._loss

    def _run_aside(self) -> Tensor:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            loss = self._step(self._batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return loss

    def _copy_in(self, batch: Batch) -> None:
        shapes = {name: tensor.shape for name, tensor in batch.items()}
        captured = {name: tensor.shape for name, tensor in self._batch.items()}
        if shapes != captured:
            raise ValueError(
                f"a CUDA graph takes batches of one shape: expected {captured}, got {shapes}; pad to max length, or cuda_graph=false"
            )
        for name, tensor in batch.items():
            self._batch[name].copy_(tensor, non_blocking=True)
