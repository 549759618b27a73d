"""`--node-rank`, `--master-addr`, `--master-port`: which node of a campaign without ssh this command is, and its part there.

In: typed options, else NODE_RANK, MASTER_ADDR and MASTER_PORT. Out: a `ThisNode` where the plan's place is `pernode`, None for another
place. The command of node 0 runs the campaign and its server; every other command carries out the server's requests.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.core.errors import UsageError
from seatrial.core.paths import CampaignPaths
from seatrial.core.ports import LAST_PORT
from seatrial.core.shell import quote
from seatrial.records.plan import traits_of

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.launch.pernode_server import PernodeServer
    from seatrial.records.plan import CampaignPlan

RANK, ADDRESS, PORT = "--node-rank", "--master-addr", "--master-port"
# The second spelling is that of the original scripts and of DeepSpeed.
OPTIONS = (RANK, ADDRESS, PORT, "--node_rank", "--master_addr", "--master_port")
VARIABLES = {RANK: "NODE_RANK", ADDRESS: "MASTER_ADDR", PORT: "MASTER_PORT"}


@dataclass(frozen=True, kw_only=True)
class ThisNode:
    """One of the commands that together run a campaign."""

    rank: int
    nodes: int
    address: str = ""
    """Node 0's address; empty where it was not given and is not needed."""
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The typed options."""

    rank: int | None = None
    address: str | None = None
    port: int | None = None


def this_node(plan: CampaignPlan, typed: NodeOptions, environ: Mapping[str, str] = os.environ) -> ThisNode | None:
    """Which node this is; a UsageError where that is unknown or has no meaning."""
    place = plan.runs[0].place
    given = [option for option, value in ((RANK, typed.rank), (ADDRESS, typed.address), (PORT, typed.port)) if value is not None]
    if not place.traits.typed_on_each_node:
        if given:
            raise UsageError(
                f"{given[0]} needs a plan with `place: {{kind: pernode, nodes: N}}`, and this one's place is {place.kind}: write that into "
                f"the plan, or add --set place.kind=pernode --set place.nodes=N (to `sweep`: --nodes N); or leave {given[0]} out"
            )
        return None
    rank = typed.rank if typed.rank is not None else _number(RANK, environ)
    port = typed.port if typed.port is not None else _number(PORT, environ)
    here = ThisNode(
        rank=-1 if rank is None else rank, nodes=place.nodes, address=typed.address or environ.get(VARIABLES[ADDRESS], ""), port=port or 0
    )
    _check(here, place.port)
    return here


def _check(here: ThisNode, rendezvous_port: int | None) -> None:
    if here.rank < 0:
        raise UsageError(
            f"this plan's place is pernode: one command runs on each of its {here.nodes} nodes; say which this is with "
            f"{RANK} R {ADDRESS} HOST {PORT} PORT, with R from 0 to {here.nodes - 1} and HOST the one that has R = 0"
        )
    if here.rank >= here.nodes:
        raise UsageError(f"{RANK} {here.rank}: the plan has {here.nodes} nodes (place.nodes), 0 to {here.nodes - 1}")
    if here.rank == 0 and not (here.address and here.port):
        raise UsageError(f"node 0 needs {ADDRESS} HOST {PORT} PORT: the address at which the other nodes reach it, and a free port")
    if here.port and here.port == rendezvous_port:
        raise UsageError(f"{PORT} {here.port} is the control port and place.port the ranks' rendezvous port: choose two different ports")


def _number(option: str, environ: Mapping[str, str]) -> int | None:
    text = environ.get(VARIABLES[option], "")
    if not text:
        return None
    most = LAST_PORT if option == PORT else sys.maxsize
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise UsageError(f"the variable {VARIABLES[option]} is '{text}', which is not a number for {option}; correct it, or type {option}")
    return int(text)


def refuse_time_in_output(kind: str, output: str | None) -> None:
    """Refuse `{time}` in the output: every node would create its own folder."""
    if traits_of(kind).typed_on_each_node and "{time}" in (output or ""):
        raise UsageError(f"the output folder {output} has {{time}} in it, which differs from node to node; name one folder with --out")


def command_for(rank: int, here: ThisNode, typed: Sequence[str] | None = None) -> str:
    """What to type on another node: the arguments typed here, with its own rank."""
    args = list(sys.argv[1:] if typed is None else typed)
    end = args.index("--") if "--" in args else len(args)
    own, skip = [], False
    for arg in args[:end]:
        if skip:
            skip = False
        elif arg in OPTIONS:
            skip = True
        elif arg.partition("=")[0] not in OPTIONS:
            own.append(arg)
    return quote(["seatrial", *own, RANK, str(rank), ADDRESS, here.address, PORT, str(here.port), *args[end:]])


@contextlib.contextmanager
def open_server(plan: CampaignPlan, here: ThisNode | None, console: Console) -> Iterator[PernodeServer | None]:
    """Node 0's server while the block runs; None where there is none."""
    if here is None:
        yield None
        return
    from seatrial.launch.pernode_server import PernodeServer, plan_digest

    require_own_address(here.address)
    with PernodeServer(
        CampaignPaths(Path(plan.output)),
        nodes=here.nodes,
        address=here.address,
        port=here.port,
        plan=plan.name,
        digest=plan_digest(plan),
        report=_line_printer(console),
        how_to_start=lambda rank: command_for(rank, here),
        interface=plan.runs[0].place.interface if plan.runs else "",
    ) as server:
        yield server


def require_own_address(address: str) -> None:
    """UsageError unless the address is node 0's own: the other nodes connect to it."""
    from seatrial.machine.network import is_this_host, local_addresses, resolve_addresses

    found = resolve_addresses(address)
    if not found:
        raise UsageError(f"--master-addr {address} does not resolve on this host: give an address or a name of node 0 that does")
    if not is_this_host(address) and not set(found) & local_addresses():
        raise UsageError(
            f"--master-addr {address} is {', '.join(found)}, which is not an address of this host: give this host's own, or start "
            "--node-rank 0 on the host it names"
        )


def run_client_node(plan: CampaignPlan, here: ThisNode, *, as_json: bool = False) -> int:
    """Run a node other than node 0; returns the campaign's exit code."""
    from seatrial.cli.program import console_for
    from seatrial.launch.pernode_client import PernodeClient
    from seatrial.launch.pernode_server import node_names, plan_digest

    say = _line_printer(console_for(as_json=as_json))
    name = node_names(here.nodes)[here.rank]
    with PernodeClient(CampaignPaths(Path(plan.output)), name, digest=plan_digest(plan), report=say, address=here.address) as client:
        return client.run()


def _line_printer(console: Console) -> Callable[[str], None]:
    """Prints a line without control sequences from another host's text."""
    from rich.text import Text

    from seatrial.report.text import one_line

    return lambda line: console.print(Text(one_line(line)), soft_wrap=True)
