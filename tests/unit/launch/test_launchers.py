"""The argv of every launcher on one host: options the user typed are kept, only what is missing is added."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.core.errors import LaunchError
from seatrial.launch.launchers.commands import command_for, rank_log_folder
from tests.unit.launch.factory import allocation_for, attempt_in, make_spec

CWD = Path("/job dir")
ATTEMPT = attempt_in(CWD)


def _argv(**choices: object) -> tuple[str, ...]:
    spec = make_spec(CWD, **choices)  # type: ignore[arg-type]
    return command_for(spec, allocation_for(spec), ATTEMPT).argv


def test_the_launchers_program_wins_over_the_places_interpreter_and_that_over_this_one() -> None:
    plain = make_spec(CWD, launcher_args=("-u",))
    there = replace(plain, place=replace(plain.place, python="/env/bin/python"))
    named = replace(there, launcher=replace(there.launcher, program=("pypy", "-X", "dev")))
    for spec, program in ((plain, (sys.executable,)), (there, ("/env/bin/python",)), (named, ("pypy", "-X", "dev"))):
        assert command_for(spec, allocation_for(spec), ATTEMPT).argv == (*program, "-u", "train.py")


def test_python_module_of_the_users() -> None:
    assert _argv(program=("python",), launcher_args=("-u", "-m"), script="pkg.train") == ("python", "-u", "-m", "pkg.train")


def test_bundled_workload_gets_its_settings_as_a_file() -> None:
    argv = _argv(module="seatrial_workloads.dummy.train")
    assert argv == (sys.executable, "-m", "seatrial_workloads.dummy.train", "--settings", str(ATTEMPT.settings))


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


def test_the_job_is_torchruns_rendezvous_id_unless_the_user_has_a_rendezvous() -> None:
    for typed, given in (((), True), (("--rdzv-endpoint=localhost:0",), False)):
        spec = make_spec(CWD, kind="torchrun", launcher_args=typed, ranks=2)
        argv = command_for(spec, replace(allocation_for(spec), rendezvous_id="4711"), ATTEMPT).argv
        assert ("--rdzv-id" in argv) is given and (not given or argv[argv.index("--rdzv-id") + 1] == "4711")


def test_plans_own_master_port_is_kept() -> None:
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


def test_torchrun_module_comes_after_its_options() -> None:
    argv = _argv(kind="torchrun", ranks=2, program=("torchrun",), module="seatrial_workloads.tiny_lm.train")
    assert argv[0] == "torchrun"
    assert argv[-4:] == ("-m", "seatrial_workloads.tiny_lm.train", "--settings", str(ATTEMPT.settings))


@pytest.mark.parametrize(
    ("kind", "typed", "left_out"),
    [
        ("torchrun", ("--nproc", "4"), "--nproc-per-node"),
        ("torchrun", ("--nnodes=1",), "--nnodes"),
        ("torchrun", ("--standalone",), "--master-port"),
        ("torchrun", ("--rdzv-endpoint=localhost:0",), "--master-addr"),
        ("torchrun", ("--log_dir", "logs"), "--log-dir"),
        ("torchrun", ("-r", "1"), "--redirects"),
        ("torchrun", ("--tee", "3"), "--redirects"),
        ("deepspeed", ("--master_p=1234",), "--master_port"),
        ("deepspeed", ("--enable_each_rank_log", "logs"), "--enable_each_rank_log"),
    ],
)
def test_an_option_the_user_typed_is_kept(kind: str, typed: tuple[str, ...], left_out: str) -> None:
    argv = _argv(kind=kind, ranks=2, program=(kind,), launcher_args=typed)
    assert left_out not in argv[1 : argv.index(typed[0])]
    assert argv[-1 - len(typed) :] == (*typed, "train.py")


@pytest.mark.parametrize(
    ("kind", "typed", "folder"),
    [
        ("torchrun", (), str(ATTEMPT.rank_logs)),
        ("torchrun", ("--log-dir", "logs"), str(CWD / "logs")),
        ("torchrun", ("--log_dir=/var/logs",), "/var/logs"),
        ("torchrun", ("--tee", "3"), None),
        ("deepspeed", (), str(ATTEMPT.rank_logs)),
        ("deepspeed", ("--enable_each_rank_log", "logs"), str(CWD / "logs")),
        ("deepspeed", ("--enable=/var/logs",), "/var/logs"),
        ("deepspeed", ("--enable_each_rank_log", "None"), None),
    ],
)
def test_rank_logs_are_followed_where_they_are(kind: str, typed: tuple[str, ...], folder: str | None) -> None:
    assert rank_log_folder(make_spec(CWD, kind=kind, launcher_args=typed), ATTEMPT) == folder


def test_deepspeed_gets_what_is_missing() -> None:
    assert _argv(kind="deepspeed", ranks=2, args=("--bs", "8")) == (
        *(sys.executable, "-m", "deepspeed.launcher.runner"),
        # Not the hostfile at deepspeed's default path.
        *("--hostfile", "/dev/null"),
        *("--num_gpus", "2"),
        *("--master_port", "29650"),
        *("--enable_each_rank_log", str(ATTEMPT.rank_logs)),
        *("train.py", "--bs", "8"),
    )


def test_deepspeed_module_takes_no_local_rank() -> None:
    argv = _argv(kind="deepspeed", ranks=2, program=("deepspeed",), module="seatrial_workloads.tiny_lm.train")
    assert argv[0] == "deepspeed"
    assert argv[-5:] == ("--no_local_rank", "--module", "seatrial_workloads.tiny_lm.train", "--settings", str(ATTEMPT.settings))


@pytest.mark.parametrize(
    ("choices", "caller", "expected"),
    [
        ({"devices": ("0", "1"), "ranks": 2}, {}, ("--include", "localhost:0,1")),
        ({"ranks": 2}, {"CUDA_VISIBLE_DEVICES": "4,5"}, ("--include", "localhost:4,5")),
        ({"ranks": 1, "env": {"CUDA_VISIBLE_DEVICES": "3"}}, {"CUDA_VISIBLE_DEVICES": "4,5"}, ("--include", "localhost:3")),
        ({"ranks": 2, "env": {"DS_ACCELERATOR": "cpu"}}, {"CUDA_VISIBLE_DEVICES": "4"}, ("--num_gpus", "2")),
    ],
)
def test_deepspeed_gets_the_gpus_the_run_may_use(choices: dict[str, object], caller: dict[str, str], expected: tuple[str, ...]) -> None:
    spec = make_spec(CWD, kind="deepspeed", **choices)  # type: ignore[arg-type]
    argv = command_for(spec, allocation_for(spec), ATTEMPT, caller).argv
    assert argv[5:7] == expected


def test_deepspeed_refuses_gpus_by_uuid() -> None:
    spec = make_spec(CWD, kind="deepspeed")
    with pytest.raises(
        LaunchError,
        match=r"'GPU-0a' is not a GPU index; deepspeed takes indices only; name GPUs by number in place\.include, as in localhost:0,1",
    ):
        command_for(spec, allocation_for(spec), ATTEMPT, {"CUDA_VISIBLE_DEVICES": "GPU-0a"})


def test_command_is_taken_as_typed() -> None:
    argv = _argv(kind="command", program=("accelerate",), launcher_args=("launch",), args=("--bs", "8"))
    assert argv == ("accelerate", "launch", "train.py", "--bs", "8")
    assert _argv(kind="command", script="./run.sh") == ("./run.sh",)


def test_command_with_nothing_to_start_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"workload\.script"):
        _argv(kind="command", script=None)


def test_bundled_module_needs_an_interpreter() -> None:
    with pytest.raises(LaunchError, match="use launcher 'python'"):
        _argv(kind="command", module="seatrial_workloads.dummy.train")
    argv = _argv(kind="command", module="seatrial_workloads.dummy.train", program=("python3",))
    assert argv[:3] == ("python3", "-m", "seatrial_workloads.dummy.train")


def test_unknown_launcher_names_the_nearest() -> None:
    with pytest.raises(LaunchError, match="did you mean 'torchrun'"):
        _argv(kind="torchrunn")
