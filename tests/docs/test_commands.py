"""Every command of README.md, CONTRIBUTING.md and docs/ is run as a reader would, page by page, or has a reason why not.

The lane is `make test-docs`. What can be checked without running anything is in test_blocks.py.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from seatrial.report.html.print import find_browser
from tests.cluster.machines import unavailable
from tests.docs.pages import Page, name_of, page_at, pages
from tests.docs.scratch import Ended, is_run, run_page

pytestmark = [pytest.mark.docs, pytest.mark.timeout(400)]

LAST_LINES = 40
USES_HOSTS = "tests.cluster up"


def _commands(path: Path) -> str:
    return "".join(block.text for block in page_at(path).blocks if is_run(block))


def _with_commands() -> list[Any]:
    return [pytest.param(path, id=name_of(path)) for path in pages() if _commands(path)]


@pytest.mark.parametrize("path", _with_commands())
def test_the_commands_of_a_page_run(path: Path, tmp_path: Path, shared_root: Path) -> None:
    if lacking := _lacking(_commands(path)):
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)(lacking)
    page = page_at(path)
    with _turn(_commands(path), shared_root):
        ended = run_page(page, tmp_path)
    assert ended.code == 0, _failure(path, page, ended)
    assert not ended.left, f"{name_of(path)} leaves processes behind: {ended.left}\n{ended.output[-2000:]}"


def _turn(commands: str, shared_root: Path) -> contextlib.AbstractContextManager[object]:
    """One page with hosts at a time: its commands do not name a cluster."""
    return FileLock(shared_root / "hosts.lock") if USES_HOSTS in commands else contextlib.nullcontext()


def _lacking(commands: str) -> str:
    """What the commands need and this machine lacks: skipped, but under CI=1 a failure."""
    reason = unavailable() if USES_HOSTS in commands else ""
    if reason:
        return f"no hosts can be created here: {reason}"
    return "there is no browser to print with" if "--pdf" in commands and find_browser() is None else ""


def _failure(path: Path, page: Page, ended: Ended) -> str:
    block = page.blocks[ended.block]
    how = f"exit code {ended.code}" if ended.code is not None else "it did not end"
    last = "\n".join(ended.output.splitlines()[-LAST_LINES:])
    return f"{name_of(path)}:{block.line + ended.line - 1}: {how}, in the block\n{block.text}\nwhich ends with\n{last}"
