"""Words after torchrun, taken as torchrun's own parser takes them."""

from __future__ import annotations

import pytest

from seatrial.options.torchrun import FLAGS, VALUED, option_of, split_words, values_in
from seatrial.options.words import long_option


@pytest.mark.parametrize(
    ("word", "name", "inline"),
    [
        ("--nproc-per-node", "nproc_per_node", None),
        ("--nproc_per_node=2", "nproc_per_node", "2"),
        ("--nproc-per", "nproc_per_node", None),
        ("--nproc_per-node", "nproc_per_node", None),
        ("--np=4", "nproc_per_node", "4"),
        ("--stand", "standalone", None),
        ("--log-d=x=y", "log_dir", "x=y"),
        ("--tee=", "tee", ""),
        ("-r", "redirects", None),
        ("-r3", "redirects", "3"),
        ("-t=3", "tee", "3"),
        ("-m", "module", None),
        # Could be several, so torchrun refuses it: left as typed.
        ("--no", "no", None),
        ("--rdzv", "rdzv", None),
        ("--of-a-newer-torchrun", "of_a_newer_torchrun", None),
        ("--", None, None),
        ("train.py", None, None),
        ("-mt3", None, None),
    ],
)
def test_one_word(word: str, name: str | None, inline: str | None) -> None:
    assert option_of(word) == (name, inline)


def test_options_end_at_the_script() -> None:
    split = split_words(["--nproc-per", "2", "--stand", "--newer", "x", "-m", "pkg.train", "--nproc-per", "9"])
    assert [(option.name, option.value, option.words) for option in split.options] == [
        ("nproc_per_node", "2", ("--nproc-per", "2")),
        ("standalone", "", ("--stand",)),
        ("newer", "x", ("--newer", "x")),
        ("module", "", ("-m",)),
    ]
    assert split.rest == ("pkg.train", "--nproc-per", "9")
    assert split_words(["--", "--odd-script"]).rest == ("--odd-script",)
    assert split_words(["--nnodes"]).options[0].value == ""


def test_last_of_two_counts() -> None:
    assert values_in(["--log-dir", "a", "--standalone", "--log_dir=b"]) == {"log_dir": "b", "standalone": ""}


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
    known = {**dict.fromkeys(FLAGS, True), **dict.fromkeys(VALUED, False)}
    assert {name: is_flag for name, is_flag in taken.items() if known.get(name) != is_flag} == {}
