"""What the deepspeed runner is told of the GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.machine import deepspeed_devices
from seatrial.machine.deepspeed_devices import gpu_numbers, may_see_a_gpu, needs_no_gpu
from seatrial.machine.gpus import HUNG, Driver, Gpu
from tests.unit.launch.factory import make_spec

FOUR = Driver(gpus=tuple(Gpu(index=index, uuid=f"GPU-{index}a") for index in range(4)))
NONE = Driver(problem="no GPU driver", no_driver=True)


@pytest.fixture(autouse=True)
def no_device_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(deepspeed_devices, "DEVICE_FILE", tmp_path / "none")


@pytest.mark.parametrize(
    ("devices", "num_ranks", "variables", "numbers"),
    [
        (("2", "3"), 2, {}, ("2", "3")),
        (("2", "3"), 2, {"CUDA_VISIBLE_DEVICES": "0"}, ("2", "3")),
        # A number of GPUs alone would make deepspeed take 0 and 1, which are hidden.
        ((), 2, {"CUDA_VISIBLE_DEVICES": "2,3"}, ("2", "3")),
        ((), 1, {"CUDA_VISIBLE_DEVICES": "10,9"}, ("10",)),
        ((), 2, {"CUDA_VISIBLE_DEVICES": "10,9"}, ("9", "10")),
        ((), 2, {}, ()),
        ((), 2, {"CUDA_VISIBLE_DEVICES": ""}, ()),
        ((), 2, {"CUDA_VISIBLE_DEVICES": "0", "DS_ACCELERATOR": "cpu"}, ()),
        (("0", "1"), 2, {"DS_ACCELERATOR": "cpu"}, ()),
    ],
)
def test_numbers(devices: tuple[str, ...], num_ranks: int, variables: dict[str, str], numbers: tuple[str, ...]) -> None:
    assert gpu_numbers(devices, num_ranks, variables) == numbers


@pytest.mark.parametrize(
    ("visible", "says"),
    [
        ("0", "CUDA_VISIBLE_DEVICES=0 shows 1 GPUs, and 2 ranks need one each"),
        ("0,GPU-1a", "deepspeed takes GPUs by number, and 'GPU-1a' is none"),
        ("MIG-1,MIG-2", "deepspeed takes GPUs by number, and 'MIG-1' is none"),
    ],
)
def test_what_cannot_be_told_to_it(visible: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        gpu_numbers((), 2, {"CUDA_VISIBLE_DEVICES": visible})
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("choices", "caller", "driver", "no_gpu"),
    [
        ({}, {}, NONE, True),
        ({}, {}, FOUR, False),
        ({}, {"CUDA_VISIBLE_DEVICES": ""}, FOUR, True),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, {"CUDA_VISIBLE_DEVICES": ""}, FOUR, False),
        ({"settings": {"device": "cpu"}}, {}, FOUR, True),
        ({"settings": {"device": "cuda"}}, {}, NONE, False),
        ({"settings": {"device": "auto"}}, {}, NONE, True),
        ({"devices": ("0",)}, {}, NONE, False),
        # Whoever cannot tell leaves it to DeepSpeed.
        ({}, {}, HUNG, False),
    ],
)
def test_a_run_for_the_cpu(choices: dict[str, object], caller: dict[str, str], driver: Driver, no_gpu: bool) -> None:
    assert needs_no_gpu(make_spec("/w", **choices), caller, driver) is no_gpu  # type: ignore[arg-type]


def test_instances_of_a_gpu_are_seen() -> None:
    assert may_see_a_gpu({"CUDA_VISIBLE_DEVICES": "MIG-1"}, FOUR)
    assert not may_see_a_gpu({"CUDA_VISIBLE_DEVICES": "-1"}, FOUR)
