"""DeepSpeed's hostfile, and its `--include` and `--exclude` across hosts: which hosts a run has, and what of each.

`read_hostfile` reads lines `host slots=n`, `chosen` applies `node1@node2:0,2`, `first_ranks` takes the first slots in order. Each gives
what DeepSpeed's own parser gives, or refuses where that one does. Refused besides is what would only fail later: a host without slots,
and a name that cannot be a folder or a word for ssh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seatrial.errors import HostfileError, NoHostsError, did_you_mean
from seatrial.records.run_spec import HostSpec

BETWEEN_HOSTS, BEFORE_SLOTS, BETWEEN_SLOTS = "@", ":", ","
EXAMPLE = "node1 slots=2"
# Beyond this a name is no name for DNS, and soon none for a folder.
LONGEST_NAME = 253
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LINE = re.compile(r"(\S+)\s+slots=([0-9]{1,9})(?:\s.*)?")
_SLOT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, kw_only=True)
class HostfileHost:
    """One line of a hostfile."""

    name: str
    slots: int


class UsedHost(Protocol):
    """A host and what of it a run uses: a `HostSpec`, or a `Node` of an allocation."""

    @property
    def name(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def devices(self) -> tuple[str, ...]: ...


def read_hostfile(path: Path) -> tuple[HostfileHost, ...]:
    """Every host of the file, in its order; NoHostsError where there is none to be had, HostfileError for a line that is wrong."""
    try:
        # A pipe or a device would be waited for.
        if path.exists() and not path.is_file():
            raise NoHostsError(f"is no plain file; write one with a line `{EXAMPLE}` for each host", file=path)
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise NoHostsError(
            f"there is no such hostfile; write it, with a line `{EXAMPLE}` for each host, or name another", file=path
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise NoHostsError(f"the hostfile cannot be read ({reason}); make it readable, or name another", file=path) from error
    return _hosts_in(text, path)


def _hosts_in(text: str, path: Path) -> tuple[HostfileHost, ...]:
    # Names are told apart by their letters alone, as DNS does.
    seen: dict[str, int] = {}
    hosts: list[HostfileHost] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        host = _host_in(words, path, number)
        first = seen.setdefault(host.name.lower(), number)
        if first != number:
            raise HostfileError(
                f"'{host.name}' stands in line {first} already; give each host one line with all its slots", file=path, line=number
            )
        hosts.append(host)
    if not hosts:
        raise NoHostsError(f"names no host; write a line `{EXAMPLE}` for each", file=path)
    return tuple(hosts)


def _host_in(words: str, path: Path, number: int) -> HostfileHost:
    match = _LINE.fullmatch(words)
    if match is None:
        first = words.split()[0]
        name = first if HOST_NAME.fullmatch(first) else "node1"
        raise HostfileError(
            f"'{words[:80]}' is no host with its slots; write `{name} slots=2`, ranks or GPUs for the number", file=path, line=number
        )
    name, slots = match[1], int(match[2])
    problem = name_problem(name)
    if problem:
        raise HostfileError(problem, file=path, line=number)
    if slots == 0:
        raise HostfileError(f"'{name}' has no slots; give it 1 or more, or take the line out", file=path, line=number)
    return HostfileHost(name=name, slots=slots)


def name_problem(name: str) -> str | None:
    """Why a name cannot be a host's: it becomes a folder and a word for ssh. None for one that can."""
    shown = name if len(name) <= 80 else f"{name[:79]}…"
    if BETWEEN_HOSTS in name:
        host = name.rpartition(BETWEEN_HOSTS)[2]
        alias = host if HOST_NAME.fullmatch(host) else "node1"
        return f"'{shown}' names a user: write `{alias}` alone, and the user into ~/.ssh/config (Host {alias}, User NAME)"
    if BEFORE_SLOTS in name:
        return f"'{shown}' has a colon, which stands before slots; give the address a name in /etc/hosts or ~/.ssh/config and write that"
    if not HOST_NAME.fullmatch(name) or ".." in name:
        return f"'{shown}' is no name of a host; write letters, digits, . _ and -, a letter or digit first"
    return f"'{shown}' is longer than {LONGEST_NAME} characters; give the host a shorter name" if len(name) > LONGEST_NAME else None


