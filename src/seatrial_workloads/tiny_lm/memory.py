"""Memory of the tiny language model on a GPU, from its settings. Standard library only.

What a layer keeps for the backward pass, in elements per token (h is d_model):

    attention norm   its input h (fp32: the residual stream) and two statistics
    projections      the input h of query, key and value; their output 3 h
    attention        its output h, and a statistic for each head; the matrix of scores is never kept (flash)
    feed-forward     norm as above; the input h, the input of GELU 4 h, and its output 4 h
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seatrial.records.memory import MemoryForecast, Remedy
from seatrial_workloads.common.memory import FORMAT_BYTES, Activations, Counted, Formats, Parameters, highest, replicated_state
from seatrial_workloads.tiny_lm.settings import Settings


def forecast(settings: Settings, *, world_size: int, cwd: Path) -> MemoryForecast:
    compute = FORMAT_BYTES["bf16" if settings.precision == "auto" else settings.precision]
    state = replicated_state(Parameters(trained=num_parameters(settings)), world_size, bucket_view=False)
    notes = ("compiled code may keep less",) if settings.compile else ()
    return highest(state, activations(settings, Formats(compute=compute)), world_size=world_size, notes=notes)


def remedies(settings: Settings, *, world_size: int) -> Iterator[Remedy]:
    size = settings.micro_batch
    while size > 1:
        size //= 2
        yield Remedy(settings={"micro_batch": size})


def num_parameters(settings: Settings) -> int:
    width = settings.d_model
    layer = 12 * width * width + 13 * width
    return (settings.vocab_size + settings.seq_len) * width + settings.n_layers * layer + 2 * width


def activations(settings: Settings, formats: Formats) -> Activations:
    tokens, width, compute = settings.micro_batch * settings.seq_len, settings.d_model, formats.compute
    layer = {
        "norm inputs": 2 * (4 * width + 8),
        "query, key, value inputs": compute * width,
        "query, key, value": 3 * compute * width,
        "attention outputs": compute * width,
        "attention statistics": 4 * settings.n_heads,
        "feed-forward inputs": compute * width,
        "GELU inputs": 4 * compute * width,
        "GELU outputs": 4 * compute * width,
    }
    saved = Counted()
    for name, size in layer.items():
        saved.add(name, tokens * size, settings.n_layers)
    saved.add("norm inputs", tokens * (4 * width + 8))
    saved.add("head inputs", tokens * compute * width)
    # The positions, and the loss's scalar.
    saved.add("other", 8 * settings.seq_len + 4)
    # All matrices: neither norms nor biases nor positions are cast.
    matrices = (settings.n_layers * 12 * width + settings.vocab_size) * width
    return Activations(
        saved=saved.tensors,
        # The 16-bit logits are gone once the loss has its fp32 copy.
        logits=tokens * settings.vocab_size * 3 * 4,
        layer_backward=tokens * (4 * width + 2 * 4 * width * compute),
        weight_copies=compute * matrices if formats.autocast else 0,
        inputs=2 * 8 * tokens,
    )
