from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seatrial.errors import LaunchError
from seatrial.launch.launchers.registry import command_for, rank_logs_for
from tests.unit.launch.factory import allocation_for, attempt_in, make_spec

CWD = Path("/job dir")
ATTEMPT = attempt_in(CWD)


def _argv(**choices: object) -> tuple[str, ...]:
    spec = make_spec(CWD, **choices)  # type: ignore[arg-type]
    return command_for(spec, allocation_for(spec), ATTEMPT).argv


def test_python_script_as_typed() -> None:
    assert _argv(program=("python3",), args=("--bs", "8")) == ("python3", "train.py", "--bs", "8")


def test_python_without_a_program_is_this_interpreter() -> None:
    assert _argv() == (sys.executable, "train.py")


def test_python_module_of_the_users() -> None:
    assert _argv(program=("python",), launcher_args=("-u", "-m"), script="pkg.train") == ("python", "-u", "-m", "pkg.train")


def test_bundled_workload_gets_its_settings_as_a_file() -> None:
    words = _argv(module="seatrial_workloads.dummy.train")
    assert words == (sys.executable, "-m", "seatrial_workloads.dummy.train", "--settings", str(ATTEMPT.settings))


def test_python_ranks_have_their_rendezvous() -> None:
    spec = make_spec(CWD, ranks=2)
    command = command_for(spec, allocation_for(spec, port=29700), ATTEMPT)
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29700"}
    assert command.ranks == ({"RANK": "0", "LOCAL_RANK": "0", **shared}, {"RANK": "1", "LOCAL_RANK": "1", **shared})


def test_single_process_gets_no_rendezvous() -> None:
    spec = make_spec(CWD)
    command = command_for(spec, allocation_for(spec), ATTEMPT)
    assert command.ranks == ({},)
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT", "OMP_NUM_THREADS"} & set(command.env)


def test_plans_own_master_port_stands() -> None:
    spec = make_spec(CWD, ranks=2, env={"MASTER_PORT": "12345"})
    command = command_for(spec, allocation_for(spec), ATTEMPT)
    assert command.env["MASTER_PORT"] == "12345"
    assert all("MASTER_PORT" not in overlay for overlay in command.ranks)


def test_torchrun_gets_what_is_missing() -> None:
    assert _argv(kind="torchrun", ranks=2, args=("--bs", "8")) == (
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", "1", "--nproc-per-node", "2"),
        *("--master-addr", "127.0.0.1", "--master-port", "29650"),
        *("--log-dir", str(ATTEMPT.rank_logs), "--redirects", "3"),
        *("train.py", "--bs", "8"),
    )


def test_torchrun_module_stands_after_its_options() -> None:
    words = _argv(kind="torchrun", ranks=2, program=("torchrun",), module="seatrial_workloads.tiny_lm.train")
    assert words[0] == "torchrun"
    assert words[-4:] == ("-m", "seatrial_workloads.tiny_lm.train", "--settings", str(ATTEMPT.settings))


@pytest.mark.parametrize(
    ("typed", "left_out"),
    [
        (("--nproc_per_node", "4"), "--nproc-per-node"),
        (("--nproc-per-node=4",), "--nproc-per-node"),
        (("--nproc", "4"), "--nproc-per-node"),
        (("--nnodes=1",), "--nnodes"),
        (("--standalone",), "--master-port"),
        (("--master_port", "1234"), "--master-port"),
        (("--rdzv_backend", "c10d"), "--master-port"),
        (("--rdzv-endpoint=localhost:0",), "--master-addr"),
        (("--log_dir", "logs"), "--log-dir"),
        (("-r", "1"), "--redirects"),
        (("--tee", "3"), "--redirects"),
        (("-t3",), "--redirects"),
        (("--master_p=1234",), "--master-port"),
        (("--log-d", "logs"), "--log-dir"),
        (("--stand",), "--master-port"),
    ],
)
def test_torchrun_option_the_user_typed_stands_alone(typed: tuple[str, ...], left_out: str) -> None:
    words = _argv(kind="torchrun", ranks=2, program=("torchrun",), launcher_args=typed)
    ours = words[1 : words.index(typed[0])]
    assert left_out not in ours
    assert words[-1 - len(typed) :] == (*typed, "train.py")


@pytest.mark.parametrize(
    ("typed", "folder"),
    [
        ((), str(ATTEMPT.rank_logs)),
        (("--log-dir", "logs"), str(CWD / "logs")),
        (("--log_dir=/var/logs",), "/var/logs"),
        (("--log-d", "logs"), str(CWD / "logs")),
        (("--tee", "3"), None),
    ],
)
def test_torchrun_rank_logs_are_followed_where_they_are(typed: tuple[str, ...], folder: str | None) -> None:
    assert rank_logs_for(make_spec(CWD, kind="torchrun", launcher_args=typed), ATTEMPT) == folder


