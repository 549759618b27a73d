"""Training engines: torch's DDP or DeepSpeed, behind one small interface.

    engine = create_engine("ddp", model, ranks, precision, EngineOptions(lr=1e-4))
    loss = engine.forward(**inputs)
    engine.backward(loss)
    engine.step()

For the same seed both give the same losses, within rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seatrial_workloads.common.engines.engine import DdpOptions, Engine, EngineOptions, Startup, no_startup

if TYPE_CHECKING:
    from torch import nn

    from seatrial_workloads.common.distributed import Ranks
    from seatrial_workloads.common.precision import Precision

__all__ = ["DdpOptions", "Engine", "EngineOptions", "create_engine"]


def create_engine(
    name: str, model: nn.Module, ranks: Ranks, precision: Precision, options: EngineOptions, startup: Startup = no_startup
) -> Engine:
    """The engine called `name`, ddp or deepspeed; only that one is imported. `startup` times parts of its start (`Probe.startup`)."""
    if name == "ddp":
        from seatrial_workloads.common.engines.ddp import DdpEngine

        return DdpEngine(model, ranks, precision, options)
    from seatrial_workloads.common.engines.deepspeed_engine import DeepSpeedEngine

    return DeepSpeedEngine(model, ranks, precision, options, startup)
