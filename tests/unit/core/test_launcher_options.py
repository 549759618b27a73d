"""Arguments after torchrun and deepspeed, read as their own parsers read them."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from seatrial.core.errors import HostError
from seatrial.core.launcher_options import (
    DEEPSPEED,
    NOT_PASSED_ON,
    PDSH_APPEND,
    TORCHRUN,
    OptionTable,
    is_for_one_host,
    is_quiet,
    long_option,
    pdsh_args,
    ssh_command,
)

USERS = ("-o", "ConnectTimeout=60", "-o", "BatchMode=no")


@pytest.mark.parametrize(
    ("table", "argument", "name", "inline"),
    [
        (TORCHRUN, "--nproc_per-node", "nproc_per_node", None),
        (TORCHRUN, "--np=4", "nproc_per_node", "4"),
        (TORCHRUN, "--log-d=x=y", "log_dir", "x=y"),
        (TORCHRUN, "--tee=", "tee", ""),
        (TORCHRUN, "-r", "redirects", None),
        (TORCHRUN, "-r3", "redirects", "3"),
        (TORCHRUN, "-t=3", "tee", "3"),
        (TORCHRUN, "-m", "module", None),
        # Ambiguous, so torchrun refuses it: left as typed.
        (TORCHRUN, "--no", "no", None),
        (TORCHRUN, "--of-a-newer-torchrun", "of_a_newer_torchrun", None),
        (TORCHRUN, "--", None, None),
        (TORCHRUN, "train.py", None, None),
        (TORCHRUN, "-mt3", None, None),
        (DEEPSPEED, "--num_accelerators=2", "num_gpus", "2"),
        (DEEPSPEED, "--num_a", "num_gpus", None),
        (DEEPSPEED, "-ilocalhost:0", "include", "localhost:0"),
        # Exact, though another name begins with it too.
        (DEEPSPEED, "--launcher", "launcher", None),
        (DEEPSPEED, "--no_ssh", "no_ssh", None),
        # Ambiguous; and deepspeed does not take - for _.
        (DEEPSPEED, "--num", "num", None),
        (DEEPSPEED, "--num-gpus=2", "num-gpus", "2"),
    ],
)
def test_one_argument(table: OptionTable, argument: str, name: str | None, inline: str | None) -> None:
    assert table.parse_argument(argument) == (name, inline)


def test_torchrun_options_end_at_the_script() -> None:
    split = TORCHRUN.parse(["--nproc-per", "2", "--stand", "--newer", "x", "-m", "pkg.train", "--nproc-per", "9"])
    assert [(option.name, option.value, option.typed) for option in split.options] == [
        ("nproc_per_node", "2", ("--nproc-per", "2")),
        ("standalone", "", ("--stand",)),
        ("newer", "x", ("--newer", "x")),
        ("module", "", ("-m",)),
    ]
    assert split.rest == ("pkg.train", "--nproc-per", "9")
    assert TORCHRUN.parse(["--", "--odd-script"]).rest == ("--odd-script",)
    assert TORCHRUN.parse(["--nnodes"]).options[0].value == ""


def test_other_programs_options_are_not_completed() -> None:
    assert long_option("--np=4") == ("np", "4")
    assert long_option("--num-processes") == ("num_processes", None)
    assert long_option("-np") == (None, None)


@pytest.mark.torch
def test_table_is_that_of_the_installed_torchrun() -> None:
    run = pytest.importorskip("torch.distributed.run", reason="torch is not installed")
    taken = {
        long[2:].replace("-", "_"): action.nargs == 0
        for action in run.get_args_parser()._actions
        for long in action.option_strings
        if long.startswith("--")
    }
    known = {**dict.fromkeys(TORCHRUN.flags, True), **dict.fromkeys(TORCHRUN.valued, False)}
    assert {name: is_flag for name, is_flag in taken.items() if known.get(name) != is_flag} == {}


def test_deepspeed_options_end_at_the_script_and_the_last_of_two_counts() -> None:
    split = DEEPSPEED.parse(["--num_gpus", "2", "--no_local_rank", "--module", "pkg.train", "--num_gpus", "9"])
    assert [(option.name, option.value) for option in split.options] == [("num_gpus", "2"), ("no_local_rank", ""), ("module", "")]
    assert split.rest == ("pkg.train", "--num_gpus", "9")
    assert DEEPSPEED.values(["--master_port", "1", "--no_ssh", "--master_port=2"]) == {"master_port": "2", "no_ssh": ""}


def test_options_without_effect_on_one_host_and_those_that_silence_the_runner() -> None:
    assert is_for_one_host("num_nodes", "1") and is_for_one_host("no_ssh", "")
    assert not is_for_one_host("num_nodes", "2") and not is_for_one_host("master_port", "1")
    assert is_quiet("quiet", "") and is_quiet("log_level", "warning")
    assert not is_quiet("log_level", "info") and not is_quiet("module", "")


def test_every_option_that_is_refused_is_known() -> None:
    assert set(NOT_PASSED_ON) <= DEEPSPEED.names


def launcher_source(name: str) -> str:
    """A file of the installed deepspeed, which takes seconds to import and is not."""
    found = importlib.util.find_spec("deepspeed")
    if found is None or found.origin is None:
        pytest.skip("deepspeed is not installed")
    return (Path(found.origin).parent / "launcher" / name).read_text()


def test_table_is_that_of_the_installed_deepspeed() -> None:
    calls = [node for node in ast.walk(ast.parse(launcher_source("runner.py"))) if isinstance(node, ast.Call)]
    taken = {}
    for call in (call for call in calls if ast.unparse(call.func) == "parser.add_argument"):
        is_flag = any(keyword.arg == "action" and ast.literal_eval(keyword.value) == "store_true" for keyword in call.keywords)
        taken.update({ast.literal_eval(word): is_flag for word in call.args})
    known = {f"--{name}": True for name in DEEPSPEED.flags} | {f"--{name}": False for name in DEEPSPEED.valued}
    known |= {short: name in DEEPSPEED.flags for short, name in DEEPSPEED.short_names.items()} | {
        f"--{name}": False for name in DEEPSPEED.other_names
    }
    assert len(taken) > 20
    assert {name: is_flag for name, is_flag in taken.items() if name.startswith("-") and known.get(name) != is_flag} == {}


def test_lines_and_names_that_are_read_are_those_of_the_installed_launcher() -> None:
    source = launcher_source("launch.py")
    assert all(text in source for text in ("exits successfully.", "exits with return code = ", "_rank{dist_rank}.log", "%Y%m%d%H%M%S"))


def test_the_users_ssh_options_come_before_ours() -> None:
    argv = ssh_command("node1", ("echo", "a b"), USERS)
    assert argv[: len(USERS) + 1] == ["ssh", *USERS] and argv[-3:] == ["node1", "--", "echo 'a b'"]
    assert argv.index("BatchMode=no") < argv.index("BatchMode=yes")
    assert pdsh_args(USERS, {PDSH_APPEND: "-p '2 2'"}) == (*USERS, "-p", "2 2")
    with pytest.raises(HostError) as raised:
        pdsh_args((), {PDSH_APPEND: "-o 'x"})
    assert raised.value.cause == "bad_argument"
