"""Every file name of a campaign, once; and Seatrial's own environment variables.

    OUT/                        CampaignPaths(OUT)
    OUT/<group>_r<n>/           RunPaths: relative links to the current attempt, under stage 1's names
    OUT/<group>_r<n>/attempt-1/ AttemptPaths: what one attempt wrote; attempts never share a file
    OUT/allocations/allocation-1/ AllocationPaths: a Slurm job that holds nodes for one run after another

    BENCH/                      OriginalPaths: a folder of the original stage-1 scripts; BENCH/seatrial is the campaign it becomes

docs/files.md describes each of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.core.fallback import FALLBACK_DIR, IDENTITY

PREFIX = "SEATRIAL_"
HISTORY = f"{PREFIX}HISTORY"
"""The file of history rows."""
SET_BY_USERS = frozenset({FALLBACK_DIR, HISTORY})
"""All others are set by Seatrial for each rank, and must not be set in the shell that starts a campaign."""

# Prefix of small temporary files by which preflight checks that a folder is shared and writable.
TRIAL_PREFIX = ".seatrial-trial-"
TRIAL_SEEN = "seen"
"""Ends their names once the node has looked, after the job's number: they may be removed."""
BY_HAND = "by-hand"
"""Folder for the output of a command.sh that a person runs, in an attempt or one of its nodes."""
ATTEMPT_NAME = r"attempt-(\d+)"
"""Pattern of the name of an attempt's folder, with its number."""
ANY_ATTEMPT = "attempt-*"
"""Glob of these folders, which may match other names too."""
_ATTEMPT = re.compile(ATTEMPT_NAME)
_ALLOCATION = re.compile(r"allocation-(\d+)")


class InFolder:
    """Descriptor: the path of this name in the owner's folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, owner: Any, owner_type: type | None = None) -> Path:
        folder: Path = owner.folder
        return folder / self.name


@dataclass(frozen=True)
class JobPaths:
    """Files of a scheduler's job: of one attempt, or one that holds the nodes for many."""

    folder: Path

    job = InFolder("job.json")
    job_order = InFolder("job_order.json")
    job_script = InFolder("job.sbatch")
    job_log = InFolder("job.log")
    job_start = InFolder("job_start.json")
    job_stop = InFolder("job_stop.json")

    @property
    def campaign(self) -> Path:
        """The output folder."""
        return self.folder.parent.parent


@dataclass(frozen=True)
class AllocationPaths(JobPaths):
    """A job that holds its nodes for one run after another. Its attempts are in the folders of their runs."""

    job_end = InFolder("job_end.json")

    @property
    def number(self) -> int:
        match = _ALLOCATION.fullmatch(self.folder.name)
        return int(match.group(1)) if match else 0


@dataclass(frozen=True)
class AttemptPaths(JobPaths):
    """One attempt of one run."""

    spec = InFolder("spec.json")
    settings = InFolder("settings.json")
    command = InFolder("command.sh")
    activation = InFolder("activate.sh")
    agent_order = InFolder("agent.json")
    agent_log = InFolder("agent.log")
    call = InFolder("call.json")
    start_log = InFolder("start.log")
    environment = InFolder("environment.json")
    provenance = InFolder("provenance.json")
    launcher_log = InFolder("launcher.log")
    arrivals = InFolder("launcher_arrivals.csv")
    rank_logs = InFolder("ranks")
    train_log = InFolder("train.log")
    resolved_config = InFolder("resolved_config.yaml")
    run_context = InFolder("run_context.json")
    checkpoints = InFolder("checkpoints")
    resume = InFolder("resume.json")
    gpu_telemetry = InFolder("gpu_telemetry.csv")
    host_telemetry = InFolder("host_telemetry.csv")
    telemetry = InFolder("telemetry.json")
    alarms = InFolder("alarms.jsonl")
    halt = InFolder("halt.json")
    watchdog_halt = InFolder(".HALT")
    stacks = InFolder("stacks")
    recovered = InFolder("recovered.json")
    nodes_record = InFolder("nodes.json")
    observed_ranks = InFolder("observed_ranks.json")
    nodes = InFolder("nodes")
    hostfile = InFolder("hostfile")
    job_outcome = InFolder("job_outcome.json")
    outcome = InFolder("outcome.json")

    def node(self, name: str) -> AttemptPaths:
        """What one host's agent writes, under the same names: launcher.log, ranks/, telemetry, stacks, agent.json, agent.log, command.sh.

        Node 0 of a run on many hosts writes launcher.log, telemetry and stacks to the attempt's folder itself, so that what reads a run on
        one host reads it too.
        """
        return AttemptPaths(self.nodes / name)

    @property
    def number(self) -> int:
        match = _ATTEMPT.fullmatch(self.folder.name)
        return int(match.group(1)) if match else 0

    @property
    def run(self) -> str:
        return self.folder.parent.name

    def events(self, rank: int) -> Path:
        return self.folder / f"events_rank{rank}.jsonl"

    def heartbeat(self, rank: int) -> Path:
        return self.folder / f"heartbeat_rank{rank}.jsonl"

    def rank_stack(self, rank: int) -> Path:
        """Written by the rank itself at the stack signal."""
        return self.stacks / f"rank{rank}.txt"

    def process_stack(self, pid: int) -> Path:
        """Taken from outside, by py-spy."""
        return self.stacks / f"pid{pid}.txt"

    def all_events(self) -> list[Path]:
        return self._rank_files("events_rank")

    def all_heartbeats(self) -> list[Path]:
        return self._rank_files("heartbeat_rank")

    def _rank_files(self, prefix: str) -> list[Path]:
        """Files of the ranks, five times as fast as `glob`, since it is called several times per attempt."""
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries if entry.name.startswith(prefix) and entry.name.endswith(".jsonl")]
        except OSError:
            return []
        return [self.folder / name for name in sorted(names, key=lambda name: int("0" + re.sub(r"\D", "", name)))]

    def linked(self) -> Iterator[Path]:
        """Files of the current attempt that the run folder links to."""
        yield from (self.launcher_log, self.train_log, self.command, self.outcome, self.spec)
        yield from (self.resolved_config, self.run_context, self.checkpoints)
        yield from (self.gpu_telemetry, self.host_telemetry, self.telemetry, self.alarms)
        yield from self.all_events()
        yield from self.all_heartbeats()


