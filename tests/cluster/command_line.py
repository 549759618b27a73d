"""The cluster by hand: `python -m tests.cluster up --nodes 2 --folder DIR`, then `exec`, the faults, and `down`. See docs/cluster.md.

Each fault is a verb with the name of the method that does it, and the words after it are that method's arguments.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.hosts import Hosts
from tests.cluster.machines import unavailable
from tests.cluster.running import Started, entering_command, environment
from tests.cluster.state import ClusterError, living

Act = Callable[[Hosts, argparse.Namespace], object]
Argument = tuple[str, dict[str, Any]]

PATH: Argument = ("path", {"type": lambda text: str(Path(text).absolute())})
# What is done to a host that is named first: verb → help, further arguments, act.
FAULTS: dict[str, tuple[str, list[Argument], Act]] = {
    "boot": ("switch a host on that is off, as new", [], lambda hosts, given: hosts.boot(given.host)),
    "poweroff": ("power lost: all of it ends, the others hear nothing more", [], lambda hosts, given: hosts.poweroff(given.host)),
    "halt": ("all of it ends, the others see their connections close", [], lambda hosts, given: hosts.halt(given.host)),
    "cut": ("pull its network cable", [], lambda hosts, given: hosts.cut(given.host)),
    "uncut": ("plug it in again", [], lambda hosts, given: hosts.uncut(given.host)),
    "slow": (
        "limit its network, both ways",
        [("rate", {"help": "such as 1mbit"})],
        lambda hosts, given: hosts.slow(given.host, given.rate),
    ),
    "delay": ("delay each packet, both ways", [("delay_ms", {"type": int})], lambda hosts, given: hosts.delay(given.host, given.delay_ms)),
    "unslow": ("take slow and delay back", [], lambda hosts, given: hosts.unslow(given.host)),
    "lose": ("drop incoming packets at random", [("percent", {"type": int})], lambda hosts, given: hosts.lose(given.host, given.percent)),
    "block-port": (
        "refuse connections to a TCP port",
        [("port", {"type": int}), ("--silent", {"action": "store_true", "help": "drop the packets instead"})],
        lambda hosts, given: hosts.block_port(given.host, given.port, silent=given.silent),
    ),
    "unblock": ("take block-port and lose back", [], lambda hosts, given: hosts.unblock(given.host)),
    "second-interface": (
        "add eth1 in another network",
        [("--unconnected", {"action": "store_true", "help": "nobody is reached there"})],
        lambda hosts, given: print(hosts.second_interface(given.host, connected=not given.unconnected)),
    ),
    "resolve": (
        "set what a name means on the host",
        [("name", {}), ("address", {})],
        lambda hosts, given: hosts.resolve(given.host, given.name, given.address),
    ),
    "refuse-ssh": (
        "let nobody in by ssh",
        [("how", {"nargs": "?", "default": "stopped", "choices": ["stopped", "key", "host_key"]})],
        lambda hosts, given: hosts.refuse_ssh(given.host, given.how),
    ),
    "allow-ssh": ("let people in again", [], lambda hosts, given: hosts.allow_ssh(given.host)),
    "skew": (
        "put its wall clock off",
        [("seconds", {"type": int})],
        lambda hosts, given: hosts.skew(given.host, given.seconds),
    ),
    "disk": (
        "give it a small disk of its own",
        [PATH, ("--size", {"default": "8m"})],
        lambda hosts, given: hosts.disk(given.host, given.path, given.size),
    ),
    "fill": ("fill such a disk", [PATH], lambda hosts, given: hosts.fill(given.host, given.path)),
    "unfill": ("and make room again", [PATH], lambda hosts, given: hosts.unfill(given.host, given.path)),
    "unshare": (
        "show it an empty folder where the others see the shared one",
        [PATH],
        lambda hosts, given: hosts.unshare(given.host, given.path),
    ),
    "read-only": ("let it read a folder and not write there", [PATH], lambda hosts, given: hosts.read_only(given.host, given.path)),
    "unmount": ("take disk, unshare or read-only back", [PATH], lambda hosts, given: hosts.unmount(given.host, given.path)),
    "hide": ("as if a program were not installed", [("program", {})], lambda hosts, given: hosts.hide(given.host, given.program)),
}


def main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    try:
        return int(given.act(given) or 0)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="Hosts on one machine, with ssh between them; needs root.")
    parser.add_argument("--id", help="which cluster, where there are several; `list` shows them")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    up = verbs.add_parser("up", help="build head and node1 … nodeN; they stay until `down`")
    up.add_argument("--nodes", type=int, default=2, help="hosts beside the head (default 2)")
    up.add_argument("--folder", type=Path, required=True, help="for the hosts' files and your own; shared by all hosts")
    up.add_argument("--share", type=Path, action="append", default=[], help="another folder below /tmp that all hosts see")
    up.add_argument("--tcp-retries2", type=int, help="how long the kernel tries before it gives a silent connection up (default: as it is)")
    up.set_defaults(act=_up)
    verbs.add_parser("down", help="end all hosts and remove their files").set_defaults(act=_down)
    verbs.add_parser("list", help="clusters on this machine").set_defaults(act=_list)
    run = verbs.add_parser("exec", help="run a command on a host: exec head -- seatrial run plan.yaml")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)
    run.set_defaults(act=_exec)
    for verb, (text, arguments, act) in FAULTS.items():
        one = verbs.add_parser(verb, help=text)
        one.add_argument("host")
        for name, how in arguments:
            one.add_argument(name, **how)
        one.set_defaults(act=lambda given, act=act: _do(act, given))
    return parser


def _do(act: Act, given: argparse.Namespace) -> None:
    act(_chosen(given.id), given)


def _chosen(wanted: str | None) -> Hosts:
    # Without a word only those built by hand are meant: a test may be using one of its own.
    found = [state for state in living() if (state.owner is None if wanted is None else state.id == wanted)]
    if len(found) != 1:
        among = "; ".join(f"--id {state.id} ({state.work_folder})" for state in found)
        raise ClusterError(f"which one? {among}" if found else "there is no such cluster; build one with `up`")
    return Hosts(found[0])


def _up(given: argparse.Namespace) -> None:
    reason = unavailable()
    if reason:
        raise ClusterError(reason)
    hosts = Hosts.build(given.nodes, given.folder, tcp_retries2=given.tcp_retries2, shared=given.share, kept=True)
    for name in hosts.names:
        print(f"{hosts.address(name)}  {name}")
    print(f"cluster {hosts.state.id} is up; folder {hosts.state.work_folder}")


def _down(given: argparse.Namespace) -> None:
    _chosen(given.id).down(remove_files=True)


def _list(given: argparse.Namespace) -> None:
    for state in living():
        hosts = Hosts(state)
        print(f"{state.id}  {' '.join(name if hosts.is_on(name) else f'({name})' for name in hosts.names)}  {state.work_folder}")


def _exec(given: argparse.Namespace) -> int:
    state = _chosen(given.id).state
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        raise ClusterError("exec needs a command: exec head -- hostname")
    words = entering_command(state, given.host, command, Path.cwd())
    variables = {**environment(state), "TERM": os.environ.get("TERM", "dumb")}
    if sys.stdout.isatty():
        del variables["COLUMNS"]
    # Ctrl-C is for the command inside, which gets it from the terminal; whoever waits for it must not end before.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    started = Started(given.host, subprocess.Popen(words, env=variables, text=True), Path(os.devnull))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: started.signal(received))
    code = started.wait(None)
    return code if code >= 0 else 128 - code
