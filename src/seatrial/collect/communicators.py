"""Process groups of the ranks: backend, size and transport; and whether anything shows that the ranks trained together.

In: `process_group` events of the probe, NCCL's own lines (NCCL_DEBUG=INFO) in the logs of all hosts, and the TCP connections between ranks
that the agents saw. Out: a `Communicator` for each known rank (without the probe, those that NCCL names) and cautions. How NCCL's ranks are
connected is only in its lines. Ranks that nothing shows to have trained together are a caution, since a launcher's variables only state the
intention.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.collect.events import events_of_kind
from seatrial.collect.logs.launcher_log import host_logs
from seatrial.core.files import open_file
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import MIB, count
from seatrial.machine.network import GLOO_VARIABLE, NCCL_VARIABLE, interface_variables, is_loopback, match_nccl_interfaces
from seatrial.records.attempt import Attempt
from seatrial.records.caution import OTHER_NETWORK, SMALLER_WORLD, WORLD_UNKNOWN, Caution
from seatrial.records.events import PROCESS_GROUP
from seatrial.records.launch import Communicator, ObservedRanks
from seatrial.records.measure import Effective, EffectiveSetting
from seatrial.records.stored import read_record

# NCCL connects at the first collectives, near the beginning of a log.
HEAD_BYTES = 16 * MIB
NCCL_LINE = b"NCCL INFO"
# `node1:4711:4733 [0] NCCL INFO comm 0x55 rank 0 nranks 8 cudaDev 0 busId 1000 - Init COMPLETE`; newer versions have words between.
_COMMUNICATOR = re.compile(rb"NCCL INFO [^\n]*\bcomm 0x[0-9a-f]+ rank (\d{1,7}) nranks (\d{1,7}) [^\n]*\bInit (?:START|COMPLETE)")
# `node1:4711:4733 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA`, `.. via P2P/CUMEM`, `.. via SHM/direct/direct`
_CHANNEL = re.compile(
    rb"NCCL INFO Channel \d+(?:/\d+)? : (\d{1,7})\[[^\]\n]*\] -> (\d{1,7})\[[^\]\n]*\] (\[receive\] )?[^\n]*?via (NET/\w+|P2P|SHM)"
)
# `NCCL INFO Using network Socket`, or IB, or a plugin's name.
_NETWORK = re.compile(rb"NCCL INFO Using network ([^\r\n]{1,40})")
# `NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>`, `NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]ib0:10.1.0.1<0>`
_SOCKETS = re.compile(rb"NCCL INFO (?:Bootstrap|NET/Socket) ?: Using ([^\r\n]{1,400})")
_SOCKET = re.compile(rb"(?:\[\d+\])?([A-Za-z0-9_.-]{1,15}):[^\s<]+<\d+>")
ANY_ADDRESS = ("0.0.0.0", "::")
BACKEND_OPTION = re.compile(r"--(?:ddp[_-]|dist[_-]|distributed[_-])?backend(?:=|$)(.*)")
BACKEND_SETTINGS = ("backend", "ddp_backend", "dist_backend", "distributed_backend")


@dataclass
class NcclLines:
    """What NCCL logged about all communicators of a run."""

    sizes: dict[int, int] = field(default_factory=dict)
    """Rank → the largest communicator that it was in."""
    transports: dict[int, set[str]] = field(default_factory=dict)
    """Rank → its transports to other ranks."""
    networks: set[str] = field(default_factory=set)
    """Between hosts: `Socket`, `IB`, or a plugin's name."""
    interfaces: set[str] = field(default_factory=set)
    """Network interfaces of its sockets."""

    def add(self, text: bytes) -> None:
        for match in _COMMUNICATOR.finditer(text):
            rank, size = int(match[1]), int(match[2])
            self.sizes[rank] = max(size, self.sizes.get(rank, 0))
        for match in _CHANNEL.finditer(text):
            # The receiver of a network connection logs it too.
            self.transports.setdefault(int(match[2] if match[3] else match[1]), set()).add(match[4].decode())
        self.networks |= {match[1].decode(errors="replace").strip() for match in _NETWORK.finditer(text)}
        self.interfaces |= {name.decode() for match in _SOCKETS.finditer(text) for name in _SOCKET.findall(match[1])}

    def transport(self, rank: int) -> str:
        return ", ".join(sorted(self.transports.get(rank, ())))