@dataclass(frozen=True)
class RunPaths:
    """All attempts of one run."""

    folder: Path

    def attempt(self, number: int) -> AttemptPaths:
        return AttemptPaths(self.folder / f"attempt-{number}")

    def next_attempt(self) -> AttemptPaths:
        """The one after the newest; not created."""
        return self.attempt(max((attempt.number for attempt in self.attempts()), default=0) + 1)

    def attempts(self) -> list[AttemptPaths]:
        """Oldest first."""
        found = [AttemptPaths(child) for child in self.folder.glob(ANY_ATTEMPT) if _ATTEMPT.fullmatch(child.name)]
        return sorted(found, key=lambda attempt: attempt.number)


@dataclass(frozen=True)
class StagesPaths:
    """The output folder of a plan with stages; each stage that is a plan has its campaign in a folder of its name."""

    folder: Path

    stages = InFolder("stages.json")

    def campaign(self, stage: str) -> CampaignPaths:
        return CampaignPaths(self.folder / stage)

    def log(self, stage: str) -> Path:
        """Output of a command, also of the acceptance."""
        return self.folder / f"{stage}.log"


@dataclass(frozen=True)
class CampaignPaths:
    """One output folder."""

    folder: Path

    plan = InFolder("plan.json")
    plans = InFolder("plans")
    lock = InFolder(".owner.lock")
    owner = InFolder(".owner.json")
    identity = InFolder(IDENTITY)
    stop_request = InFolder(".stop.json")
    pernode_server_file = InFolder(".gate.json")
    progress = InFolder("progress.json")
    recovered = InFolder("recovered.json")
    translation = InFolder("translation.json")
    preflight = InFolder("preflight.json")
    discovered = InFolder("discovered_environment.json")
    manifest = InFolder("run_manifest.tsv")
    timing_points = InFolder("timing_points.csv")
    eta_points = InFolder("eta_points.csv")
    per_run_metrics = InFolder("per_run_metrics.csv")
    group_summary = InFolder("group_summary.csv")
    ranked_groups = InFolder("ranked_groups.csv")
    skipped_runs = InFolder("skipped_runs.tsv")
    verdict = InFolder("verdict.json")
    summary_json = InFolder("summary.json")
    summary_md = InFolder("summary.md")
    summary_html = InFolder("summary.html")
    summary_pdf = InFolder("summary.pdf")
    charts = InFolder("charts")
    allocations = InFolder("allocations")
    best_config_json = InFolder("best_config.json")
    best_config_env = InFolder("best_config.env")
    best_overrides = InFolder("best_overrides.txt")
    tracking_log = InFolder("tracking.log")
    tensorboard = InFolder("tensorboard")
    mlruns = InFolder("mlruns")
    wandb = InFolder("wandb")

    def chart_table(self, name: str) -> Path:
        """One of records.columns.CHART_TABLES."""
        return self.charts / f"{name}.csv"

    def run(self, name: str) -> RunPaths:
        return RunPaths(self.folder / name)

    def runs(self) -> list[RunPaths]:
        """Every folder that holds at least one attempt, by name."""
        found = {attempt.parent for attempt in self.folder.glob(f"*/{ANY_ATTEMPT}") if attempt.is_dir()}
        return [RunPaths(folder) for folder in sorted(found)]

    def allocation_jobs(self) -> list[AllocationPaths]:
        """Oldest first."""
        found = [AllocationPaths(child) for child in self.allocations.glob("allocation-*") if _ALLOCATION.fullmatch(child.name)]
        return sorted(found, key=lambda one: one.number)

    def next_allocation(self) -> AllocationPaths:
        """The one after the newest; not created."""
        newest = max((one.number for one in self.allocation_jobs()), default=0)
        return AllocationPaths(self.allocations / f"allocation-{newest + 1}")

    def open_allocation(self) -> AllocationPaths | None:
        """The newest, unless it is known to be over."""
        newest = next(reversed(self.allocation_jobs()), None)
        return None if newest is None or newest.job_end.exists() else newest


@dataclass(frozen=True)
class OriginalPaths:
    """A folder that the original stage-1 scripts wrote. Files of its runs have the names that AttemptPaths gives them."""

    folder: Path

    manifest = InFolder("run_manifest.tsv")
    summary_json = InFolder("summary.json")
    host_telemetry = InFolder("host_telemetry.csv")
    translated = InFolder("seatrial")

    def set_aside_manifests(self) -> list[Path]:
        """Manifests that the driver kept when its header had changed, oldest first."""
        return sorted(self.folder.glob(f"{self.manifest.name}.bak_*"))


# For naming a file without opening one: `ATTEMPT_FILES.launcher_log.name`.
ATTEMPT_FILES, CAMPAIGN_FILES = AttemptPaths(Path()), CampaignPaths(Path())
EVENTS_OF_ALL_RANKS = "events_rank*.jsonl"
