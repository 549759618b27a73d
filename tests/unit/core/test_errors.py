"""The tree of errors, who raises from it, and messages that any terminal can show."""

from __future__ import annotations

import ast
import signal
from pathlib import Path

import pytest

from seatrial.core import errors
from seatrial.core.errors import (
    CampaignError,
    HostError,
    HostfileError,
    LaunchError,
    PlanError,
    RefusedError,
    SeatrialError,
    UsageError,
    did_you_mean,
    nearest,
    printable,
)
from seatrial.records.verdict import Verdict

SOURCE = Path(errors.__file__).parents[1]
TREE = {name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, SeatrialError)}
# Raised where no user of ours is the one to mend it, or where the key is not known yet: see the docstring of `errors`.
BESIDES = {
    "ValueError",
    "SettingProblem",
    "PlaceholderProblem",
    "KeyboardInterrupt",
    "AssertionError",
    "OSError",
    "ModuleNotFoundError",
}


@pytest.mark.parametrize("folder", ["plan", "campaign", "results", "cli", "web", "history", "probe"])
def test_what_is_raised_is_in_the_tree(folder: str) -> None:
    wrong = []
    for path in sorted((SOURCE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                name = node.exc.func.id
                if name[0].isupper() and name not in TREE and name not in BESIDES:
                    wrong.append(f"{path.name}:{node.lineno} raises {name}")
    assert wrong == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PlanError("is empty"), "is empty"),
        (PlanError("is empty", key="axes"), "axes: is empty"),
        (PlanError("is empty", file="p.yaml", line=3, key="axes"), "p.yaml:3: axes: is empty"),
        (HostfileError("no slots", file=Path("hosts"), line=2), "hosts:2: no slots"),
        (HostfileError("no slots"), "no slots"),
        (HostError("does not call", host="node2", cause="node_gone"), "does not call"),
    ],
)
def test_a_message_names_the_place(error: SeatrialError, text: str) -> None:
    assert str(error) == text


def test_the_nearest_word_or_all_of_them() -> None:
    assert nearest("torchrn", ["torchrun", "python"]) == "torchrun" and nearest("zzz", ["python"]) is None and nearest("x", []) is None
    assert did_you_mean("torchrn", ["torchrun", "python"]) == "did you mean 'torchrun'?"
    assert did_you_mean("zzz", ["python", "deepspeed"]) == "known: deepspeed, python"
    assert did_you_mean("zzz", []) == "none is known here"


def test_a_message_has_no_control_characters_and_no_endless_words() -> None:
    assert printable("a\x1b[31m b\x00 c\udce9 d\te é ✓\nnext") == "a\\x1b[31m b\\x00 c\\udce9 d\\te é ✓\nnext"
    assert printable(f"{'a' * 500}{'b' * 501} too long") == f"{'a' * 200}…{'b' * 100} too long"
    assert printable("x" * 399) == "x" * 399


def test_exit_codes() -> None:
    assert (errors.DONE, errors.WRONG_USE, errors.INTERRUPTED) == (0, 1, 128 + signal.SIGINT)
    assert [verdict.exit_code for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)] == [0, 2, 3]
    assert [error.exit_code for error in (UsageError, CampaignError, LaunchError, RefusedError)] == [1, 1, 1, 2]
    assert set(errors.STOP_SIGNALS) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
