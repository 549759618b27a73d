"""command.sh: what the harness started, for a person to start again by hand.

Events and rank logs of such a run go to attempt-N/by-hand/, so that what the harness recorded stays as it was. The caller's variables
that can change a run (NCCL_ALGO and its like) stand in it as defaults: what the person's shell has wins.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from seatrial.paths import AttemptPaths
from seatrial.records.command import Command
from seatrial.records.events import ENV_RUN_DIR
from seatrial.shell import assignments, quote

BY_HAND = "by-hand"
# What a shell takes for a name; a process may be given variables with any other, and those reach the ranks but no script.
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# One rank that fails ends the others, as the agent does; bash gives background processes no terminal interrupt, so it is passed on.
_SEVERAL_RANKS_HEAD = """\
pids=()
stop() {
  trap - TERM INT
  kill -TERM "${pids[@]}" 2>/dev/null || true
  wait || true
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT"""
_SEVERAL_RANKS_TAIL = 'for _ in "${pids[@]}"; do wait -n || stop "$?"; done'


def command_text(command: Command, attempt: AttemptPaths, callers: Mapping[str, str] = MappingProxyType({})) -> str:
    """The whole script; `callers` are the variables of the harness's caller that reached the ranks."""
    by_hand = moved(command, attempt)
    return "\n".join(_lines(by_hand, attempt, callers)) + "\n"


def moved(command: Command, attempt: AttemptPaths) -> Command:
    """`command` with what it writes put into the by-hand folder."""
    folder = attempt.folder / BY_HAND
    rank_logs = str(attempt.rank_logs)
    argv = tuple(str(folder / attempt.rank_logs.name) if word == rank_logs else word for word in command.argv)
    env = {**command.env, ENV_RUN_DIR: str(folder)} if command.env.get(ENV_RUN_DIR) == str(attempt.folder) else command.env
    return replace(command, argv=argv, env=env)


def _lines(command: Command, attempt: AttemptPaths, callers: Mapping[str, str]) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    yield f"# {attempt.run}, attempt {attempt.number}, as the harness started it. What it writes now goes to {BY_HAND}/ beside this file."
    yield "set -euo pipefail"
    yield f"mkdir -p {shlex.quote(str(attempt.folder / BY_HAND))}"
    yield f"cd {shlex.quote(command.cwd)}"
    defaults = {name: value for name, value in sorted(callers.items()) if name not in command.env and _SHELL_NAME.fullmatch(name)}
    yield from (f"export {name}=${{{name}-{shlex.quote(value)}}}" for name, value in defaults.items())
    yield from assignments(command.env)
    rank_logs = str(attempt.folder / BY_HAND / attempt.rank_logs.name)
    if rank_logs in command.argv:
        yield f"echo {shlex.quote(f'each rank writes its output below {rank_logs}')} >&2"
    if len(command.ranks) == 1:
        yield from assignments(command.ranks[0])
        yield f"exec {quote(command.argv)}"
    else:
        yield from _several(command)


def _several(command: Command) -> Iterator[str]:
    yield _SEVERAL_RANKS_HEAD
    for overlay in command.ranks:
        own = [f"{name}={value}" for name, value in overlay.items()]
        yield f"{quote(['env', *own, *command.argv])} &"
        yield "pids+=($!)"
    yield _SEVERAL_RANKS_TAIL
