"""The shell of a page: one shell, which stops where a command fails, and no process outlives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, parse
from tests.docs.scratch import MARK, Ended, run_page
from tests.processes import carrying
from tests.waiting import wait_until

pytestmark = pytest.mark.docs


def run(text: str, folder: Path) -> Ended:
    return run_page(parse(text), folder, gone_within_s=0.5)


def test_blocks_share_a_shell_and_files_are_written_before_what_follows(tmp_path: Path) -> None:
    ended = run(
        "```bash\nexport A=1\nmkdir in && cd in\n```\n```python title=code/hello.py\nprint('hello')\n```\n```text\nnot run\n```\n"
        "<!-- not run: would fail -->\n```bash\nfalse\n```\n```bash\npython code/hello.py\necho A is $A\nfalse || echo went on\n```\n",
        tmp_path,
    )
    assert (ended.code, ended.left) == (0, [])
    assert ended.output.split("\n") == ["hello", "A is 1", "went on", ""]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("```bash\ntrue\n```\n```bash\ntrue\n\nfalse\necho not reached\n```\n", 3),
        ("```bash\ntrue\n```\n```bash\nfalse | true\n```\n", 1),
        ("```bash\ntrue\n```\n```bash\necho $NOBODY_SET_THIS\n```\n", 1),
    ],
)
def test_a_failing_command_ends_the_page_and_is_located(text: str, line: int, tmp_path: Path) -> None:
    ended = run(text, tmp_path)
    assert ended.code
    assert (ended.block, ended.line) == (1, line)
    assert "not reached" not in ended.output


def test_what_is_left_running_is_reported_and_ended(tmp_path: Path) -> None:
    # The shell's child is still a shell until it calls exec.
    ended = run("```bash\nsleep 1000 &\nuntil grep -q sleep /proc/$!/comm; do :; done\n```\n", tmp_path)
    assert ended.code == 0
    assert ended.left == ["sleep 1000"]
    wait_until(lambda: not carrying(MARK, tmp_path), "it is ended")


def test_a_page_writes_into_a_checkout_of_its_own(tmp_path: Path) -> None:
    ended = run("```bash\ntouch plans/mine.yaml docs/mine.md runbooks/stage1/mine ~/mine\nls src/seatrial/__init__.py\n```\n", tmp_path)
    assert ended.code == 0
    assert (tmp_path / "checkout" / "plans" / "mine.yaml").exists()
    assert not list(ROOT.glob("*/mine.*"))


def test_stubs_accept_what_exists_and_nothing_else(tmp_path: Path) -> None:
    accepted = [
        "pip install .",
        "pip install -e '.[workloads,charts]'",
        "pip install 'seatrial[stage1]' tensorboard",
        "make test",
        "git --version",
        "git clone https://example.org/seatrial.git && cd seatrial && ls plans",
    ]
    refused = ["pip install 'seatrial[stage9]'", "pip install a-package-of-nobody", "pip uninstall seatrial", "make no-such-target"]
    lines = [*accepted, *(f"if {command}; then exit 1; fi" for command in refused)]
    ended = run("```bash\n" + "\n".join(lines) + "\n```\n", tmp_path)
    assert ended.code == 0, f"line {ended.line}: {ended.output}"
    assert "no extra stage9" in ended.output
