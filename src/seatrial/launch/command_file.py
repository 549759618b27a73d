"""command.sh: what the harness started, for a person to start again by hand.

Events and rank logs of such a run go to attempt-N/by-hand/, so that what the harness recorded stays as it was. The caller's variables
that can change a run (NCCL_ALGO and its like) stand in it as defaults: what the person's shell has wins. On many hosts each has one of
its own, and the attempt's starts them all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from seatrial.launch.nodes import own_paths
from seatrial.options.ssh import ssh_words
from seatrial.paths import BY_HAND, AttemptPaths
from seatrial.records.command import Command, Node
from seatrial.records.events import ENV_RUN_DIR
from seatrial.shell import assignments, quote

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


def command_text(
    command: Command, attempt: AttemptPaths, callers: Mapping[str, str] = MappingProxyType({}), node: Node | None = None
) -> str:
    """The whole script of one node; `callers` are the variables of the harness's caller that reached the ranks."""
    by_hand = moved(command, attempt, node)
    return "\n".join(_lines(by_hand, attempt, callers, node)) + "\n"


def all_nodes_text(attempt: AttemptPaths, nodes: Sequence[Node], by_ssh: bool, ssh_args: Sequence[str] = ()) -> str:
    """The attempt's script on many hosts: it starts every node's own, with the user's options for ssh, or says what to type on each where
    there is no ssh."""
    return "\n".join(_all_nodes(attempt, nodes, by_ssh, ssh_args)) + "\n"


def moved(command: Command, attempt: AttemptPaths, node: Node | None = None) -> Command:
    """`command` with what it writes put into the by-hand folder."""
    folder = attempt.folder / BY_HAND
    own = own_paths(attempt, node)
    rank_logs = str(own.rank_logs)
    argv = tuple(str(own.folder / BY_HAND / own.rank_logs.name) if word == rank_logs else word for word in command.argv)
    env = {**command.env, ENV_RUN_DIR: str(folder)} if command.env.get(ENV_RUN_DIR) == str(attempt.folder) else command.env
    return replace(command, argv=argv, env=env)


def _lines(command: Command, attempt: AttemptPaths, callers: Mapping[str, str], node: Node | None) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    whose = f" on {node.name}" if node else ""
    where = "in the attempt's folder" if node else "beside this file"
    yield f"# {attempt.run}, attempt {attempt.number}{whose}, as the harness started it. What it writes now goes to {BY_HAND}/ {where}."
    yield "set -euo pipefail"
    yield f"mkdir -p {shlex.quote(str(attempt.folder / BY_HAND))}"
    yield f"cd {shlex.quote(command.cwd)}"
    defaults = {name: value for name, value in sorted(callers.items()) if name not in command.env and _SHELL_NAME.fullmatch(name)}
    yield from (f"export {name}=${{{name}-{shlex.quote(value)}}}" for name, value in defaults.items())
    yield from assignments(command.env)
    own = own_paths(attempt, node)
    rank_logs = str(own.folder / BY_HAND / own.rank_logs.name)
    if rank_logs in command.argv:
        yield f"echo {shlex.quote(f'each rank writes its output below {rank_logs}')} >&2"
    if len(command.ranks) == 1:
        yield from assignments(command.ranks[0])
        yield f"exec {quote(command.argv)}"
    else:
        yield from _several(command)


def _all_nodes(attempt: AttemptPaths, nodes: Sequence[Node], by_ssh: bool, ssh_args: Sequence[str]) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    yield f"# {attempt.run}, attempt {attempt.number}, on {len(nodes)} hosts. What they write now goes to {BY_HAND}/ beside this file."
    yield "set -euo pipefail"
    if not by_ssh:
        yield "echo 'type on each node, at about the same time:' >&2"
        yield from (f"echo {shlex.quote(f'{node.name}: {_by_hand(attempt, node)}')} >&2" for node in nodes)
        yield "exit 1"
        return
    yield "# By hand, one terminal a host, at about the same time:"
    # A line end in a path would end the comment.
    yield from (f"#   on {node.name}: {_by_hand(attempt, node)}".replace("\n", "\\n") for node in nodes)
    yield _SEVERAL_RANKS_HEAD
    for node in nodes:
        yield f"{quote(_with_terminal(ssh_words(node.name, _by_hand_words(attempt, node), ssh_args)))} &"
        yield "pids+=($!)"
    yield _SEVERAL_RANKS_TAIL


def _by_hand(attempt: AttemptPaths, node: Node) -> str:
    return quote(_by_hand_words(attempt, node))


def _by_hand_words(attempt: AttemptPaths, node: Node) -> list[str]:
    return ["bash", str(attempt.node(node.name).command)]


def _several(command: Command) -> Iterator[str]:
    yield _SEVERAL_RANKS_HEAD
    for overlay in command.ranks:
        own = [f"{name}={value}" for name, value in overlay.items()]
        yield f"{quote(['env', *own, *command.argv])} &"
        yield "pids+=($!)"
    yield _SEVERAL_RANKS_TAIL


def _with_terminal(words: Sequence[str]) -> list[str]:
    """An ssh whose end hangs up what it started there: without a terminal that would run on when this script is stopped."""
    program, *others = (word for word in words if word != "-T")
    return [program, "-tt", "-n", *others]
