"""Every command named in pages, plans and messages of the code exists, with its verb, options, target or file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.docs.documented_commands import commands_in, wrong_with
from tests.docs.pages import ROOT, all_pages, name_of, page_at

SOURCES = sorted(path for folder in ("src", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py"))
PLANS = sorted((ROOT / "plans").rglob("*.yaml"))
SIGNATURES = sorted((ROOT / "src" / "seatrial" / "records" / "signatures").glob("*.toml"))
_TICKED = re.compile(r"`(?P<command>(?:seatrial|make|python) [^`]+)`")
_IN_COMMENT = re.compile(r"^#\s+(?P<command>seatrial [a-z].*?)(?:\s{2,}.*)?$", re.MULTILINE)


@pytest.mark.parametrize("path", all_pages(), ids=name_of)
def test_commands_in_inline_code_exist(path: Path) -> None:
    page = page_at(path)
    assert _wrong((span.line, span.text) for span in page.code) == []


@pytest.mark.parametrize("path", all_pages(), ids=name_of)
def test_commands_in_blocks_exist(path: Path) -> None:
    page = page_at(path)
    assert _wrong((block.line, block.text) for block in page.blocks if block.language == "bash") == []


@pytest.mark.parametrize("path", PLANS, ids=name_of)
def test_commands_in_the_comments_of_plans_exist(path: Path) -> None:
    text = path.read_text()
    assert _wrong((text.count("\n", 0, found.start()) + 1, found["command"]) for found in _IN_COMMENT.finditer(text)) == []


def test_commands_that_the_code_names_exist() -> None:
    wrong = {name_of(path): _wrong(_ticked_in(path)) for path in SOURCES}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize("path", SIGNATURES, ids=name_of)
def test_commands_in_the_advice_of_signatures_exist(path: Path) -> None:
    text = path.read_text()
    assert _wrong((text.count("\n", 0, found.start()) + 1, found["command"]) for found in _TICKED.finditer(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "seatrial --version",
        "seatrial run PLAN",
        "seatrial run --set",
        "seatrial run plan.yaml --track tensorboard",
        "seatrial sweep -P bs=8,16 -P nw=0,2 --repeats 3 -- torchrun --nproc_per_node 2 train.py --bs {bs} --workers {nw}",
        "seatrial export OUT ranked | column -s, -t",
        'A=1 seatrial report OUT --png || echo "exit code $?"   # a remark with seatrial nonsense',
        "seatrial report OUT --json 2> /dev/null | tail -n 1",
        "seatrial plan show PLAN",
        "seatrial history …",
        "make test-faults",
        "python -m seatrial.agent",
        "python -m tests.cluster up",
        "python benchmarks/startup.py",
        "python train.py",
        "seatrial is no command where quotes don't close",
    ],
)
def test_what_exists_is_accepted(text: str) -> None:
    assert _wrong([(1, text)]) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seatrial rum PLAN", "there is no verb 'rum'"),
        ("seatrial plan shw PLAN", "there is no verb 'shw'"),
        ("seatrial run PLAN --sett a=b", "No such option: --sett"),
        ("seatrial stop A B C", "is one argument too many"),
        ("true && seatrial watch OUT --wep", "No such option"),
        ("seatrial run PLAN \\\n  --nope", "No such option"),
        ("make tests", "the Makefile has no tests"),
        ("python -m seatrial.nothing", "there is no module"),
        ("python benchmarks/nothing.py", "there is no file"),
    ],
)
def test_what_does_not_exist_is_found(text: str, problem: str) -> None:
    (wrong,) = _wrong([(7, text)])
    assert wrong.startswith("line 7: ")
    assert problem in wrong


def _wrong(texts: Iterable[tuple[int, str]]) -> list[str]:
    found = [(line, argv) for line, text in texts for argv in commands_in(text)]
    return [f"line {line}: {' '.join(argv)}: {why}" for line, argv in found if (why := wrong_with(argv))]


def _ticked_in(path: Path) -> Iterator[tuple[int, str]]:
    """Commands in backticks in the strings of a module, docstrings included; interpolated values are placeholders."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "FILLED" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        for found in _TICKED.finditer(text):
            yield node.lineno, " ".join(found["command"].split())
