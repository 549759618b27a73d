"""Runs blocks. In: a section, the working folder. Out: exit code, duration and output of every block.

The blocks of a section run one after another in one bash, each read by `source` as if typed: exports are visible to the next block, and a
block must end its own background processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.runbooks.blocks import Section
from tests.runbooks.recording import Call, recorded
from tests.runbooks.rewrites import rewritten
from tests.runbooks.working_folder import environment

TIMEOUT_S = 900
_SESSION = """
cd "$LANE_WORK"
for lane_block in "$LANE_BLOCKS"/*.sh; do
  lane_began=$EPOCHREALTIME
  source "$lane_block" > "${lane_block%.sh}.out" 2>&1
  echo "$? $lane_began $EPOCHREALTIME" > "${lane_block%.sh}.end"
done
"""


@dataclass(frozen=True)
class BlockRun:
    """How one block ended."""

    code: int
    seconds: float
    output: str


@dataclass(frozen=True)
class SectionRun:
    """The results of a section's blocks, and its calls."""

    key: str
    blocks: tuple[BlockRun, ...]
    calls: tuple[Call, ...]
    """The programs it started, as `recording` sees them."""

    @property
    def output(self) -> str:
        return "".join(block.output for block in self.blocks)

    def calls_of(self, program: str) -> list[Call]:
        return [call for call in self.calls if call.program == program]


@dataclass
class Lane:
    """The working folder, and what has been run in it. A section is run once."""

    work: Path
    scratch: Path
    done: dict[str, SectionRun] = field(default_factory=dict)

    def run(self, section: Section, change: Callable[[str], str] = str, name: str = "") -> SectionRun:
        """Run its blocks; `change` is applied to each text after the table's rewrites, under the key `name`."""
        key = name or section.key
        if key not in self.done:
            texts = [change(rewritten(block.text, section.key)) for block in (*section.preamble, *section.blocks)]
            self.done[key] = self._run(key, texts, skipped=len(section.preamble))
        return self.done[key]

    def _run(self, key: str, texts: list[str], skipped: int) -> SectionRun:
        place = self.scratch / f"{len(self.done):02d}"
        blocks = place / "blocks"
        blocks.mkdir(parents=True)
        for number, text in enumerate(texts):
            (blocks / f"{number:02d}.sh").write_text(text)
        calls = recorded(texts, place / "recording")
        self._session(blocks)
        runs = [_ended(path) for path in sorted(blocks.glob("*.sh"))]
        return SectionRun(key, tuple(runs[skipped:]), tuple(calls))

    def _session(self, blocks: Path) -> None:
        env = {**environment(self.work), "LANE_WORK": str(self.work), "LANE_BLOCKS": str(blocks)}
        process = subprocess.Popen(["bash", "-c", _SESSION], env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(TIMEOUT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _ended(path: Path) -> BlockRun:
    output = path.with_suffix(".out").read_text(errors="replace") if path.with_suffix(".out").exists() else ""
    ended = path.with_suffix(".end")
    if not ended.exists():
        raise AssertionError(f"the shell did not reach the end of this block:\n{path.read_text()}\n{output[-4000:]}")
    code, began, ended_at = ended.read_text().split()
    return BlockRun(int(code), float(ended_at) - float(began), output)
