"""What is compiled and captured before the first step. In: the model, its engine, a batch like training's. Out: what is in effect, and
why.

    choices["compile"] = compile_blocks(model, lambda: engine.warm_up(**inputs), ranks)
    choices["cuda_graph"] = capture_step(engine, inputs, requested=None)
    loss = engine.replay(**inputs)

benchmarks/sparse_lm_speed.py times the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import Choice, as_requested
from seatrial_workloads.common.engines.ddp import DdpEngine
from seatrial_workloads.common.errors import summarize_error
from seatrial_workloads.sparse_lm.model import SparseLM
from seatrial_workloads.sparse_lm.settings import Settings

REQUESTED = {None: "auto", True: True, False: False}


def compile_blocks(model: SparseLM, warm_up: Callable[[], object], ranks: Ranks) -> Choice:
    """Compile one block, whose code all layers share. If one rank cannot, all fall back: ranks that round differently would drift apart."""
    failure = None
    model.compile_blocks(dynamic=False)
    try:
        warm_up()
    # A compiler can fail in any way.
    except Exception as error:
        failure = summarize_error(error)
    if not ranks.all_reduce_max([float(failure is not None)])[0]:
        return as_requested(True)
    for block in model.blocks:
        block._compiled_call_impl = None
    return Choice(True, False, failure or "another rank failed to compile")


def why_no_graph(settings: Settings, choices: Mapping[str, Choice], cannot_capture: str | None) -> str:
    """Why the step is not captured; empty where a capture is tried. `cannot_capture` is the engine's reason."""
    compiled = choices.get("compile")
    if cannot_capture:
        return cannot_capture
    if choices["prefill"].effective == "sequential" or choices["ranges"].effective == "v1":
        return "a reference implementation (prefill=sequential or ranges=v1) works on the host"
    if settings.profile:
        return "profile names the stages of a step, and a replayed graph has none"
    if settings.cuda_graph is None and not (compiled is not None and compiled.effective):
        return "auto captures a step whose blocks are compiled: use compile=true, or cuda_graph=true"
    return ""


def capture_step(engine: DdpEngine, inputs: Mapping[str, Tensor | None], *, requested: bool | None) -> Choice:
    """Capture a whole step with inputs of these shapes; where that fails, training continues without."""
    try:
        engine.capture(**inputs)
    # An operator that waits for the GPU, or out of memory.
    except RuntimeError as error:
        return Choice(REQUESTED[requested], False, f"the capture failed: {summarize_error(error)}")
    return Choice(REQUESTED[requested], True, "captured: forward, backward, clipping and AdamW in one graph")
