"""Every promise of docs/security.md names an existing module and an existing test; its bounds are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from seatrial.core import files, log_lines
from seatrial.core.control_connection import server as control_server
from seatrial.plan import yaml_text
from seatrial.report.html import page
from seatrial.web import access, server

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
    ("text", "actual", "documented"),
    [
        (f"{yaml_text.MOST_NODES:,} values and {yaml_text.DEEPEST_NESTING} levels", "30,000 values and 40 levels", None),
        ("one MiB", yaml_text.LARGEST_FILE_BYTES, MIB),
        ("one second of processor time", log_lines.LONGEST_SEARCH_S, 1.0),
        ("64 KiB, five seconds and one of 64 places", control_server.MAX_HELLO_BYTES, 64 * KIB),
        ("five seconds and one of", control_server.AUTHENTICATE_TIMEOUT_S, 5.0),
        ("one of 64 places", control_server.MAX_UNAUTHENTICATED, 64),
        ("JSON above 256 MiB", files.LARGEST_JSON_BYTES, 256 * MIB),
        ("0644 less your umask", files.READABLE, 0o644),
        ("private ones with 0600", files.PRIVATE, 0o600),
        ("a folder of mode 0700", files.PRIVATE_FOLDER, 0o700),
        ("`command.sh` 0700", files.PRIVATE_PROGRAM, 0o700),
        ("listens on 127.0.0.1 only", server.HOST, "127.0.0.1"),
        ("a token of 32 random bytes, new at every start", access.TOKEN_BYTES, 32),
        ("any method but GET and HEAD", access.METHODS, ("GET", "HEAD")),
        ("cut after five seconds", server.REQUEST_TIMEOUT_S, 5.0),
    ],
)
def test_a_bound_of_the_page_is_that_of_the_code(text: str, actual: object, documented: object) -> None:
    plain = " ".join(TEXT.split())
    assert text in plain
    assert actual == documented if documented is not None else text == actual


def test_the_content_security_policy_is_that_of_the_page() -> None:
    assert "`default-src 'none'`" in TEXT and "default-src 'none'" in Path(page.__file__).read_text(encoding="utf-8")
