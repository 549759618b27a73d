"""The questions themselves, in three exchanges, whatever the number of hosts.

first     what each host is, knows and has; it opens a port and puts a file into the folder that is to be shared
second    who reaches whom; who sees the others' files; each replaces its own
third     whether the head sees the replaced ones; everything is closed and removed

Between the second and the third, `link_trials` tries how fast those who reach each other are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seatrial.machine.interfaces import LOOPBACK, is_link_local, is_loopback
from seatrial.machine.nic_names import only_name, taken_by_gloo, taken_by_nccl
from seatrial.paths import TRIAL_PREFIX
from seatrial.preflight.hosts.answers import Answers, part, texts, trouble
from seatrial.preflight.hosts.ring import CALL, PEER, RENDEZVOUS, Ring, port_of
from seatrial.preflight.hosts.wanted import GLOO, NCCL, PLACE, Wanted

FIRST_PATIENCE_S = 14.0
SECOND_PATIENCE_S = 10.0
LAST_PATIENCE_S = 6.0

Asked = dict[str, Any]
"""What is put to a host: `{"ask": …}`."""


def file_of(nonce: str, number: int) -> str:
    """The name of a host's trial file: by its number, since a host's name may be as long as a file's."""
    return f"{TRIAL_PREFIX}{nonce}-{number}"


def lock_of(nonce: str) -> str:
    return f"{TRIAL_PREFIX}{nonce}.lock"


def asked(wanted: Wanted) -> tuple[str, ...]:
    """Every host, and the head where it is none of them."""
    return tuple(dict.fromkeys([*wanted.names, wanted.head]))


def first(wanted: Wanted, nonce: str, fast: bool, word: str = "") -> dict[str, Asked]:
    """`word` is what a caller must know to have a host send to it, or take from it: a nonce is told to whoever connects."""
    return {host: in_parts(_first_of(wanted, nonce, host, number, fast, word)) for number, host in enumerate(asked(wanted))}


def _first_of(wanted: Wanted, nonce: str, host: str, number: int, fast: bool, word: str) -> dict[str, Asked]:
    program = {"program": wanted.program, "cwd": wanted.cwd, "variables": wanted.variables}
    parts: dict[str, Asked] = {
        "facts": {"ask": "facts", **(program if wanted.program else {})},
        "gpus": {"ask": "gpus"},
        "names": {"ask": "names", "names": list(wanted.looked_up)},
        "programs": _programs(wanted),
        "paths": {"ask": "paths", "paths": {path: _kind(what) for path, what in wanted.paths.items()}},
        "space": {"ask": "space", "folders": [wanted.folder, wanted.temporary]},
        "put": {"ask": "put", "folder": wanted.folder, "name": file_of(nonce, number), "text": _text(nonce, host, 1)},
        RENDEZVOUS: {**_listen(wanted, nonce, host), "word": word},
    }
    if host == wanted.master and wanted.place.port is not None:
        # The rendezvous has a port of its own; ranks call each other on others.
        base = wanted.place.port_base or wanted.place.port
        parts[PEER] = {"ask": "listen", "base": base, "token": token_of(nonce, host), "word": word}
    if host == wanted.head:
        parts["lock"] = {"ask": "lock", "folder": wanted.folder, "name": lock_of(nonce)}
        parts[CALL] = {"ask": "listen", "any": True, "token": token_of(nonce, host), "word": word}
        if wanted.by_ssh and not fast:
            parts["ssh"] = {"ask": "ssh", "host": wanted.own_ssh_name, "args": list(wanted.place.ssh_args)}
    return parts


def _programs(wanted: Wanted) -> Asked:
    return {
        "ask": "programs",
        "programs": ["pdsh", "ninja", "ssh"],
        "found_beside": list(wanted.program),
        "cwd": wanted.cwd,
        "path": wanted.variables.get("PATH"),
    }


def _kind(what: str) -> str:
    return {"cwd": "folder", "script": "file"}.get(what, "any")


def _listen(wanted: Wanted, nonce: str, host: str) -> Asked:
    """Where the run itself would: node 0 on the plan's own port, the others on one of the same range, which a firewall may have opened."""
    place = wanted.place
    port = place.port if host == wanted.master else None
    return {"ask": "listen", "port": port, "base": place.port_base or place.port, "token": token_of(nonce, host)}


def _text(nonce: str, host: str, version: int) -> str:
    return f"{nonce} {version} {host}"


def token_of(nonce: str, host: str) -> str:
    """What a host says to whoever connects to it: by this it is known for the one that is meant."""
    return _text(nonce, host, 0)


def second(wanted: Wanted, nonce: str, answers: Answers) -> dict[str, Asked]:
    here = [host for host in asked(wanted) if answers.answered(host)]
    ring = Ring(wanted, answers)
    listening = {name: _target(nonce, answers, name, PEER, peer_addresses(wanted, answers, name)) for name in ring.listening}
    calls = {host: {name: listening[name] for name in ring.peers(host)} for host in here}
    return {host: in_parts(_second_of(wanted, nonce, answers, host, calls[host])) for host in here}


