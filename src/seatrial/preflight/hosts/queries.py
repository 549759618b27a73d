"""Requests to the hosts of a run, in three exchanges whatever their number, and their answers.

first     facts of each host; it opens a port and writes a file into the shared folder
second    which hosts reach and see the files of which others; each replaces its own file
third     whether the head sees the replaced ones; everything is closed and removed

In: `HostsNeed`, what the runs need of their hosts. Out: requests for each exchange, and `Answers`, read tolerantly: a part that is
missing or malformed becomes the text of a problem. Between the second and the third, `network.measure_links` measures link speeds.
"""

from __future__ import annotations

import bisect
import functools
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import TRIAL_PREFIX
from seatrial.machine.network import (
    LOOPBACK,
    interface_addresses,
    is_link_local,
    is_loopback,
    match_gloo_interfaces,
    match_nccl_interfaces,
    single_interface,
)
from seatrial.preflight.check_definition import Need, asks_for_gpus, may_use_gpus, needs_torch, uses_deepspeed
from seatrial.preflight.storage import named_paths, nearest_existing
from seatrial.records.attempt import HostFacts
from seatrial.records.launch import Reply
from seatrial.records.plan import HOSTFILE, LOCAL, PlaceSpec, RunSpec

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
PLACE = "place.interface"
# Variables that decide which interpreter and packages a run gets.
INTERPRETER_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "LD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True)
class PernodeFacts:
    """Facts about the nodes of place `pernode` before any exchange: their commands have connected to node 0."""

    addresses: tuple[str, ...] = ()
    """Addresses of node 0, where agents connect to the harness; the one that the user gave comes first."""
    host_names: Mapping[str, str] = field(default_factory=dict)
    """Node → its host's own name."""


@dataclass(frozen=True, kw_only=True)
class HostsNeed:
    """What the runs of a plan need of their hosts; without a plan, what any run would need."""

    hosts: tuple[HostSpec, ...]
    head: str
    """The host the harness runs on; not always one of `hosts`."""
    place: PlaceSpec
    planned: bool = False
    output: str = ""
    """Where the campaign writes; may not exist yet."""
    folder: str = ""
    """The output folder, or the nearest folder above it that exists on the head."""
    interfaces: Mapping[str, str] = field(default_factory=dict)
    """Source (`place.interface`, NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME) → interfaces as written."""
    program: tuple[str, ...] = ()
    """The program of the runs, if the plan names one."""
    cwd: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those of INTERPRETER_VARIABLES that the runs get."""
    ninja: bool = False
    """Whether DeepSpeed may build its ops."""
    gpus: bool = False
    """Whether the plan requests GPUs."""
    gloo: bool = True
    """Whether ranks are likely to use Gloo: no GPU is requested."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Paths that every host must have → `cwd`, `script` or `data`."""
    temporary: str = "/tmp"
    pernode: PernodeFacts = PernodeFacts()
    """Empty for hosts reached by ssh."""

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts)

    @property
    def master(self) -> str:
        """Node 0, the host of the rendezvous."""
        return self.hosts[0].name

    @property
    def master_addr(self) -> str:
        return self.place.master_addr or self.master

    @property
    def own_ssh_name(self) -> str:
        """The name by which the head would ssh to itself."""
        return self.head if self.head in self.names else socket.gethostname()

    @property
    def by_ssh(self) -> bool:
        """False for pernode, whose nodes are known by rank only: `node1` cannot be looked up."""
        return not self.place.traits.typed_on_each_node

    @functools.cached_property
    def names_to_resolve(self) -> tuple[str, ...]:
        """The names that hosts look up when a run starts."""
        return tuple(dict.fromkeys([*(self.names if self.by_ssh else ()), self.master_addr]))


def hosts_of(need: Need) -> tuple[HostSpec, ...]:
    """Every host of the plan's runs, once, with the most ranks that a run has there."""
    found: dict[str, HostSpec] = {}
    for spec in need.runs:
        for host in spec.place.hosts:
            known = found.get(host.name)
            if known is None or (host.ranks, len(host.devices)) > (known.ranks, len(known.devices)):
                found[host.name] = host
    return tuple(found.values())


