"""Plans from typed commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.errors import UsageError
from seatrial.machine.gpus import HUNG_DRIVER, Driver, Gpu
from seatrial.plan import from_command
from seatrial.plan.from_command import mapping_from_command, parse_command
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve_plan

# command → kind, program, launcher args, script, args, ranks
# Command → kind, program, launcher arguments, script, its arguments, ranks.
COMMANDS = {
    "torchrun --nproc_per_node 2 train.py --bs 8": ("torchrun", "torchrun", "", "train.py", "--bs 8", "2"),
    "torchrun --nproc-per 2 x.py": ("torchrun", "torchrun", "", "x.py", "", "2"),
    "torchrun --nproc_per=2 --stand --nn 1 x.py --nproc 9": ("torchrun", "torchrun", "--stand", "x.py", "--nproc 9", "2"),
    "torchrun --max-r 0 -r3 -m pkg.train": ("torchrun", "torchrun", "--max-r 0 -r3 -m", "pkg.train", "", None),
    "deepspeed --num_gpus 2 train.py --bs 8": ("deepspeed", "deepspeed", "", "train.py", "--bs 8", "2"),
    "ds --num_acc=2 --master_port 29501 train.py": ("deepspeed", "ds", "--master_port 29501", "train.py", "", "2"),
    "deepspeed --include localhost:0,1 --module pkg.train": ("deepspeed", "deepspeed", "--module", "pkg.train", "", None),
    "DS_ACCELERATOR=cpu deepspeed -i localhost:0,1 train.py": ("deepspeed", "deepspeed", "", "train.py", "", None),
    "deepspeed --num_gpus 2 --num_nodes 1 --no_ssh --node_rank 0 -q train.py": ("deepspeed", "deepspeed", "", "train.py", "", "2"),
    "python -m deepspeed.launcher.runner --num_gpus=2 train.py --num_gpus 9": (
        "deepspeed",
        "python -m deepspeed.launcher.runner",
        "",
        "train.py",
        "--num_gpus 9",
        "2",
    ),
    "conda run -n x deepspeed --num_gpus 2 t.py": ("command", "", "", "conda", "run -n x deepspeed --num_gpus 2 t.py", "2"),
    "./train.sh --num_gpus 4": ("command", "", "", "./train.sh", "--num_gpus 4", None),
    "./train.sh --np 4": ("command", "", "", "./train.sh", "--np 4", None),
    "torchrun --standalone --nproc-per-node=4 --nnodes=1 train.py": ("torchrun", "torchrun", "--standalone", "train.py", "", "4"),
    "/opt/venv/bin/torchrun --rdzv_backend c10d -m pkg.train --nproc_per_node 9": (
        "torchrun",
        "/opt/venv/bin/torchrun",
        "--rdzv_backend c10d -m",
        "pkg.train",
        "--nproc_per_node 9",
        None,
    ),
    "torchrun --no-python --nproc_per_node 2 ./run.sh -m": ("torchrun", "torchrun", "--no-python", "./run.sh", "-m", "2"),
    "torchrun --nproc_per_node gpu train.py": ("torchrun", "torchrun", "--nproc_per_node gpu", "train.py", "", None),
    "torchrun -r 3 -t 3 -- train.py": ("torchrun", "torchrun", "-r 3 -t 3", "train.py", "", None),
    "python -m torch.distributed.run --nproc_per_node=2 train.py": ("torchrun", "python -m torch.distributed.run", "", "train.py", "", "2"),
    "python -u -X dev train.py -m x": ("python", "python", "-u -X dev", "train.py", "-m x", None),
    "/usr/bin/python3.12 -m pkg.train --bs 8": ("python", "/usr/bin/python3.12", "-m", "pkg.train", "--bs 8", None),
    "python -c 'print(1)'": ("command", "", "", "python", "-c print(1)", None),
    "./train.sh 8": ("command", "", "", "./train.sh", "8", None),
    "accelerate launch --num_processes 2 train.py": ("command", "", "", "accelerate", "launch --num_processes 2 train.py", "2"),
    "python -m accelerate.commands.launch t.py": ("command", "", "", "python", "-m accelerate.commands.launch t.py", None),
    "conda run -n x torchrun --nproc-per-node=4 t.py": ("command", "", "", "conda", "run -n x torchrun --nproc-per-node=4 t.py", "4"),
}
# Command → parts of the message.
REFUSED = {
    "": ("no command was given", "torchrun --nproc_per_node 2 train.py"),
    "A=1": ("no command was given",),
    "torchrun --nproc_per_node 2": ("no script in the command: torchrun --nproc_per_node 2",),
    "python -u": ("no script in the command: python -u",),
    "python -m": ("python -m is not followed by a module",),
    "deepspeed --num_gpus 2": ("no script in the command: deepspeed --num_gpus 2",),
    "deepspeed --num_gpus 2 --num_nodes 2 train.py": ("--num_nodes 2: ", "place.include"),
    "deepspeed --launcher pdsh train.py": ("--launcher pdsh: ", "place.via"),
    "deepspeed --exclude localhost:1 train.py": ("--exclude localhost:1: ", "place.include"),
    "deepspeed -H hosts --launcher openmpi train.py": ("--launcher openmpi: ", "pdsh"),
    "deepspeed -H hosts --num_gpus 2 train.py": ("--num_gpus 2: ", "hostfile"),
    "deepspeed -H hosts --no_ssh --node_rank 0 train.py": ("--node_rank 0: ", "kind: pernode"),
    "deepspeed -H hosts --ssh_port two train.py": ("--ssh_port two: must be a number",),
    "deepspeed -H hosts --master_port 29x train.py": ("--master_port 29x: must be a number",),
    "deepspeed --autotuning run train.py": ("--autotuning run: ", "axes"),
    "deepspeed --num-gpus 2 train.py": ("no option --num-gpus; write --num_gpus",),
    "deepspeed --num_gpus two train.py": ("--num_gpus two: must be a number or one axis such as {np}",),
    "deepspeed --num_gpus 2 --include localhost:0,1 train.py": ("--include and --num_gpus", "keep --include"),
    "torchrun --nnodes 2 train.py": ("--nnodes 2: ", "--nodes 2 --node-rank R", "{kind: pernode, nodes: 2}"),
    "torchrun --nnodes=1:4 train.py": ("--nnodes 1:4: ", "--nodes 4 --node-rank R"),
    "torchrun --nnodes=$N train.py": ("--nnodes $N: ", "--nodes N --node-rank R"),
    "torchrun --node_rank 1 train.py": ("--node_rank 1: ", "--nodes N --node-rank R"),
    "python train.py --bs {bs}": ("{bs} is in the command", "add -P bs=VALUE,VALUE", "{{bs}}"),
    "python train.py {steps}": ("{steps} is in the command", "add --steps N"),
    """python train.py '{"a": 1}'""": ("""a lone '{' in '{"a": 1}'""", "write '{{'"),
}
LINE = "torchrun --nproc_per_node 2 train.py --bs {bs} --workers {nw}"
AXES: dict[str, list[Any]] = {"bs": [8, 16], "nw": [0, 2]}


ON_HOSTS = {
    "deepspeed -H hosts train.py": {},
    "deepspeed --hostfile=hosts --launcher PDSH --include n1@n2:0,1 train.py": {"include": "n1@n2:0,1", "via": "pdsh"},
    "deepspeed -H hosts -e n1:0 --master_addr n2 --master_port 29500 --ssh_port 2222 --no_ssh_check --force_multi train.py": {
        "exclude": "n1:0",
        "master_addr": "n2",
        "port": 29500,
        "ssh_args": ["-p", "2222"],
    },
    "deepspeed -H hosts --num_nodes -1 --node_rank=-1 train.py": {},
}


@pytest.mark.parametrize("command", ON_HOSTS)
def test_hosts_of_a_command_become_the_place_of_a_plan(command: str) -> None:
    mapping = mapping_from_command(shlex.split(command))
    assert mapping["place"] == {"kind": "hostfile", "hostfile": "hosts", **ON_HOSTS[command]}
    assert "args" not in mapping["launcher"]
    plan_from_mapping(mapping, command)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_taken_apart(command: str) -> None:
    kind, program, launcher_args, script, args, ranks = COMMANDS[command]
    parts = parse_command(shlex.split(command))

    assert (parts.kind, " ".join(parts.program), " ".join(parts.launcher_args)) == (kind, program, launcher_args)
    assert (parts.script, " ".join(parts.args), parts.ranks) == (script, args, ranks)
    plan = plan_from_mapping(mapping_from_command(shlex.split(command), repeats=2), command)
    runs = resolve_plan(plan, source=command, cwd=Path("/")).runs
    assert [run.run for run in runs] == ["base_r1", "base_r2"] and runs[0].workload.script == script


@pytest.mark.parametrize("command", REFUSED)
def test_what_cannot_be_swept_is_reported(command: str) -> None:
    with pytest.raises(UsageError) as caught:
        mapping_from_command(shlex.split(command))
    assert all(part in str(caught.value) for part in REFUSED[command])


def test_the_one_liner() -> None:
    mapping = mapping_from_command(shlex.split(LINE), axes=AXES, repeats=3, samples_per_step="{bs}")
    plan = resolve_plan(plan_from_mapping(mapping, LINE), source=LINE, cwd=Path("/"))

    assert len(plan.runs) == 12
    run = next(run for run in plan.runs if run.run == "bs16_nw2_r3")
    assert run.workload.args == ("--bs", "16", "--workers", "2")
    assert run.workload.samples_per_step == 16
    assert (run.launcher.kind, run.launcher.program, run.place.ranks) == ("torchrun", ("torchrun",), 2)


def test_the_folder_follows_from_command_and_axes_but_not_from_repeats() -> None:
    def folder(command: str = LINE, **options: Any) -> str:
        return str(mapping_from_command(shlex.split(command), **{"axes": AXES, **options})["output"])

    assert folder() == folder(repeats=5) == folder(axes=dict(reversed(AXES.items())))
    others = [folder(f"{LINE} --lr 1"), folder(axes={"bs": [8], "nw": [0]}), folder(steps=5), folder(more={"env": {"A": "1"}})]
    assert len({folder(), *others}) == 5
    # How its lines are read can be changed afterwards, without a run being made again.
    assert folder() == folder(reads="nanogpt") == folder(patterns=["(?P<step>x)"]) == folder(samples_per_step="8", tokens_per_step="{bs}")
    assert folder() == folder(more={"limits": {"run_s": 5}, "rank_by": "duration_s"})
    assert folder().startswith("outputs/sweep-train-")
    assert len(folder()) == len("outputs/sweep-train-") + 8
    assert folder(output="mine") == "mine"


def test_a_folder_for_any_program() -> None:
    def name(command: str) -> str:
        return str(mapping_from_command(shlex.split(command))["name"])

    assert name("accelerate launch src/fine_tune.py") == "sweep-fine-tune"
    assert name("python -m pkg.train") == "sweep-train"
    assert name("./run") == "sweep-run"


def test_an_axis_without_a_placeholder_is_named() -> None:
    with pytest.raises(UsageError, match=r"'bz'.*\{bz\}.*'bs'"):
        mapping_from_command(shlex.split(LINE), axes={"bz": [1], "nw": [0]})
    with pytest.raises(UsageError, match=r"'bs'.*\{bs\}"):
        mapping_from_command(["python", "train.py"], axes={"bs": [1]})
    with pytest.raises(UsageError, match=r"^--samples-per-step \{mb\}: .*'mb'.* -P"):
        mapping_from_command(["python", "train.py"], samples_per_step="{mb}")
    with pytest.raises(UsageError, match=r"^--tokens-per-step \{bz\}\*\{nw\}: .*'bz'.*'bs'"):
        mapping_from_command(shlex.split(LINE), axes=AXES, tokens_per_step="{bz}*{nw}")


def test_the_number_of_ranks_can_be_an_axis() -> None:
    command = shlex.split("torchrun --nproc_per_node {np} train.py --world {np} --bs {bs}")
    mapping = mapping_from_command(command, axes={"np": [1, 2], "bs": [8]})
    runs = resolve_plan(plan_from_mapping(mapping, "x"), source="x", cwd=Path("/")).runs

    assert {run.run: (run.place.ranks, run.workload.args) for run in runs} == {
        "np1_bs8_r1": (1, ("--world", "1", "--bs", "8")),
        "np2_bs8_r1": (2, ("--world", "2", "--bs", "8")),
    }
    mapping = mapping_from_command(shlex.split("accelerate launch --num_processes {np} train.py"), axes={"np": [2]})
    run = resolve_plan(plan_from_mapping(mapping, "x"), source="x", cwd=Path("/")).runs[0]
    assert (run.place.ranks, run.workload.args) == (2, ("launch", "--num_processes", "2", "train.py"))
    with pytest.raises(UsageError, match="must be a number or one axis"):
        mapping_from_command(shlex.split("torchrun --nproc_per_node 1{np} train.py"), axes={"np": [1]})


def test_axes_of_the_harness_need_no_placeholder() -> None:
    mapping = mapping_from_command(["python", "train.py"], axes={"env.OMP_NUM_THREADS": [1, 2]})
    runs = resolve_plan(plan_from_mapping(mapping, "x"), source="x", cwd=Path("/")).runs
    assert sorted(run.env["OMP_NUM_THREADS"] for run in runs) == ["1", "2"]


def test_variables_in_front_of_a_command() -> None:
    mapping = mapping_from_command(shlex.split("OMP_NUM_THREADS={t} A=b=c python train.py"), axes={"t": [1]})
    run = resolve_plan(plan_from_mapping(mapping, "x"), source="x", cwd=Path("/")).runs[0]
    assert run.env == {"OMP_NUM_THREADS": "1", "A": "b=c"}
    assert mapping_from_command(["A=1", "python", "t.py"], more={"env": {"B": "2"}})["env"] == {"A": "1", "B": "2"}


def test_ranks_that_torchrun_counts_itself_are_noted() -> None:
    assert "ranks are counted at run time" in parse_command(shlex.split("torchrun --nproc_per_node auto t.py")).notes[0]


def test_other_keys_of_a_plan_are_passed_on() -> None:
    mapping = mapping_from_command(["python", "t.py"], more={"rank_by": "duration_s", "limits": {"run_s": 5}}, steps=7)
    plan = plan_from_mapping(mapping, "x")
    assert (plan.rank_by, plan.limits.run_s, plan.steps) == ("duration_s", 5, 7)


def test_gpus_that_deepspeed_is_given_are_the_place_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    mapping = mapping_from_command(shlex.split("deepspeed --include=localhost:2,3 train.py"))
    assert mapping["place"] == {"kind": "local", "include": "localhost:2,3"}
    run = resolve_plan(plan_from_mapping(mapping, "x"), source="x", cwd=Path("/")).runs[0]
    assert (run.place.ranks, run.place.devices) == (2, ("2", "3"))
    mapping = mapping_from_command(shlex.split("deepspeed --num_gpus {np} train.py"), axes={"np": [1, 2]})
    assert [run.place.ranks for run in resolve_plan(plan_from_mapping(mapping, "x"), source="x", cwd=Path("/")).runs] in ([1, 2], [2, 1])


def test_slots_of_a_cpu_are_a_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    command, expected = shlex.split("deepspeed --include localhost:0,1 train.py"), {"kind": "local", "ranks": 2}
    assert mapping_from_command(["DS_ACCELERATOR=cpu", "LOCAL_SIZE=2", *command])["place"] == expected
    assert mapping_from_command(command, more={"env": {"DS_ACCELERATOR": "cpu"}})["place"] == expected
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert mapping_from_command(command)["place"] == expected


@pytest.mark.parametrize(
    ("num_gpus", "variables", "ranks"),
    [(8, {}, 8), (8, {"CUDA_VISIBLE_DEVICES": "2,3"}, 2), (0, {}, 1), (0, {"LOCAL_SIZE": "2"}, 2), (8, {"DS_ACCELERATOR": "cpu"}, 1)],
)
def test_deepspeed_without_options_takes_every_gpu(
    num_gpus: int, variables: dict[str, str], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "LOCAL_SIZE", "DS_ACCELERATOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    here = Driver(gpus=tuple(Gpu(index=index) for index in range(num_gpus)))
    monkeypatch.setattr(from_command, "read_driver", lambda: here)
    assert mapping_from_command(["deepspeed", "train.py"])["place"] == {"kind": "local", "ranks": ranks}
    assert "takes every GPU it sees" in parse_command(["deepspeed", "train.py"]).notes[0]


def test_gpus_that_nobody_can_count_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_command, "read_driver", lambda: HUNG_DRIVER)
    with pytest.raises(UsageError, match=r"the driver does not answer.*--num_gpus N"):
        mapping_from_command(["deepspeed", "train.py"])


def test_what_is_left_out_of_a_deepspeed_command_is_noted() -> None:
    parts = parse_command(shlex.split("deepspeed --num_gpus 2 --log_level error train.py"))
    assert parts.launcher_args == ()
    assert parts.notes[0].startswith("--log_level error is left out: ")
    assert parse_command(shlex.split("deepspeed --num_gpus 2 --log_level debug train.py")).launcher_args == ("--log_level", "debug")