def test_deepspeed_gets_what_is_missing() -> None:
    assert _argv(kind="deepspeed", ranks=2, args=("--bs", "8")) == (
        *(sys.executable, "-m", "deepspeed.launcher.runner"),
        # A hostfile that lies where deepspeed looks by itself is not taken.
        *("--hostfile", "/dev/null"),
        *("--num_gpus", "2"),
        *("--master_port", "29650"),
        *("--enable_each_rank_log", str(ATTEMPT.rank_logs)),
        *("train.py", "--bs", "8"),
    )


def test_deepspeed_module_takes_no_local_rank() -> None:
    words = _argv(kind="deepspeed", ranks=2, program=("deepspeed",), module="seatrial_workloads.tiny_lm.train")
    assert words[0] == "deepspeed"
    assert words[-5:] == ("--no_local_rank", "--module", "seatrial_workloads.tiny_lm.train", "--settings", str(ATTEMPT.settings))


@pytest.mark.parametrize(
    ("choices", "caller", "told"),
    [
        ({"devices": ("0", "1"), "ranks": 2}, {}, ("--include", "localhost:0,1")),
        ({"ranks": 2}, {"CUDA_VISIBLE_DEVICES": "4,5"}, ("--include", "localhost:4,5")),
        ({"ranks": 1, "env": {"CUDA_VISIBLE_DEVICES": "3"}}, {"CUDA_VISIBLE_DEVICES": "4,5"}, ("--include", "localhost:3")),
        ({"ranks": 2, "env": {"DS_ACCELERATOR": "cpu"}}, {"CUDA_VISIBLE_DEVICES": "4"}, ("--num_gpus", "2")),
    ],
)
def test_deepspeed_is_told_of_the_gpus_the_run_may_use(choices: dict[str, object], caller: dict[str, str], told: tuple[str, ...]) -> None:
    spec = make_spec(CWD, kind="deepspeed", **choices)  # type: ignore[arg-type]
    words = command_for(spec, allocation_for(spec), ATTEMPT, caller).argv
    assert words[5:7] == told


def test_deepspeed_is_not_told_of_gpus_by_their_uuid() -> None:
    spec = make_spec(CWD, kind="deepspeed")
    with pytest.raises(LaunchError, match=r"'GPU-0a' is none; name GPUs by number in place\.include, as in localhost:0,1"):
        command_for(spec, allocation_for(spec), ATTEMPT, {"CUDA_VISIBLE_DEVICES": "GPU-0a"})


@pytest.mark.parametrize(
    ("typed", "left_out"),
    [
        (("--master_port", "1234"), "--master_port"),
        (("--master_p=1234",), "--master_port"),
        (("--enable_each_rank_log", "logs"), "--enable_each_rank_log"),
    ],
)
def test_deepspeed_option_the_user_typed_stands_alone(typed: tuple[str, ...], left_out: str) -> None:
    words = _argv(kind="deepspeed", ranks=2, program=("deepspeed",), launcher_args=typed)
    assert left_out not in words[1 : words.index(typed[0])]
    assert words[-1 - len(typed) :] == (*typed, "train.py")


@pytest.mark.parametrize(
    ("typed", "folder"),
    [
        ((), str(ATTEMPT.rank_logs)),
        (("--enable_each_rank_log", "logs"), str(CWD / "logs")),
        (("--enable=/var/logs",), "/var/logs"),
        (("--enable_each_rank_log", "None"), None),
    ],
)
def test_deepspeed_rank_logs_are_followed_where_they_are(typed: tuple[str, ...], folder: str | None) -> None:
    assert rank_logs_for(make_spec(CWD, kind="deepspeed", launcher_args=typed), ATTEMPT) == folder


def test_command_is_taken_as_typed() -> None:
    words = _argv(kind="command", program=("accelerate",), launcher_args=("launch",), args=("--bs", "8"))
    assert words == ("accelerate", "launch", "train.py", "--bs", "8")
    assert _argv(kind="command", script="./run.sh") == ("./run.sh",)


def test_command_with_nothing_to_start_says_what_to_give() -> None:
    with pytest.raises(LaunchError, match=r"workload\.script"):
        _argv(kind="command", script=None)


def test_bundled_module_needs_an_interpreter() -> None:
    with pytest.raises(LaunchError, match="use launcher 'python'"):
        _argv(kind="command", module="seatrial_workloads.dummy.train")


def test_unknown_launcher_names_the_nearest() -> None:
    with pytest.raises(LaunchError, match="did you mean 'torchrun'"):
        _argv(kind="torchrunn")