def parse_choice(text: str) -> dict[str, tuple[int, ...]]:
    """Host to slots of `node1@node2:0,2`, slots in rising order; no slots stand for all of them."""
    named: dict[str, set[int]] = {}
    for part in text.split(BETWEEN_HOSTS):
        host, colon, slots = part.partition(BEFORE_SLOTS)
        if not host:
            raise HostfileError(f"'{text}' names a host without a name; write node1@node2:0,1")
        numbers = named.setdefault(host, set())
        if colon:
            numbers |= {_slot(word, text) for word in slots.split(BETWEEN_SLOTS)}
    return {host: tuple(sorted(numbers)) for host, numbers in named.items()}


def _slot(word: str, text: str) -> int:
    if not _SLOT.fullmatch(word.strip()):
        raise HostfileError(f"'{word}' is no slot in '{text}'; write numbers with commas between them, node1:0,1, and @ between hosts")
    return int(word)


def slots_named(text: str) -> int | None:
    """How many slots a choice names; None where it leaves those of a host to the hostfile."""
    named = parse_choice(text)
    return sum(map(len, named.values())) if all(named.values()) else None


def chosen(hosts: Sequence[HostfileHost], include: str = "", exclude: str = "") -> tuple[HostSpec, ...]:
    """The hosts that are left, in the hostfile's order; `devices` only of those whose slots were named."""
    if include and exclude:
        raise HostfileError(f"include ({include}) and exclude ({exclude}) are both given; keep one of the two")
    if not include and not exclude:
        return tuple(HostSpec(name=host.name, ranks=host.slots) for host in hosts)
    named = parse_choice(include or exclude)
    _refuse_unknown(named, hosts)
    left = [_included(host, named) if include else _without(host, named) for host in hosts]
    kept = tuple(host for host in left if host is not None)
    if not kept:
        raise HostfileError(f"exclude ({exclude}) leaves no slot of any host; leave some")
    return kept


def _refuse_unknown(named: Mapping[str, tuple[int, ...]], hosts: Iterable[HostfileHost]) -> None:
    slots = {host.name: host.slots for host in hosts}
    for name, numbers in named.items():
        if name not in slots:
            raise HostfileError(f"'{name}' is no host of the hostfile; {did_you_mean(name, slots)}")
        beyond = next((number for number in numbers if number >= slots[name]), None)
        if beyond is not None:
            there = "slot 0 alone" if slots[name] == 1 else f"slots 0 to {slots[name] - 1}"
            raise HostfileError(f"there is no slot {beyond} on '{name}', which has {there} by the hostfile")


def _included(host: HostfileHost, named: Mapping[str, tuple[int, ...]]) -> HostSpec | None:
    if host.name not in named:
        return None
    slots = named[host.name]
    return HostSpec(name=host.name, ranks=len(slots) or host.slots, devices=tuple(map(str, slots)))


def _without(host: HostfileHost, named: Mapping[str, tuple[int, ...]]) -> HostSpec | None:
    taken = named.get(host.name)
    if taken is None:
        return HostSpec(name=host.name, ranks=host.slots)
    left = [str(slot) for slot in range(host.slots) if slot not in taken] if taken else []
    return HostSpec(name=host.name, ranks=len(left), devices=tuple(left)) if left else None


def first_ranks(hosts: Sequence[HostSpec], ranks: int) -> tuple[HostSpec, ...]:
    """The first `ranks` slots, host by host; a host of which none is needed is left out."""
    total = sum(host.ranks for host in hosts)
    if ranks > total:
        raise HostfileError(f"{ranks} ranks, but the hosts have {total} slots together")
    taken: list[HostSpec] = []
    for host in hosts:
        count = min(host.ranks, ranks)
        if count:
            taken.append(HostSpec(name=host.name, ranks=count, devices=host.devices[:count]))
        ranks -= count
    return tuple(taken)


def hostfile_text(hosts: Iterable[UsedHost]) -> str:
    """A hostfile of these hosts alone, with slots enough for the highest device that is named."""
    return "".join(f"{host.name} slots={max([host.ranks, *(int(device) + 1 for device in host.devices)])}\n" for host in hosts)


def include_text(hosts: Sequence[UsedHost]) -> str:
    """What to give to `--include` beside `hostfile_text`; empty where all slots of that file are used."""
    if not any(host.devices for host in hosts):
        return ""
    return BETWEEN_HOSTS.join(f"{host.name}{BEFORE_SLOTS}{','.join(host.devices)}" if host.devices else host.name for host in hosts)
