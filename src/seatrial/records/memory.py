"""What a training will hold on each GPU, by part, and how that stands to the memory there is.

A bundled workload forecasts it from its settings alone (`seatrial_workloads/<name>/memory.py`: `forecast`, `remedies`); preflight compares
it with the GPU, the report with what was observed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.caution import Scalar

# Outside torch's allocator: the CUDA context with its kernels, and NCCL's channels and buffers where ranks communicate. Rounded up from
# what nvidia-smi shows beyond torch's own figure on cards of 2020 and later; neither follows from the configuration.
CONTEXT_BYTES = 512 * 2**20
NCCL_BYTES = 512 * 2**20
# Blocks that the allocator holds and cannot use for the next request.
FRAGMENTATION_RATIO = 0.03


class ForecastUnknown(ValueError):
    """Memory cannot be forecast; says what is missing."""


@dataclass(frozen=True, kw_only=True)
class MemoryForecast:
    """Memory of one rank at the peak of a step."""

    parts: dict[str, int]
    """Part → bytes that torch's allocator hands out: weights, gradients, optimizer, communication, activations, logits, temporary."""
    moment: str
    """When in a step that is."""
    world_size: int = 1
    notes: tuple[str, ...] = ()
    """What the figures assume."""
    saved: dict[str, int] = field(default_factory=dict)
    """What autograd keeps for the backward pass, tensor by tensor, over all layers; the sum is the part `activations` where nothing is
    recomputed."""
    least_allocated_bytes: int | None = None
    """What it may come to at least, where the run decides something that the settings leave open; `parts` are then the most."""

    @property
    def allocated_bytes(self) -> int:
        """To be compared with `torch.cuda.max_memory_allocated`."""
        return sum(self.parts.values())

    @property
    def allowance_bytes(self) -> int:
        """CUDA context, NCCL and fragmentation: a convention, not a count."""
        nccl = NCCL_BYTES if self.world_size > 1 else 0
        return CONTEXT_BYTES + nccl + round(FRAGMENTATION_RATIO * self.allocated_bytes) if self.parts else 0

    @property
    def total_bytes(self) -> int:
        """To be compared with the memory of the GPU."""
        return self.allocated_bytes + self.allowance_bytes


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change that may make a training fit."""

    settings: dict[str, Scalar]
    world_size: int | None = None
    """Number of ranks, where that changes."""
