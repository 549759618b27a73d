"""Every promise of docs/security.md names a module that is there and a test that is there; its bounds are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from seatrial import bounded_pattern, files
from seatrial.disk import modes
from seatrial.line import switchboard
from seatrial.plan import plan_file, yaml_text
from seatrial.report.html import document
from seatrial.web import access, prompt, serve

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
TEXT = PAGE.read_text(encoding="utf-8")
_PROMISE = re.compile(
    r"^\| (?P<promise>[^|]+) \| `(?P<module>[\w/]+\.py)` \| `(?P<file>tests/[\w/]+\.py)::(?P<test>\w+)` \|$", re.MULTILINE
)
PROMISES = [(found["promise"], found["module"], found["file"], found["test"]) for found in _PROMISE.finditer(TEXT)]
KIB, MIB = 1024, 1024 * 1024


def test_every_row_of_the_table_is_read() -> None:
    _, _, rest = TEXT.partition("## Promises, and the tests that show them")
    table = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert len(PROMISES) == len(table) - 1 > 25, "a row is not `promise`, `module.py` and `tests/….py::test_name`"


@pytest.mark.parametrize(("promise", "module", "file", "test"), PROMISES)
def test_a_promise_has_its_module_and_its_test(promise: str, module: str, file: str, test: str) -> None:
    assert (ROOT / "src" / "seatrial" / module).is_file(), f"{promise}: {module} is gone"
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{promise}: {file} has no {test}"


@pytest.mark.parametrize(
    ("words", "told", "found"),
    [
        (f"{yaml_text.MOST_NODES:,} values and {yaml_text.DEEPEST_NESTING} levels", "30,000 values and 40 levels", None),
        ("one MiB", plan_file.LARGEST_FILE_BYTES, MIB),
        ("one second of processor time", bounded_pattern.LONGEST_SEARCH_S, 1.0),
        ("64 KiB, five seconds and one of 64 places", switchboard.LONGEST_HELLO_BYTES, 64 * KIB),
        ("five seconds and one of", switchboard.INTRODUCE_WITHIN_S, 5.0),
        ("one of 64 places", switchboard.MOST_STRANGERS, 64),
        ("JSON above 256 MiB", files.LARGEST_JSON_BYTES, 256 * MIB),
        ("0644 less your umask", modes.READABLE, 0o644),
        ("private ones with 0600", modes.PRIVATE, 0o600),
        ("a folder of mode 0700", modes.PRIVATE_FOLDER, 0o700),
        ("`command.sh` 0700", modes.PRIVATE_PROGRAM, 0o700),
        ("listens on 127.0.0.1 only", serve.HOST, "127.0.0.1"),
        ("a token of 32 random bytes, new at every start", access.TOKEN_BYTES, 32),
        ("any method but GET and HEAD", access.METHODS, ("GET", "HEAD")),
        ("cut after five seconds", prompt.WHOLE_WITHIN_S, 5.0),
    ],
)
def test_a_bound_of_the_page_is_the_codes(words: str, told: object, found: object) -> None:
    plain = " ".join(TEXT.split())
    assert words in plain
    assert told == found if found is not None else words == told


def test_the_pages_policy_is_told_as_it_is() -> None:
    assert "`default-src 'none'`" in TEXT and "default-src 'none'" in Path(document.__file__).read_text(encoding="utf-8")