def hosts_need_of(need: Need, hosts: Sequence[HostSpec], head: str, place: PlaceSpec | None = None) -> HostsNeed:
    """What the runs on many hosts need; `place` is used where there is no plan."""
    runs = [spec for spec in need.runs if not spec.place.traits.is_this_machine]
    where = place or (runs[0].place if runs else PlaceSpec(kind=HOSTFILE, hosts=tuple(hosts)))
    environments = [need.environment(spec) for spec in runs] or [dict(need.base_env)]
    any_run = HostsNeed(
        hosts=tuple(hosts),
        head=head,
        place=where,
        output=str(need.output.absolute()),
        folder=str(nearest_existing(need.output)),
        interfaces=_interfaces(where, environments),
    )
    if not runs:
        return any_run
    first, gpus = runs[0], any(asks_for_gpus(spec) for spec in runs)
    return replace(
        any_run,
        planned=True,
        program=first.launcher.program[:1],
        cwd=first.cwd,
        variables={name: environments[0][name] for name in INTERPRETER_VARIABLES if name in environments[0]},
        ninja=any(uses_deepspeed(spec) and may_use_gpus(spec) for spec in runs),
        gpus=gpus,
        # A script may do anything; a bundled workload says whether it uses torch.
        gloo=not gpus and any(not spec.workload.module or needs_torch(spec) for spec in runs),
        paths=_paths(need, runs),
        temporary=environments[0].get("TMPDIR") or "/tmp",
    )