@dataclass(frozen=True, kw_only=True)
class ProcessGroups:
    """What is known about the process groups of an attempt."""

    communicators: tuple[Communicator, ...] = ()
    """By rank; the last group of a rank that had several."""
    nccl: NcclLines = field(default_factory=NcclLines)


def read_process_groups(attempt: Attempt) -> ProcessGroups:
    paths = AttemptPaths(Path(attempt.folder))
    reported = {one.rank: one for path in paths.all_events() for one in _reported(path, attempt)}
    has_nccl = any("nccl" in one.backend for one in reported.values())
    if not (has_nccl or _asks_nccl_for_lines(attempt) or (not reported and attempt.spec.place.ranks > 1)):
        return ProcessGroups(communicators=tuple(reported[rank] for rank in sorted(reported)))
    lines = read_nccl_lines(log.path for log in host_logs(paths))
    if not reported:
        found = (Communicator(rank=rank, backend="nccl", size=size, transport=lines.transport(rank)) for rank, size in lines.sizes.items())
        return ProcessGroups(communicators=tuple(sorted(found, key=lambda one: one.rank)), nccl=lines)
    return ProcessGroups(communicators=tuple(_with_transport(reported[rank], lines) for rank in sorted(reported)), nccl=lines)


def _reported(path: Path, attempt: Attempt) -> Iterator[Communicator]:
    return (one for event in events_of_kind(PROCESS_GROUP, path, attempt) if (one := Communicator.from_event(event)) is not None)


def _asks_nccl_for_lines(attempt: Attempt) -> bool:
    variables: Mapping[str, str] = {**attempt.provenance.environment, **attempt.provenance.variables}
    return variables.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE")


def _with_transport(one: Communicator, lines: NcclLines) -> Communicator:
    return replace(one, transport=lines.transport(one.rank)) if not one.transport and "nccl" in one.backend else one


def read_nccl_lines(logs: Iterator[Path]) -> NcclLines:
    found = NcclLines()
    for path in logs:
        with contextlib.suppress(OSError), open_file(path) as source:
            head = source.read(HEAD_BYTES)
            if NCCL_LINE in head:
                found.add(head)
    return found


def are_connected(attempt: AttemptPaths, ranks: int) -> bool:
    """Whether the TCP connections that the agents saw join all `ranks` in the way that a process group does: an indication, not a proof.

    Every rank of gloo and of NCCL listens at the address of one interface, also one without connections. A store, a metrics server
    or a debugger of one rank listens at any address, or is a star around it, and ranks that train alone may have it too.
    """
    ends, listeners = _read_sockets(attempt)
    # Both ends must have been seen: where an address is translated on the way, or the agent looked too late, it is unknown.
    links = [(end, rank, ends[far]) for end, rank in ends.items() if (far := (end[0], end[2], end[1])) in ends]
    joined = {rank: {rank} for rank in range(ranks)}
    links = [(end, rank, other) for end, rank, other in links if rank != other and {rank, other} <= joined.keys()]
    is_star = bool(links) and bool(set.intersection(*({(host, local), (host, remote)} for (host, local, remote), _, _ in links)))
    for _, rank, other in links:
        joined[rank] |= joined[other]
        joined.update(dict.fromkeys(joined[rank], joined[rank]))
    return len(joined[0]) == ranks and listeners >= set(joined) and not (is_star and ranks > 2)


def _read_sockets(attempt: AttemptPaths) -> tuple[dict[tuple[str, str, str], int], set[int]]:
    """(Host, local, remote) of every connection that does not end at a server for any address → its rank; and the ranks that listen at one
    address. The host is named for loopback alone, which is another address on each."""
    ends: dict[tuple[str, str, str], int] = {}
    listeners: set[int] = set()
    for log in host_logs(attempt):
        observed, _ = read_record(ObservedRanks, AttemptPaths(log.path.parent).observed_ranks)
        if observed is None:
            continue
        listens_at = {(one.rank, *one.at.rpartition(":")[::2]) for one in observed.listening}
        servers = {(rank, port) for rank, address, port in listens_at if address in ANY_ADDRESS}
        listeners |= {rank for rank, address, _ in listens_at if address not in ANY_ADDRESS}
        for one in observed.connections:
            address, _, port = one.local.rpartition(":")
            if (one.rank, port) not in servers:
                ends[log.host if is_loopback(address) else "", one.local, one.remote] = one.rank
    return ends, listeners


