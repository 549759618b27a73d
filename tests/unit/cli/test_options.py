"""Options that several verbs share: each is described once, and every verb that has it has the same."""

from __future__ import annotations

import importlib
import typing
from collections import defaultdict
from pathlib import Path

import pytest
import typer

from seatrial.cli import options
from seatrial.cli.main import VERBS

SHARED = {name: value for name, value in vars(options).items() if typing.get_origin(value) is typing.Annotated}
# A sweep has no plan to name another folder, and an export writes to a file of its own.
OTHERWISE = {("sweep", "--out"), ("watch", "--open"), ("export", "--output"), ("prepare", "--verify")}


def flags_of(annotated: object) -> tuple[str, ...]:
    """`--json` and so on of an option; none for an argument."""
    given = typing.get_args(annotated)[1]
    return tuple(given.param_decls or ()) if isinstance(given, typer.models.OptionInfo) else ()


def typed_here() -> dict[str, set[str]]:
    """Flag → verbs whose own module describes it."""
    found: dict[str, set[str]] = defaultdict(set)
    for verb in VERBS:
        module = importlib.import_module(f"seatrial.cli.{verb}")
        for value in vars(module).values():
            if typing.get_origin(value) is typing.Annotated and not any(value is shared for shared in SHARED.values()):
                for flag in flags_of(value):
                    found[flag].add(verb)
    return found


def test_nothing_shared_is_described_again_by_a_verb() -> None:
    shared = {flag for value in SHARED.values() for flag in flags_of(value)}
    again = {(verb, flag) for flag, verbs in typed_here().items() if flag in shared for verb in verbs}
    assert again - OTHERWISE == set()


@pytest.mark.parametrize("name", sorted(SHARED))
def test_each_has_a_metavar_or_is_a_flag_and_says_what_it_does(name: str) -> None:
    kind, info = typing.get_args(SHARED[name])[:2]
    assert info.help and info.help.endswith("."), "one sentence"
    assert kind is bool or info.metavar


def test_an_empty_folder_is_a_variable_that_was_not_set() -> None:
    assert options._folder("out") == Path("out")
    with pytest.raises(typer.BadParameter, match="it is empty; name a folder"):
        options._folder("")
