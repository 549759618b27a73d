"""Which devices the `deepspeed` runner is to be told of.

It takes GPUs by number only and in rising order, and once it is told which or how many it takes no notice of CUDA_VISIBLE_DEVICES: so
what that variable leaves visible must be named to it, or it would take GPUs that were hidden from it. On CPU it wants a number only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from seatrial.machine.gpus import DEVICE_FILE, LIMIT, Driver, is_certain, is_mig_instance, read_driver, visible_gpus, visible_ids
from seatrial.records.run_spec import RunSpec

ACCELERATOR = "DS_ACCELERATOR"
CPU = "cpu"


def is_on_cpu(variables: Mapping[str, str]) -> bool:
    """Whether DeepSpeed is told to leave GPUs alone."""
    return variables.get(ACCELERATOR) == CPU


def gpu_numbers(devices: Sequence[str], num_ranks: int, variables: Mapping[str, str]) -> tuple[str, ...]:
    """What to name in its --include, one for each rank; () where it is to count from 0 by itself, as on CPU.

    `devices` are those the plan names; a ValueError says why what is visible cannot be told to it.
    """
    named = () if is_on_cpu(variables) else tuple(devices) or visible_ids(variables) or ()
    if not named:
        return ()
    if len(named) < num_ranks:
        raise ValueError(f"{LIMIT}={variables.get(LIMIT, '')} shows {len(named)} GPUs, and {num_ranks} ranks need one each")
    taken = named[:num_ranks]
    wrong = next((device for device in taken if not device.isdecimal()), None)
    if wrong is not None:
        raise ValueError(f"deepspeed takes GPUs by number, and '{wrong}' is none")
    return tuple(sorted(taken, key=int))


def needs_no_gpu(spec: RunSpec, variables: Mapping[str, str] | None = None, driver: Driver | None = None) -> bool:
    """Whether a run is for CPU: its plan names no GPU, and its settings say so or there is none it could use.

    `variables` are the caller's; without `driver` this host is asked. Where nobody can tell which GPUs there are, it is not.
    """
    device = spec.settings.get("device")
    if spec.place.devices or device == "cuda":
        return False
    return device == CPU or not may_see_a_gpu({**(os.environ if variables is None else variables), **spec.env}, driver or read_driver())


def may_see_a_gpu(variables: Mapping[str, str], driver: Driver) -> bool:
    """Whether a process with these variables sees a GPU, for all that is known."""
    if not is_certain(driver, DEVICE_FILE.exists()):
        return True
    instances = [device for device in visible_ids(variables) or () if is_mig_instance(device)]
    return bool(instances or visible_gpus(driver.gpus, (), variables))