def communicator_cautions(attempt: Attempt, groups: ProcessGroups, ranks: int) -> Iterator[Caution]:
    """A backend or network that the plan, site or command does not name, communicators smaller than planned, and `ranks` that nothing
    shows to have trained together."""
    planned, asked, communicators = attempt.spec.place.ranks, requested_backend(attempt), groups.communicators
    if difference := network_difference(attempt, groups):
        yield Caution(kind=OTHER_NETWORK, text=f"{difference}: the wrong network was measured.")
    backends = sorted({one.backend for one in communicators})
    if asked and backends and not any(asked in backend for backend in backends):
        yield Caution(
            kind="other_backend",
            numbers={"requested": asked, "effective": ", ".join(backends)},
            text=f"Backend {asked} was requested, and the process group used {', '.join(backends)}: the wrong backend was measured.",
        )
    largest = max((one.size for one in communicators), default=0)
    if communicators and largest < planned:
        yield Caution(
            kind=SMALLER_WORLD,
            numbers={"planned": planned, "largest": largest},
            text=f"The largest communicator that was logged has {count(largest, 'rank')}, and the plan has {planned}: they may not have "
            "trained together.",
        )
    paths = AttemptPaths(Path(attempt.folder))
    # Bundled trainers report their group themselves, and `dummy` has none. Runs of the original scripts were not started by an agent.
    is_foreign = attempt.spec.workload.script is not None and paths.command.exists()
    if not communicators and ranks > 1 and is_foreign and not are_connected(paths, ranks):
        yield Caution(
            kind=WORLD_UNKNOWN,
            numbers={"ranks": ranks},
            text=f"No evidence that the {ranks} ranks formed one process group: none reported, no TCP connections between all of "
            "them. Import the probe, or set NCCL_DEBUG=INFO.",
        )


def network_difference(attempt: Attempt, groups: ProcessGroups) -> str:
    """The network that the plan or site names, and what ranks report instead; empty where they agree or nothing is known."""
    spec, used, sockets = attempt.spec, groups.nccl.networks, sorted(groups.nccl.interfaces)
    asked = {**(spec.site.env if spec.site else {}), **spec.env}
    has_ib = any(network.upper().startswith("IB") for network in used)
    networks = " and ".join(sorted(used))
    if used and (net := asked.get("NCCL_NET")) and not any(network.casefold() == net.casefold() for network in used):
        return f"NCCL_NET={net} was set, and NCCL used {networks}"
    if used and asked.get("NCCL_IB_DISABLE") in ("0", "1") and has_ib == (asked["NCCL_IB_DISABLE"] == "1"):
        return f"NCCL_IB_DISABLE={asked['NCCL_IB_DISABLE']} was set, and NCCL used {networks}"
    pattern = asked.get(NCCL_VARIABLE) or spec.place.interface or (spec.site.interface if spec.site else "")
    if pattern and (others := [name for name in sockets if name not in match_nccl_interfaces(pattern, sockets)]):
        return f"Interface {pattern} was named, and NCCL used {', '.join(others)}"
    named = asked.get(GLOO_VARIABLE) or interface_variables(pattern).get(GLOO_VARIABLE)
    gloo = sorted({one.interface for one in groups.communicators if "gloo" in one.backend and one.interface})
    if named and gloo and gloo != [named]:
        return f"Interface {named} was named, and gloo was given {', '.join(gloo)}"
    return ""


def effective_backend(attempt: Attempt, communicators: Sequence[Communicator]) -> Effective:
    """The backend as an effective setting, where the plan or the command names one."""
    asked, backends = requested_backend(attempt), sorted({one.backend for one in communicators})
    if not asked or not backends:
        return {}
    used = ", ".join(backends)
    found = EffectiveSetting(name="backend", requested=asked, effective=asked)
    is_other = asked not in used
    return {found.name: replace(found, effective=used, reason="as torch.distributed's process group reports") if is_other else found}


def requested_backend(attempt: Attempt) -> str:
    """The backend in the plan's settings or the script's options; empty where neither names one."""
    settings, args = attempt.spec.settings, attempt.spec.workload.args
    for name in BACKEND_SETTINGS:
        if isinstance(settings.get(name), str):
            return str(settings[name])
    for at, argument in enumerate(args):
        if match := BACKEND_OPTION.fullmatch(argument):
            return match[1] or (args[at + 1] if "=" not in argument and at + 1 < len(args) else "")
    return ""