def _interfaces(place: PlaceSpec, environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What the ranks will get: the place sets both variables, Gloo's only for one plain name."""
    found = {PLACE: place.interface} if place.interface else {}
    for variable in (NCCL, GLOO):
        set_by_place = place.interface and (variable == NCCL or single_interface(place.interface))
        for given in environments:
            if given.get(variable) and not set_by_place:
                found[variable] = given[variable]
    return found


def _paths(need: Need, runs: Sequence[RunSpec]) -> dict[str, str]:
    found = {str(Path(spec.cwd).absolute()): "cwd" for spec in runs}
    for spec in runs:
        script = spec.workload.script
        if script and ("/" in script or script.endswith(".py")) and not spec.workload.module:
            found.setdefault(os.path.normpath(Path(spec.cwd).absolute() / script), "script")
    for _, _, value, cwd in named_paths(need):
        path = os.path.normpath(Path(cwd).absolute() / Path(value).expanduser())
        # Missing data is reported by the head's own checks.
        if Path(path).exists():
            found.setdefault(path, "data")
    return found


def need_of_head(need: Need, head: str) -> Need:
    """What the plan needs of the head alone: its own ranks if it has some, else only the output folder."""
    shares = ((spec, _share(spec.place, head)) for spec in need.runs)
    return replace(need, runs=tuple(replace(spec, place=share) for spec, share in shares if share))


def _share(place: PlaceSpec, head: str) -> PlaceSpec | None:
    """The head's own ranks of a run; None where it has none."""
    if place.traits.typed_on_each_node:
        return PlaceSpec(kind=LOCAL, ranks=max(1, place.ranks // max(1, place.nodes)), devices=place.devices, port=place.port)
    if place.traits.runs_in_jobs:
        # Ranks run on nodes that are not known yet.
        return None
    if not place.traits.lists_hosts:
        return place
    own = next((host for host in place.hosts if host.name == head), None)
    if own is None:
        return None
    is_master = own.name == place.hosts[0].name
    return PlaceSpec(kind=LOCAL, ranks=own.ranks, devices=own.devices, port=place.port if is_master else None)


Link = tuple[str, str]
"""Two hosts: client and server of a connection."""


@dataclass(frozen=True, kw_only=True)
class LinkSpeed:
    """The measured speed between two hosts, in bytes per second."""

    there: float
    """Speed from the client to the server."""
    back: float
    problem: str = ""
    """Why it could not be measured; else empty."""

    @property
    def slowest(self) -> float:
        return min(self.there, self.back)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Replies of each exchange; a host that stops answering has no later ones."""

    first: Mapping[str, Reply]
    second: Mapping[str, Reply] = field(default_factory=dict)
    third: Mapping[str, Reply] = field(default_factory=dict)
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Host → name of its trial file in the shared folder."""
    fast: bool = True
    """Whether the short form was run."""
    links: Mapping[Link, LinkSpeed] = field(default_factory=dict)
    """Measured link speeds."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Host → its name in texts, where that is more than its own."""

    def answered(self, host: str) -> bool:
        return host in self.first and not self.first[host].trouble

    def on_one_machine(self, host: str, other: str) -> bool:
        """Whether two nodes were started on one machine."""
        one, two = self.facts.get(host), self.facts.get(other)
        return one is not None and two is not None and (one.host, one.boot_id) == (two.host, two.boot_id)

    def label(self, host: str) -> str:
        return self.labels.get(host, host)


def answer_part(replies: Mapping[str, Reply], host: str, name: str) -> Mapping[str, Any]:
    """One part of a host's reply; `{"trouble": …}` if missing."""
    reply = replies.get(host)
    if reply is None:
        return {"trouble": "not asked"}
    if reply.trouble:
        return {"trouble": reply.trouble}
    parts = reply.answer.get("parts")
    found = parts.get(name) if isinstance(parts, dict) else None
    return found if isinstance(found, dict) else {"trouble": str(reply.answer.get("trouble") or f"no answer for {name}")}


def problem_in(answer: Mapping[str, Any]) -> str:
    return str(answer.get("trouble") or "")


def text_mapping(answer: Mapping[str, Any], key: str) -> dict[str, str]:
    """A mapping of names to texts in an answer; {} for anything else."""
    found = answer.get(key)
    return {str(name): str(text) for name, text in found.items()} if isinstance(found, dict) else {}


def list_mapping(answer: Mapping[str, Any], key: str) -> dict[str, list[str]]:
    """A mapping of names to lists of texts, likewise."""
    found = answer.get(key)
    return (
        {str(name): [str(one) for one in many] for name, many in found.items() if isinstance(many, list)} if isinstance(found, dict) else {}
    )


RENDEZVOUS, PEER, CALL = "rendezvous", "peer", "call"


class Ring:
    """Which host connects to which: the listening hosts in the hostfile's order. Built once, as a thousand hosts are a million pairs."""

    def __init__(self, need: HostsNeed, answers: Answers) -> None:
        self._master, self._fast = need.master, answers.fast
        self._places = {name: place for place, name in enumerate(need.names)}
        self.listening = [name for name in need.names if port_of(answers, name, PEER) is not None]
        self._taken = [self._places[name] for name in self.listening]

    def peers(self, host: str) -> list[str]:
        """Hosts that `host` connects to: the next one; all of them from node 0 or in the long form; none from outside the ring."""
        if host not in self._places or not self.listening:
            return []
        if host == self._master or not self._fast:
            return [name for name in self.listening if name != host]
        following = self.listening[bisect.bisect_right(self._taken, self._places[host]) % len(self.listening)]
        return [following] if following != host else []


def port_of(answers: Answers, host: str, what: str) -> int | None:
    """The port on which it listens for `what`; peers use the rendezvous port unless it has one for each."""
    port = answer_part(answers.first, host, what).get("port")
    if port is None and what == PEER:
        port = answer_part(answers.first, host, RENDEZVOUS).get("port")
    return port if isinstance(port, int) else None


FIRST_TIMEOUT_S = 14.0
SECOND_TIMEOUT_S = 10.0
LAST_TIMEOUT_S = 6.0

KINDS_OF_PATHS = {"cwd": "folder", "script": "file"}

Request = dict[str, Any]
"""A request to a host: `{"ask": …}`."""


def file_of(nonce: str, number: int) -> str:
    """Name of a host's trial file, by number: a host name may be as long as a file name."""
    return f"{TRIAL_PREFIX}{nonce}-{number}"


def lock_of(nonce: str) -> str:
    return f"{TRIAL_PREFIX}{nonce}.lock"


def hosts_and_head(need: HostsNeed) -> tuple[str, ...]:
    """Every host, and the head if it is not one of them."""
    return tuple(dict.fromkeys([*need.names, need.head]))


def first_requests(need: HostsNeed, nonce: str, fast: bool, secret: str = "") -> dict[str, Request]:
    """`secret` authenticates clients of the speed test, since the nonce is sent to any client."""
    return {host: combined(_first_parts(need, nonce, host, number, fast, secret)) for number, host in enumerate(hosts_and_head(need))}


def _first_parts(need: HostsNeed, nonce: str, host: str, number: int, fast: bool, secret: str) -> dict[str, Request]:
    program = {"program": need.program, "cwd": need.cwd, "variables": need.variables}
    parts: dict[str, Request] = {
        "facts": {"ask": "facts", **(program if need.program else {})},
        "gpus": {"ask": "gpus"},
        "encryption": {"ask": "encryption"},
        "names": {"ask": "names", "names": list(need.names_to_resolve)},
        "programs": _programs_request(need),
        "paths": {"ask": "paths", "paths": {path: KINDS_OF_PATHS.get(what, "any") for path, what in need.paths.items()}},
        "space": {"ask": "space", "folders": [need.folder, need.temporary]},
        "put": {"ask": "put", "folder": need.folder, "name": file_of(nonce, number), "text": _text(nonce, host, 1)},
        # Where the run would listen: node 0 on the plan's port, the others in the same range, which a firewall may have opened.
        RENDEZVOUS: {
            "ask": "listen",
            "port": need.place.port if host == need.master else None,
            "base": need.place.port_base or need.place.port,
            "token": token_of(nonce, host),
            "word": secret,
        },
    }
    if host == need.master and need.place.port is not None:
        # The rendezvous has a port of its own; ranks connect to each other on others.
        base = need.place.port_base or need.place.port
        parts[PEER] = {"ask": "listen", "base": base, "token": token_of(nonce, host), "word": secret}
    if host == need.head:
        parts["lock"] = {"ask": "lock", "folder": need.folder, "name": lock_of(nonce)}
        parts[CALL] = {"ask": "listen", "any": True, "token": token_of(nonce, host), "word": secret}
        if need.by_ssh and not fast:
            parts["ssh"] = {"ask": "ssh", "host": need.own_ssh_name, "args": list(need.place.ssh_args)}
    return parts


def _programs_request(need: HostsNeed) -> Request:
    return {
        "ask": "programs",
        "programs": ["pdsh", "ninja", "ssh"],
        "found_beside": list(need.program),
        "cwd": need.cwd,
        "path": need.variables.get("PATH"),
    }


def _text(nonce: str, host: str, version: int) -> str:
    return f"{nonce} {version} {host}"


def token_of(nonce: str, host: str) -> str:
    """What a host sends to its clients, to prove that they reached the right host."""
    return _text(nonce, host, 0)


def second_requests(need: HostsNeed, nonce: str, answers: Answers) -> dict[str, Request]:
    here = [host for host in hosts_and_head(need) if answers.answered(host)]
    ring = Ring(need, answers)
    listening = {name: _target(nonce, answers, name, PEER, peer_addresses(need, answers, name)) for name in ring.listening}
    calls = {host: {name: listening[name] for name in ring.peers(host)} for host in here}
    return {host: combined(_second_parts(need, nonce, answers, host, calls[host])) for host in here}


def _second_parts(need: HostsNeed, nonce: str, answers: Answers, host: str, peers: Mapping[str, Any]) -> dict[str, Request]:
    """`peers`: the hosts to connect to, and their addresses."""
    seen = answers.files if host == need.head else [need.head]
    parts: dict[str, Request] = {
        "reach": {"ask": "reach", "targets": _targets(need, nonce, answers, host, peers)},
        "look": {
            "ask": "look",
            "folder": need.folder,
            # Either text, complete: replaced meanwhile or not.
            "wanted": {
                answers.files[other]: [_text(nonce, other, 1), _text(nonce, other, 2)]
                for other in seen
                if other != host and answers.answered(other)
            },
        },
        "replace": {"ask": "put", "folder": need.folder, "name": answers.files[host], "text": _text(nonce, host, 2)},
    }
    if host != need.head:
        parts["is_held"] = {"ask": "is_held", "folder": need.folder, "name": lock_of(nonce)}
    return parts


def _targets(need: HostsNeed, nonce: str, answers: Answers, host: str, peers: Mapping[str, Any]) -> dict[str, Any]:
    """Where `host` connects to: node 0 at the rendezvous, its peers as NCCL and Gloo do, and the head as agents do."""
    targets: dict[str, Any] = {f"{PEER} {name}": _seen_from(need, answers, host, name, target) for name, target in peers.items()}
    if host in need.names and host != need.master:
        targets[RENDEZVOUS] = _target(nonce, answers, need.master, RENDEZVOUS, [need.master_addr])
    if host != need.head:
        targets[CALL] = _target(nonce, answers, need.head, CALL, harness_addresses(need, answers))
    return {name: target for name, target in targets.items() if target}


def _seen_from(need: HostsNeed, answers: Answers, host: str, other: str, target: dict[str, Any]) -> dict[str, Any]:
    """Nodes on one machine may have no address but loopback."""
    if need.by_ssh or not answers.on_one_machine(host, other):
        return target
    return {**target, "addresses": [LOOPBACK, *target["addresses"]]}


def _target(nonce: str, answers: Answers, other: str, what: str, addresses: list[str]) -> dict[str, Any] | None:
    port = port_of(answers, other, what)
    return None if port is None else {"addresses": addresses, "port": port, "token": token_of(nonce, other)}


def peer_addresses(need: HostsNeed, answers: Answers, other: str) -> list[str]:
    """Where ranks connect to each other: the address of the named interface, else the host name, else any address."""
    facts = answers.facts.get(other)
    named = named_interfaces(need, facts.interfaces if facts else {})
    if facts and named:
        return usable(facts.interfaces[named[0]])
    return [other] if need.by_ssh else _any_address(answers, other)


def harness_addresses(need: HostsNeed, answers: Answers) -> list[str]:
    """Where agents connect to the harness."""
    if need.pernode.addresses:
        return list(need.pernode.addresses)
    facts = answers.facts.get(need.head)
    named = interface_addresses(need.place.interface, facts.interfaces if facts else {})
    return list(named) or _any_address(answers, need.head)


def _any_address(answers: Answers, other: str) -> list[str]:
    facts = answers.facts.get(other)
    return usable(address for many in facts.interfaces.values() for address in many) if facts else []


def named_interfaces(need: HostsNeed, interfaces: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Interfaces that the plan or the base environment names for traffic between ranks; [] where none is named or none fits."""
    with_address = [name for name, addresses in interfaces.items() if usable(addresses)]
    for who, text in need.interfaces.items():
        fitting = match_gloo_interfaces(text, with_address) if who == GLOO else match_nccl_interfaces(text, with_address)
        if fitting and who in (PLACE, NCCL, GLOO):
            return fitting
    return []


def gloo_has_interface(need: HostsNeed) -> bool:
    """Whether Gloo gets an interface by name, so that it does not look up the host's own name."""
    return GLOO in need.interfaces or bool(single_interface(need.interfaces.get(PLACE, "")))


def usable(addresses: Iterable[str]) -> list[str]:
    """Addresses that others can use: neither loopback nor link-local, which means nothing without its interface."""
    return [address for address in addresses if not is_loopback(address) and not is_link_local(address)]


def third_requests(need: HostsNeed, nonce: str, answers: Answers) -> dict[str, Request]:
    """Requests to the head alone, about files that it saw before; the others close after its answer."""
    unseen = text_mapping(answer_part(answers.second, need.head, "look"), "troubles")
    replaced = [
        host
        for host, file in answers.files.items()
        if host != need.head and file not in unseen and not problem_in(answer_part(answers.second, host, "replace"))
    ]
    files = {answers.files[host]: _text(nonce, host, 2) for host in replaced}
    if not answers.answered(need.head) or not files:
        return {}
    return {need.head: combined({"look": {"ask": "look", "folder": need.folder, "wanted": files}})}


def closing_requests(need: HostsNeed, answers: Answers) -> dict[str, Request]:
    return {host: {"ask": "close"} for host in hosts_and_head(need) if answers.answered(host)}


def combined(parts: Mapping[str, Request]) -> Request:
    return {"ask": "all", "parts": dict(parts)}
