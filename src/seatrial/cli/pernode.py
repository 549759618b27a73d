"""`--node-rank`, `--master-addr`, `--master-port`: which node of a campaign without ssh this command is, and what it does there.

In: what was typed, else NODE_RANK, MASTER_ADDR and MASTER_PORT. Out: a `ThisNode` where the plan's place is `pernode`, None where it is
another. The command of node 0 runs the campaign and has a gate; every other one does what that gate tells it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.errors import UsageError
from seatrial.ports import LAST_PORT
from seatrial.records.run_spec import PERNODE
from seatrial.shell import quote

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.launch.gate import Gate
    from seatrial.records.campaign_plan import CampaignPlan

RANK, ADDRESS, PORT = "--node-rank", "--master-addr", "--master-port"
# As the seeds and DeepSpeed type them.
OPTIONS = (RANK, ADDRESS, PORT, "--node_rank", "--master_addr", "--master_port")
VARIABLES = {RANK: "NODE_RANK", ADDRESS: "MASTER_ADDR", PORT: "MASTER_PORT"}


@dataclass(frozen=True, kw_only=True)
class ThisNode:
    """One of the commands that together run a campaign."""

    rank: int
    nodes: int
    address: str = ""
    """Of node 0; empty where it was not given and is not needed."""
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class NodeWords:
    """What was typed of it."""

    rank: int | None = None
    address: str | None = None
    port: int | None = None


def this_node(plan: CampaignPlan, typed: NodeWords, environ: Mapping[str, str] = os.environ) -> ThisNode | None:
    """Which node this is; a UsageError where that cannot be told or has no meaning."""
    place = plan.runs[0].place
    given = [option for option, value in ((RANK, typed.rank), (ADDRESS, typed.address), (PORT, typed.port)) if value is not None]
    if place.kind != PERNODE:
        if given:
            raise UsageError(
                f"{given[0]} belongs to a plan with `place: {{kind: pernode, nodes: N}}`, and the place of this one is {place.kind}: write "
                f"that into the plan, or add --set place.kind=pernode --set place.nodes=N (to `sweep`: --nodes N); or leave {given[0]} out"
            )
        return None
    rank = typed.rank if typed.rank is not None else _number(RANK, environ)
    port = typed.port if typed.port is not None else _number(PORT, environ)
    here = ThisNode(
        rank=-1 if rank is None else rank, nodes=place.nodes, address=typed.address or environ.get(VARIABLES[ADDRESS], ""), port=port or 0
    )
    _refuse(here, place.port)
    return here


def refuse_folder_of_the_moment(kind: str, output: str | None) -> None:
    """Every node would make a folder of its own."""
    if kind == PERNODE and "{time}" in (output or ""):
        raise UsageError(f"the output folder {output} has {{time}} in it, which differs from node to node; name one folder with --out")


def command_for(rank: int, here: ThisNode, typed: Sequence[str] | None = None) -> str:
    """What to type on another node: the words that were typed here, with its own rank."""
    words = list(sys.argv[1:] if typed is None else typed)
    end = words.index("--") if "--" in words else len(words)
    own = _without_options(words[:end])
    return quote(["seatrial", *own, RANK, str(rank), ADDRESS, here.address, PORT, str(here.port), *words[end:]])


@contextlib.contextmanager
def gate_of(plan: CampaignPlan, here: ThisNode | None, console: Console) -> Iterator[Gate | None]:
    """Node 0's gate while the block runs; None where there is none."""
    if here is None:
        yield None
        return
    from seatrial.launch.gate import Gate
    from seatrial.launch.gate_file import plan_digest
    from seatrial.paths import CampaignPaths

    refuse_another_s_address(here.address)
    with Gate(
        CampaignPaths(Path(plan.output)),
        nodes=here.nodes,
        address=here.address,
        port=here.port,
        plan=plan.name,
        digest=plan_digest(plan),
        say=lines_to(console),
        how_to_start=lambda rank: command_for(rank, here),
    ) as gate:
        yield gate


def refuse_another_s_address(address: str) -> None:
    """Node 0 is where the others call: an address that is not its own would have all of them wait for nothing."""
    from seatrial.machine.interfaces import interface_addresses
    from seatrial.machine.this_host import is_this_host, resolved

    found = resolved(address)
    if not found:
        raise UsageError(f"--master-addr {address} means nothing on this host: give an address of node 0, or a name that resolves to one")
    if not is_this_host(address) and not set(found) & interface_addresses():
        raise UsageError(
            f"--master-addr {address} is {', '.join(found)}, and that is no address of this host: node 0 is the host that it names; "
            "give this host's own, or start --node-rank 0 there"
        )


def take_part(plan: CampaignPlan, here: ThisNode, *, as_json: bool = False) -> int:
    """What any node but the first does: the exit code is the campaign's."""
    from seatrial.cli.say import people
    from seatrial.launch.gate_file import node_names, plan_digest
    from seatrial.launch.share import Share
    from seatrial.paths import CampaignPaths

    say = lines_to(people(as_json=as_json))
    name = node_names(here.nodes)[here.rank]
    with Share(CampaignPaths(Path(plan.output)), name, digest=plan_digest(plan), say=say, address=here.address) as share:
        return share.take_part()


def lines_to(console: Console) -> Callable[[str], None]:
    """Prints a line, without what another host's words hold for a terminal to act on."""
    from rich.text import Text

    from seatrial.report.one_line import one_line

    return lambda line: console.print(Text(one_line(line)), soft_wrap=True)


def _refuse(here: ThisNode, rendezvous_port: int | None) -> None:
    if here.rank < 0:
        raise UsageError(
            f"the place of this plan is pernode: one command runs on each of its {here.nodes} nodes; say which this is: "
            f"{RANK} R {ADDRESS} HOST {PORT} PORT, with R from 0 to {here.nodes - 1} and HOST the one that has R = 0"
        )
    if here.rank >= here.nodes:
        raise UsageError(f"{RANK} {here.rank}: the plan has {here.nodes} nodes (place.nodes), which are 0 to {here.nodes - 1}")
    if here.rank == 0 and not (here.address and here.port):
        raise UsageError(f"node 0 needs {ADDRESS} HOST {PORT} PORT: the address at which the other nodes reach it, and a free port")
    if here.port and here.port == rendezvous_port:
        raise UsageError(f"{PORT} {here.port} is where the commands meet and place.port where the ranks do; choose two different ports")


def _number(option: str, environ: Mapping[str, str]) -> int | None:
    text = environ.get(VARIABLES[option], "")
    if not text:
        return None
    most = LAST_PORT if option == PORT else sys.maxsize
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise UsageError(f"the variable {VARIABLES[option]} is '{text}', which is no number for {option}; correct it, or type {option}")
    return int(text)


def _without_options(words: Sequence[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in OPTIONS:
            skip = True
        elif word.partition("=")[0] not in OPTIONS:
            kept.append(word)
    return kept
