"""The cluster by hand: `python -m tests.cluster up --nodes 2 --folder DIR`, then `exec`, the faults, and `down`. See docs/cluster.md."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cluster.hosts import Hosts
from tests.cluster.machines import unavailable
from tests.cluster.running import Started, entering_command, environment
from tests.cluster.state import ClusterError, living

Argument = tuple[str, dict[str, Any]]

PATH: Argument = ("path", {"type": lambda text: str(Path(text).absolute())})
# Verb → help, arguments after the host. The verb is the method of Hosts with this name.
FAULTS: dict[str, tuple[str, list[Argument]]] = {
    "boot": ("start a host that is off, without any fault", []),
    "poweroff": ("power lost: everything there ends, the others get no more packets", []),
    "halt": ("everything there ends, the others see their connections close", []),
    "cut": ("pull its network cable", []),
    "uncut": ("plug it in again", []),
    "slow": ("limit its network, both ways", [("rate", {"help": "such as 1mbit"})]),
    "delay": ("delay each packet, both ways", [("delay_ms", {"type": int})]),
    "unslow": ("undo slow and delay", []),
    "lose": ("drop incoming packets at random", [("percent", {"type": int})]),
    "block-port": (
        "refuse connections to a TCP port",
        [("port", {"type": int}), ("--silent", {"action": "store_true", "help": "drop the packets instead"})],
    ),
    "unblock": ("undo block-port and lose", []),
    "second-interface": (
        "add eth1 in another network, and print its address",
        [("--unconnected", {"dest": "connected", "action": "store_false", "help": "to no other host"})],
    ),
    "resolve": ("set the address of a name on the host", [("name", {}), ("address", {})]),
    "refuse-ssh": (
        "refuse ssh connections",
        [("how", {"nargs": "?", "default": "stopped", "choices": ["stopped", "key", "host_key"]})],
    ),
    "allow-ssh": ("accept them again", []),
    "skew": ("offset its wall clock", [("seconds", {"type": int})]),
    "disk": ("give it a small disk of its own", [PATH, ("--size", {"default": "8m"})]),
    "fill": ("fill such a disk", [PATH]),
    "unfill": ("empty it again", [PATH]),
    "unshare": ("show it an empty folder in place of the shared one", [PATH]),
    "read-only": ("make a folder read-only there", [PATH]),
    "unmount": ("undo disk, unshare or read-only", [PATH]),
    "hide": ("as if a program were not installed", [("program", {})]),
}


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        return int(args.act(args) or 0)
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
    up.add_argument("--share", type=Path, action="append", default=[], help="another folder below /tmp that is shared by all hosts")
    up.add_argument("--tcp-retries2", type=int, help="retransmissions before the kernel gives up a silent connection (default: unchanged)")
    up.set_defaults(act=_up)
    verbs.add_parser("down", help="end all hosts and remove their files").set_defaults(act=_down)
    verbs.add_parser("list", help="clusters on this machine").set_defaults(act=_list)
    run = verbs.add_parser("exec", help="run a command on a host: exec head -- seatrial run plan.yaml")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)
    run.set_defaults(act=_exec)
    for verb, (text, arguments) in FAULTS.items():
        one = verbs.add_parser(verb, help=text)
        one.add_argument("host")
        for name, options in arguments:
            one.add_argument(name, **options)
        one.set_defaults(act=_fault, method=verb.replace("-", "_"))
    return parser


def _fault(args: argparse.Namespace) -> None:
    options = {name: value for name, value in vars(args).items() if name not in ("id", "act", "method", "host")}
    result = getattr(_chosen(args.id), args.method)(args.host, **options)
    if result is not None:
        print(result)


def _chosen(wanted: str | None) -> Hosts:
    # Without --id only clusters built by hand are considered: a test may be using its own.
    found = [state for state in living() if (state.owner is None if wanted is None else state.id == wanted)]
    if len(found) != 1:
        among = "; ".join(f"--id {state.id} ({state.work_folder})" for state in found)
        raise ClusterError(f"several clusters: {among}" if found else "there is no such cluster; build one with `up`")
    return Hosts(found[0])


def _up(args: argparse.Namespace) -> None:
    reason = unavailable()
    if reason:
        raise ClusterError(reason)
    hosts = Hosts.build(args.nodes, args.folder, tcp_retries2=args.tcp_retries2, shared=args.share, kept=True)
    for name in hosts.names:
        print(f"{hosts.address(name)}  {name}")
    print(f"cluster {hosts.state.id} is up; folder {hosts.state.work_folder}")


def _down(args: argparse.Namespace) -> None:
    _chosen(args.id).down(remove_files=True)


def _list(args: argparse.Namespace) -> None:
    for state in living():
        hosts = Hosts(state)
        print(f"{state.id}  {' '.join(name if hosts.is_on(name) else f'({name})' for name in hosts.names)}  {state.work_folder}")


def _exec(args: argparse.Namespace) -> int:
    state = _chosen(args.id).state
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise ClusterError("exec needs a command: exec head -- hostname")
    argv = entering_command(state, args.host, command, Path.cwd())
    variables = {**environment(state), "TERM": os.environ.get("TERM", "dumb")}
    if sys.stdout.isatty():
        del variables["COLUMNS"]
    # Ctrl-C is for the command inside, which gets it from the terminal; this process must outlive it.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    started = Started(args.host, subprocess.Popen(argv, env=variables, text=True), Path(os.devnull))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: started.signal(received))
    code = started.wait(None)
    return code if code >= 0 else 128 - code
