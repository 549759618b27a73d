"""Wherever a text names a command of ours, its verb, options, target or file exist: in pages, plans, and in what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.docs.command_words import commands_in, make_targets, wrong_with
from tests.docs.pages import ROOT, all_pages, name_of, page_at

SOURCES = sorted(path for folder in ("src", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py"))
PLANS = sorted((ROOT / "plans").rglob("*.yaml"))
SIGNATURES = sorted((ROOT / "src" / "seatrial" / "signatures").glob("*.toml"))
_TICKED = re.compile(r"`(?P<words>(?:seatrial|make|python) [^`]+)`")
_IN_COMMENT = re.compile(r"^#\s+(?P<words>seatrial [a-z].*?)(?:\s{2,}.*)?$", re.MULTILINE)


@pytest.mark.parametrize("path", all_pages(), ids=name_of)
def test_commands_in_inline_code_exist(path: Path) -> None:
    page = page_at(path)
    assert _wrong((spoken.line, spoken.text) for spoken in page.code) == []


@pytest.mark.parametrize("path", all_pages(), ids=name_of)
def test_commands_in_blocks_exist(path: Path) -> None:
    page = page_at(path)
    assert _wrong((block.line, block.text) for block in page.blocks if block.language == "bash") == []


@pytest.mark.parametrize("path", PLANS, ids=name_of)
def test_commands_in_the_comments_of_plans_exist(path: Path) -> None:
    text = path.read_text()
    assert _wrong((text.count("\n", 0, found.start()) + 1, found["words"]) for found in _IN_COMMENT.finditer(text)) == []


def test_commands_that_the_code_names_exist() -> None:
    wrong = {name_of(path): _wrong(_ticked_in(path)) for path in SOURCES}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize("path", SIGNATURES, ids=name_of)
def test_commands_in_the_advice_of_signatures_exist(path: Path) -> None:
    text = path.read_text()
    assert _wrong((text.count("\n", 0, found.start()) + 1, found["words"]) for found in _TICKED.finditer(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "seatrial",
        "seatrial --version",
        "seatrial run PLAN",
        "seatrial run --set",
        "seatrial run plan.yaml --track tensorboard",
        "seatrial sweep -P bs=8,16 -P nw=0,2 --repeats 3 -- torchrun --nproc_per_node 2 train.py --bs {bs} --workers {nw}",
        "seatrial export OUT ranked | column -s, -t",
        'A=1 seatrial report OUT --png || echo "exit code $?"   # a remark with seatrial nonsense',
        "seatrial report OUT --json 2> /dev/null | tail -n 1",
        "seatrial plan show PLAN",
        "seatrial plan",
        "seatrial history …",
        "make test-faults",
        "python -m seatrial.agent",
        "python -m tests.cluster up",
        "python benchmarks/startup.py",
        "python train.py",
        "seatrial is no command where quotes don't close",
    ],
)
def test_what_exists_is_taken(text: str) -> None:
    assert _wrong([(1, text)]) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seatrial rum PLAN", "there is no verb 'rum'"),
        ("seatrial plan shw PLAN", "there is no verb 'shw'"),
        ("seatrial run PLAN --sett a=b", "No such option: --sett"),
        ("seatrial stop A B C", "is more than it takes"),
        ("true && seatrial watch OUT --wep", "No such option"),
        ("seatrial run PLAN \\\n  --nope", "No such option"),
        ("make tests", "the Makefile has no tests"),
        ("python -m seatrial.nothing", "there is no module"),
        ("python benchmarks/nothing.py", "there is no file"),
    ],
)
def test_what_does_not_exist_is_told(text: str, says: str) -> None:
    (wrong,) = _wrong([(7, text)])
    assert wrong.startswith("line 7: ")
    assert says in wrong


def test_targets_are_read_from_the_makefile() -> None:
    assert {"demo", "test", "docs"} <= make_targets()
    assert not {"PYTHON", "VENV", "%"} & make_targets()


def _wrong(texts: Iterable[tuple[int, str]]) -> list[str]:
    found = [(line, words) for line, text in texts for words in commands_in(text)]
    return [f"line {line}: {' '.join(words)}: {why}" for line, words in found if (why := wrong_with(words))]


def _ticked_in(path: Path) -> Iterator[tuple[int, str]]:
    """Commands between backticks in the strings of a module, docstrings included; what is filled in is a word of the reader's."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "FILLED" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        for found in _TICKED.finditer(text):
            yield node.lineno, " ".join(found["words"].split())
