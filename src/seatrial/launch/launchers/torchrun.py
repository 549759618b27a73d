"""`torchrun`: one process that starts the ranks, each with its output in files of its own under attempt-N/ranks/.

An option the user typed stands; Seatrial adds only what is missing: number of ranks, a held port, where ranks write.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from seatrial.launch.launchers.workload import workload_words
from seatrial.paths import AttemptPaths
from seatrial.records.command import Allocation
from seatrial.records.run_spec import RunSpec

# torchrun takes any unambiguous beginning of an option; a shorter word than this could be several.
_SHORTEST_ABBREVIATION = len("--nn")


def words(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths) -> tuple[str, ...]:
    program = spec.launcher.program or (sys.executable, "-m", "torch.distributed.run")
    typed = spec.launcher.args
    return (
        *program,
        *_size(typed, allocation),
        *_rendezvous(typed, allocation),
        *_logs(typed, attempt),
        *typed,
        *workload_words(spec, attempt),
    )


def overlays(spec: RunSpec, allocation: Allocation) -> tuple[dict[str, str], ...]:
    """torchrun gives each rank its variables itself."""
    return ({},)


def rank_logs(spec: RunSpec, attempt: AttemptPaths) -> str | None:
    """The folder whose files the agent merges; None when torchrun copies the ranks' lines to its own output (`--tee`)."""
    if _has(spec.launcher.args, "--tee", "-t"):
        return None
    typed = _value(spec.launcher.args, "--log-dir")
    return str(attempt.rank_logs) if typed is None else str(Path(spec.cwd) / typed)


def _size(typed: Sequence[str], allocation: Allocation) -> tuple[str, ...]:
    nodes = () if _has(typed, "--nnodes") else ("--nnodes", "1")
    return nodes if _has(typed, "--nproc-per-node") else (*nodes, "--nproc-per-node", str(allocation.ranks))


def _rendezvous(typed: Sequence[str], allocation: Allocation) -> tuple[str, ...]:
    own = ("--standalone", "--master-addr", "--master-port", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf")
    if any(_has(typed, name) for name in own):
        return ()
    return ("--master-addr", allocation.master_addr, "--master-port", str(allocation.master_port))


def _logs(typed: Sequence[str], attempt: AttemptPaths) -> tuple[str, ...]:
    folder = () if _has(typed, "--log-dir") else ("--log-dir", str(attempt.rank_logs))
    redirected = _has(typed, "--redirects", "-r") or _has(typed, "--tee", "-t")
    return folder if redirected else (*folder, "--redirects", "3")


def _has(typed: Sequence[str], name: str, short: str | None = None) -> bool:
    return any(_is_option(word, name, short) for word in typed)


def _value(typed: Sequence[str], name: str) -> str | None:
    """What the user typed for an option, as the next word or after `=`."""
    for position, word in enumerate(typed):
        if _is_option(word, name, None):
            _, sign, value = word.partition("=")
            return value if sign else next(iter(typed[position + 1 :]), None)
    return None


def _is_option(word: str, name: str, short: str | None) -> bool:
    """Whether `word` is the option `name` in any spelling torchrun takes: `_` for `-`, `=value`, cut short, or one letter."""
    if short and word.startswith(short) and not word.startswith("--"):
        return True
    spelled = word.partition("=")[0].replace("_", "-")
    return len(spelled) >= _SHORTEST_ABBREVIATION and name.startswith(spelled)
