"""The procedures' blocks for many machines, run on the hosts of a cluster. In: a section's key. Out: exit code and output of its block,
and the programs that it starts.

The working folder is that of the runbooks lane (tests/runbooks), shared by all hosts; blocks are rewritten by the same table. The shell has
the environment of a login there: real pdsh, real ssh, the real deepspeed runner.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.hosts import Hosts
from tests.cluster.running import Started
from tests.runbooks.blocks import Block, Section, runbook_sections, seed_sections
from tests.runbooks.recording import Call, recorded
from tests.runbooks.rewrites import rewritten
from tests.runbooks.working_folder import lay_out

LONGEST_S = 150.0
# What deepspeed does not export to other hosts by itself, in the file where it looks for more.
FOR_RANKS = "OMP_NUM_THREADS=1\nHF_HUB_OFFLINE=1\n"
# For a command on the host itself.
SHELL_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

Change = Callable[[str], str]


@dataclass(frozen=True)
class SeedLane:
    """Hosts with a working folder, data prepared."""

    hosts: Hosts
    work: Path
    scratch: Path

    def run(self, key: str, *, number: int = 0, host: str = "head", change: Change = str) -> subprocess.CompletedProcess[str]:
        """One block, run on one host to its end; stdout and stderr together."""
        return self.ended(self.type_on(host, change(self.text(key, number))))

    def type_on(self, host: str, text: str) -> Started:
        return self.hosts.start(host, ["bash", "-c", text], env=SHELL_ENVIRONMENT, cwd=self.work)

    def ended(self, started: Started) -> subprocess.CompletedProcess[str]:
        try:
            code = started.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            started.kill()
            raise AssertionError(f"still running after {LONGEST_S:.0f} s on {started.host}:\n{started.output[-6000:]}") from None
        return subprocess.CompletedProcess([started.host], code, started.output, "")

    def text(self, key: str, number: int = 0) -> str:
        return rewritten(block_of(key, number).text, key)

    def call(self, key: str, number: int = 0) -> Call:
        """The first program that the block starts."""
        return recorded([self.text(key, number)], self.scratch / f"{key} {number}".replace("/", "-"))[0]


def make_lane(hosts: Hosts, base: Path) -> SeedLane:
    """Lay out the working folder as in a repository, write the hostfile, prepare the data by the procedure itself."""
    work = base / "repository" / "runbooks" / "stage1"
    work.mkdir(parents=True)
    lay_out(work)
    hosts.hostfile(work / "hostfile")
    (work / ".deepspeed_env").write_text(FOR_RANKS)
    lane = SeedLane(hosts, work, base / "recorded")
    prepared = lane.run("README Data")
    assert prepared.returncode == 0, prepared.stdout
    return lane


def has_section(key: str) -> bool:
    return any(section.key == key for section in _sections())


def block_of(key: str, number: int) -> Block:
    return next(section for section in _sections() if section.key == key).blocks[number]


def _sections() -> list[Section]:
    return [*runbook_sections(), *seed_sections()]
