"""Which variables are written down, and which of them tune a run."""

from __future__ import annotations

import pytest

from seatrial.machine.recorded_variables import NOT_TUNING, RECORDED_NAMES, RECORDED_PREFIXES, TUNING_PREFIXES, is_recorded


@pytest.mark.parametrize(
    "name", ["NCCL_ALGO", "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "LD_PRELOAD", "RANK", "VIRTUAL_ENV", "MASTER_ADDR"]
)
def test_what_can_change_a_run_is_written_down(name: str) -> None:
    assert is_recorded(name)


@pytest.mark.parametrize("name", ["", "HOME", "PATH", "USER", "SSH_AUTH_SOCK", "RANKS", "MY_NCCL_ALGO", "nccl_algo", "WANDB_API_KEY"])
def test_the_rest_is_nobodys_business(name: str) -> None:
    assert not is_recorded(name)


def test_what_tunes_a_run_is_written_down_too() -> None:
    assert all(is_recorded(f"{prefix}X") for prefix in TUNING_PREFIXES)
    assert all(is_recorded(name) and name.startswith(TUNING_PREFIXES) for name in NOT_TUNING), "else it would not be an exception"


def test_nothing_is_listed_twice() -> None:
    for listed in (RECORDED_PREFIXES, TUNING_PREFIXES, RECORDED_NAMES):
        assert len({*listed}) == len(listed)
    assert not [name for name in RECORDED_NAMES if name.startswith(RECORDED_PREFIXES)]
