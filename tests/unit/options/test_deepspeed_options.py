"""Words after deepspeed, taken as its own parser takes them."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from seatrial.options.deepspeed import FLAGS, NOT_PASSED_ON, OPTIONS, VALUED, is_for_one_host, is_quiet, option_of, split_words, values_in


@pytest.mark.parametrize(
    ("word", "name", "inline"),
    [
        ("--num_gpus", "num_gpus", None),
        ("--num_gpus=2", "num_gpus", "2"),
        ("--num_accelerators=2", "num_gpus", "2"),
        ("--num_a", "num_gpus", None),
        ("--incl=localhost:0,1", "include", "localhost:0,1"),
        ("-i", "include", None),
        ("-ilocalhost:0", "include", "localhost:0"),
        ("-H", "hostfile", None),
        ("-q", "quiet", None),
        ("--enable", "enable_each_rank_log", None),
        # Exact, though it begins another one's name too.
        ("--launcher", "launcher", None),
        ("--no_ssh", "no_ssh", None),
        # Could be several, so deepspeed refuses it; and it does not take - for _.
        ("--num", "num", None),
        ("--num-gpus=2", "num-gpus", "2"),
        ("--of_a_newer_deepspeed", "of_a_newer_deepspeed", None),
        ("--", None, None),
        ("train.py", None, None),
    ],
)
def test_one_word(word: str, name: str | None, inline: str | None) -> None:
    assert option_of(word) == (name, inline)


def test_options_end_at_the_script() -> None:
    split = split_words(["--num_gpus", "2", "--no_local_rank", "--module", "pkg.train", "--num_gpus", "9"])
    assert [(option.name, option.value) for option in split.options] == [("num_gpus", "2"), ("no_local_rank", ""), ("module", "")]
    assert split.rest == ("pkg.train", "--num_gpus", "9")
    assert values_in(["--master_port", "1", "--master_port=2"]) == {"master_port": "2"}


def test_what_says_nothing_on_one_host() -> None:
    assert is_for_one_host("num_nodes", "1") and is_for_one_host("no_ssh", "") and is_for_one_host("node_rank", "0")
    assert not is_for_one_host("num_nodes", "2") and not is_for_one_host("hostfile", "") and not is_for_one_host("master_port", "1")


def test_what_would_silence_the_runner() -> None:
    assert is_quiet("quiet", "") and is_quiet("log_level", "warning")
    assert not is_quiet("log_level", "debug") and not is_quiet("log_level", "info") and not is_quiet("module", "")


def test_every_option_that_is_refused_is_known() -> None:
    assert set(NOT_PASSED_ON) <= OPTIONS.names


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
    known = {f"--{name}": True for name in FLAGS} | {f"--{name}": False for name in VALUED}
    known |= {short: name in FLAGS for short, name in OPTIONS.short_names.items()} | {f"--{name}": False for name in OPTIONS.other_names}
    assert len(taken) > 20
    assert {name: is_flag for name, is_flag in taken.items() if name.startswith("-") and known.get(name) != is_flag} == {}


@pytest.mark.parametrize("words", ["exits successfully.", "exits with return code = ", "_rank{dist_rank}.log", "%Y%m%d%H%M%S"])
def test_what_is_read_of_the_launcher_is_what_the_installed_one_writes(words: str) -> None:
    assert words in launcher_source("launch.py")