def _second_of(wanted: Wanted, nonce: str, answers: Answers, host: str, peers: Mapping[str, Any]) -> dict[str, Asked]:
    """`peers`: the other hosts that it calls, and where."""
    seen = answers.files if host == wanted.head else [wanted.head]
    parts: dict[str, Asked] = {
        "reach": {"ask": "reach", "targets": _targets(wanted, nonce, answers, host, peers)},
        "look": {
            "ask": "look",
            "folder": wanted.folder,
            # Either text, whole: replaced meanwhile or not.
            "wanted": {
                answers.files[other]: [_text(nonce, other, 1), _text(nonce, other, 2)]
                for other in seen
                if other != host and answers.answered(other)
            },
        },
        "replace": {"ask": "put", "folder": wanted.folder, "name": answers.files[host], "text": _text(nonce, host, 2)},
    }
    if host != wanted.head:
        parts["is_held"] = {"ask": "is_held", "folder": wanted.folder, "name": lock_of(nonce)}
    return parts


def _targets(wanted: Wanted, nonce: str, answers: Answers, host: str, peers: Mapping[str, Any]) -> dict[str, Any]:
    """Whom `host` calls: node 0 at the rendezvous, its neighbour in the ring as NCCL and Gloo do (everybody where it is node 0, or in the
    long form), and the head, which agents call."""
    targets: dict[str, Any] = {f"{PEER} {name}": _seen_from(wanted, answers, host, name, target) for name, target in peers.items()}
    if host in wanted.names and host != wanted.master:
        targets[RENDEZVOUS] = _target(nonce, answers, wanted.master, RENDEZVOUS, [wanted.master_addr])
    if host != wanted.head:
        targets[CALL] = _target(nonce, answers, wanted.head, CALL, called_at(wanted, answers))
    return {name: target for name, target in targets.items() if target}


def _seen_from(wanted: Wanted, answers: Answers, host: str, other: str, target: dict[str, Any]) -> dict[str, Any]:
    """Nodes that are started on one machine may have no other address than loopback."""
    if wanted.by_ssh or not answers.on_one_machine(host, other):
        return target
    return {**target, "addresses": [LOOPBACK, *target["addresses"]]}


def _target(nonce: str, answers: Answers, other: str, what: str, addresses: list[str]) -> dict[str, Any] | None:
    port = port_of(answers, other, what)
    return None if port is None else {"addresses": addresses, "port": port, "token": token_of(nonce, other)}


def peer_addresses(wanted: Wanted, answers: Answers, other: str) -> list[str]:
    """Where ranks call each other: at the address of the interface that is named, else by name; without a name, at any address."""
    facts = answers.facts.get(other)
    named = named_interfaces(wanted, facts.interfaces if facts else {})
    if facts and named:
        return usable(facts.interfaces[named[0]])
    return [other] if wanted.by_ssh else _any_address(answers, other)


def called_at(wanted: Wanted, answers: Answers) -> list[str]:
    """Where agents call the harness."""
    return list(wanted.gathered.addresses) or _any_address(answers, wanted.head)


def _any_address(answers: Answers, other: str) -> list[str]:
    facts = answers.facts.get(other)
    return usable(address for many in facts.interfaces.values() for address in many) if facts else []


def named_interfaces(wanted: Wanted, interfaces: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Those of a host's interfaces that the plan or the caller means for traffic between ranks; [] where nobody says or none fits."""
    with_address = [name for name, addresses in interfaces.items() if usable(addresses)]
    for who, text in wanted.interfaces.items():
        fitting = taken_by_gloo(text, with_address) if who == GLOO else taken_by_nccl(text, with_address)
        if fitting and who in (PLACE, NCCL, GLOO):
            return fitting
    return []


def gloo_is_told(wanted: Wanted) -> bool:
    """Whether Gloo gets an interface by name, so that it does not ask for the host's own name."""
    return GLOO in wanted.interfaces or bool(only_name(wanted.interfaces.get(PLACE, "")))


def usable(addresses: Iterable[str]) -> list[str]:
    """Those others may call: no loopback, and no link-local one, which means nothing without its interface."""
    return [address for address in addresses if not is_loopback(address) and not is_link_local(address)]


def third(wanted: Wanted, nonce: str, answers: Answers) -> dict[str, Asked]:
    """Asked of the head alone, of files that it has seen before: the others close when it has answered."""
    unseen = texts(part(answers.second, wanted.head, "look"), "troubles")
    replaced = [
        host
        for host, file in answers.files.items()
        if host != wanted.head and file not in unseen and not trouble(part(answers.second, host, "replace"))
    ]
    files = {answers.files[host]: _text(nonce, host, 2) for host in replaced}
    if not answers.answered(wanted.head) or not files:
        return {}
    return {wanted.head: in_parts({"look": {"ask": "look", "folder": wanted.folder, "wanted": files}})}


def closing(wanted: Wanted, answers: Answers) -> dict[str, Asked]:
    return {host: {"ask": "close"} for host in asked(wanted) if answers.answered(host)}


def in_parts(parts: Mapping[str, Asked]) -> Asked:
    return {"ask": "all", "parts": dict(parts)}
