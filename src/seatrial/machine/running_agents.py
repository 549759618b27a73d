"""Agents of Seatrial that run on this host, by their command lines: whose campaign each works for."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from seatrial.machine.process_tree import PROC
from seatrial.paths import AttemptPaths

MODULE = "seatrial.agent"
_OWN_FILES = (AttemptPaths(Path()).agent_order.name, AttemptPaths(Path()).call.name)


def campaigns_here(proc: Path = PROC) -> list[str]:
    """The folders of the campaigns that have an agent on this host, each once."""
    return sorted({folder for pid in _pids(proc) if (folder := _campaign(proc / pid))})


def is_agent(words: Sequence[str]) -> bool:
    """Whether a command line is `python … -m seatrial.agent …`."""
    return any(pair == ("-m", MODULE) for pair in itertools.pairwise(words))


def command_of(process: Path) -> list[str]:
    """The words of a process (its folder below /proc); none where it is gone."""
    with contextlib.suppress(OSError):
        return os.fsdecode((process / "cmdline").read_bytes()).rstrip("\0").split("\0")
    return []


def _campaign(process: Path) -> str:
    """Of `python -m seatrial.agent OUT/<run>/attempt-N/agent.json`, or `--call OUT/<run>/attempt-N/nodes/<name>/call.json`; else empty."""
    words = command_of(process)
    if not is_agent(words):
        return ""
    named = [Path(word) for word in words[words.index(MODULE) + 1 :] if word.startswith("/")]
    attempts = [folder for path in named if path.name in _OWN_FILES for folder in path.parents if folder.name.startswith("attempt-")]
    return str(attempts[0].parent.parent) if attempts else ""


def _pids(proc: Path) -> list[str]:
    try:
        return [name for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 (ten times as fast as a Path each)
    except OSError:
        return []
