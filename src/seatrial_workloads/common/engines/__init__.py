"""Who owns gradients and optimiser of a training: torch's DDP or DeepSpeed, behind one small interface.

    engine = make_engine("ddp", model, ranks, precision, EngineOptions(lr=1e-4))
    loss = engine.forward(**inputs)
    engine.backward(loss)
    engine.step()

For the same seed both give the same losses, within rounding.
"""

from seatrial_workloads.common.engines.engine import Engine, EngineOptions, make_engine

__all__ = ["Engine", "EngineOptions", "make_engine"]
