"""Agents of Seatrial that run on this host, by their command lines: whose campaign each works for."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from seatrial.machine.proc_files import PROC, all_pids, command_words
from seatrial.paths import ATTEMPT_FILES, AttemptPaths

AGENT = "seatrial.agent"
_OWN_FILES = (ATTEMPT_FILES.agent_order.name, ATTEMPT_FILES.call.name)


def campaigns_here(proc: Path = PROC) -> list[str]:
    """The folders of the campaigns that have an agent on this host, each once."""
    return sorted({folder for pid in all_pids(proc) if (folder := _campaign(pid, proc))})


def is_agent(words: Sequence[str]) -> bool:
    """Whether a command line is `python … -m seatrial.agent …`."""
    return any(pair == ("-m", AGENT) for pair in itertools.pairwise(words))


def command_of(pid: int, proc: Path = PROC) -> list[str]:
    """The words of a process, as text; none where it is gone."""
    return [os.fsdecode(word) for word in command_words(pid, proc)]


def _campaign(pid: int, proc: Path) -> str:
    """Of `python -m seatrial.agent OUT/<run>/attempt-N/agent.json`, or `--call OUT/<run>/attempt-N/nodes/<name>/call.json`; else empty."""
    words = command_of(pid, proc)
    if not is_agent(words):
        return ""
    named = [Path(word) for word in words[words.index(AGENT) + 1 :] if word.startswith("/")]
    attempts = [folder for path in named if path.name in _OWN_FILES for folder in path.parents if AttemptPaths(folder).number]
    return str(attempts[0].parent.parent) if attempts else ""
