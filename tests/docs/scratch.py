"""The folder in which a page's commands run, and the shell that runs them. In: a page, an empty folder. Out: how it ended.

The folder is a separate checkout, in which the page may write. Some commands have a stub:

    make    prints the recipe of every target, and runs the demo with fewer steps: CI runs the lanes themselves
    pip     installs nothing, and checks that extras and packages exist
    git     `git clone` links this checkout

Everything else is the real program.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cluster.hosts import Hosts
from tests.cluster.state import living
from tests.docs.pages import ROOT, Block, Page
from tests.processes import carrying
from tests.runbooks.working_folder import FOREIGN
from tests.waiting import wait_until

STAND_INS = Path(__file__).parent / "stand_ins"
COPIED = ("src", "plans", "runbooks", "benchmarks", "docs", "tests")
MARK = "PAGE_UNDER_TEST"
"""In the environment of every process that a page starts: the folder of the page."""
TIMEOUT_S = 360
GONE_WITHIN_S = 20.0
_SESSION = """
set -Eeuo pipefail
trap 'echo $LINENO > "$PAGE_UNDER_TEST/line"' ERR
cd "$PAGE_UNDER_TEST/checkout"
for page_block in "$PAGE_UNDER_TEST"/blocks/*.sh; do
  basename "$page_block" .sh > "$PAGE_UNDER_TEST/block"
  source "$page_block"
done
"""


@dataclass(frozen=True)
class Ended:
    """How the commands of a page ended."""

    code: int | None
    """None: they were still running at the timeout."""
    output: str
    block: int
    """Which of the page's blocks was the last to be begun."""
    line: int
    """The line in it that failed; 1 where that is not known."""
    left: list[str]
    """Processes that outlived the page."""


def lay_out(folder: Path) -> Path:
    """A checkout in `folder`, copied so that a page may also change the code."""
    checkout = folder / "checkout"
    for name in COPIED:
        # Bytecode of the code is copied too: otherwise every program would compile it again.
        shutil.copytree(ROOT / name, checkout / name, ignore=None if name == "src" else shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, checkout)
    return checkout


def environment(folder: Path) -> dict[str, str]:
    """A reader's shell with the virtual environment activated, without a GPU, with its home in this folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith((*FOREIGN, "GITHUB_"))}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        **inherited,
        MARK: str(folder),
        "PATH": f"{STAND_INS}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        # The code of this checkout, whatever the environment was installed from.
        "PYTHONPATH": str(folder / "checkout" / "src"),
        "HOME": str(home),
        "SEATRIAL_FALLBACK_DIR": str(folder / "fallback"),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "140",
        # Nothing may be fetched: what is missing must be an error at once.
        "HF_HUB_OFFLINE": "1",
        "PIP_NO_INDEX": "1",
    }


def run_page(page: Page, folder: Path, gone_within_s: float = GONE_WITHIN_S) -> Ended:
    """Write the page's files and run its commands in order, in one shell; its processes must end within `gone_within_s`."""
    lay_out(folder)
    (folder / "blocks").mkdir()
    for number, block in enumerate(page.blocks):
        if block.title or is_run(block):
            (folder / "blocks" / f"{number:03d}.sh").write_text(_written(block, folder, number) if block.title else block.text)
    output = folder / "output"
    with open(output, "wb") as text:
        process = subprocess.Popen(
            ["bash", "-c", _SESSION],
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=text,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(process)
    left = _left_behind(folder, gone_within_s)
    return Ended(code, output.read_text(errors="replace"), _number(folder / "block", 0), _number(folder / "line", 1), left)


def is_run(block: Block) -> bool:
    """Whether it holds commands for the reader's shell without a reason not to run them."""
    return block.language == "bash" and not block.title and not block.why_not_run


def _written(block: Block, folder: Path, number: int) -> str:
    """Commands that write the reader's file, relative to the current directory."""
    source = folder / f"file-{number}"
    source.write_text(block.text)
    return f'mkdir -p "$(dirname "{block.title}")"\ncp "{source}" "{block.title}"\n'


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def _left_behind(folder: Path, within_s: float) -> list[str]:
    """Processes that outlive the page and hosts that it did not take down; they are ended."""
    clusters = [state for state in living() if Path(state.work_folder).is_relative_to(folder)]
    for state in clusters:
        Hosts(state).down(remove_files=True)
    hosts = [f"the hosts of cluster {state.id}" for state in clusters]
    try:
        wait_until(lambda: not carrying(MARK, folder), "every process of the page ends", within_s)
    except AssertionError:
        return hosts + [command for process in carrying(MARK, folder) if (command := _ended(process))]
    return hosts


def _ended(process: psutil.Process) -> str:
    """Kill it; its command, empty where it has already ended: a zombie has none."""
    try:
        command = " ".join(process.cmdline())
        process.kill()
    except psutil.NoSuchProcess:
        return ""
    return command


def _number(path: Path, otherwise: int) -> int:
    return int(path.read_text()) if path.exists() else otherwise
