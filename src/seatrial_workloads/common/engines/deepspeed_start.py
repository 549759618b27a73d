"""DeepSpeed brought up for this rank. In: the ranks. Out: the imported package, on this device and in our process group.

It is told the device before it is imported, since it decides then. On a CPU its shared-memory op stays unused: it would be compiled at
start for a minute. Its loggers speak from warnings on, for people read the trainer's lines.
"""

from __future__ import annotations

import logging
import os
import warnings
from types import ModuleType

from seatrial_workloads.common.distributed import Ranks, ensure_group

_CHATTER = r"`torch\.distributed\.(all_gather_into_tensor|reduce_scatter_tensor)` is deprecated"


def start_deepspeed(ranks: Ranks, *, talkative: bool) -> ModuleType:
    """Import it and hand it the process group; `talkative` lets it print what it measures."""
    if ranks.device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    # It reads these also where a single process was started by hand.
    for name, value in (("RANK", ranks.rank), ("LOCAL_RANK", ranks.local_rank), ("WORLD_SIZE", ranks.world_size)):
        os.environ.setdefault(name, str(value))
    deepspeed = _imported()
    _refuse_other_device(deepspeed, ranks)
    if ranks.device.type == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.utils.logger.setLevel(logging.INFO if talkative else logging.WARNING)
    # DeepSpeed 0.19 calls these under their older names, and torch 2.13 says so every time.
    warnings.filterwarnings("ignore", message=_CHATTER, category=FutureWarning)
    ensure_group(ranks)
    deepspeed.init_distributed(dist_init_required=False)
    return deepspeed


def _imported() -> ModuleType:
    try:
        import deepspeed
    except ModuleNotFoundError as error:
        if error.name != "deepspeed":
            raise
        raise RuntimeError("engine is deepspeed, and the deepspeed package is not installed: install it, or use engine=ddp") from error
    return deepspeed


def _refuse_other_device(deepspeed: ModuleType, ranks: Ranks) -> None:
    chosen = deepspeed.get_accelerator().device_name().split(":")[0]
    if chosen != ranks.device.type:
        raise RuntimeError(
            f"DeepSpeed was started for {chosen}, and this rank is on {ranks.device.type}: "
            f"set DS_ACCELERATOR={ranks.device.type}, or take it out of the environment"
        )
