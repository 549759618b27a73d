"""DeepSpeed's hostfile, and its `--include` and `--exclude`: which hosts a run has, and which slots of each.

`read_hostfile` reads lines `host slots=n`, `select_hosts` applies `node1@node2:0,2`, `take_ranks` takes the first slots in order. The
results, and the errors, are those of DeepSpeed's own parser. Hosts without slots, and names that
cannot be a folder or an argument of ssh, are refused too, since they would fail later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seatrial.core.errors import HostfileError, NoHostsError, did_you_mean

BETWEEN_HOSTS, BEFORE_SLOTS, BETWEEN_SLOTS = "@", ":", ","
EXAMPLE = "node1 slots=2"
# The limit of DNS, and nearly that of a folder's name.
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
    """A `HostSpec`, or a `Node` of an allocation."""

    @property
    def name(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def devices(self) -> tuple[str, ...]: ...


def read_hostfile(path: Path) -> tuple[HostfileHost, ...]:
    """Every host of the file, in its order; NoHostsError where there is none, HostfileError for a wrong line."""
    try:
        # Reading a pipe or a device would block.
        if path.exists() and not path.is_file():
            raise NoHostsError(f"is not a plain file; write one with a line `{EXAMPLE}` for each host", file=path)
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise NoHostsError(f"no such hostfile; write it, with a line `{EXAMPLE}` for each host, or name another", file=path) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise NoHostsError(f"the hostfile cannot be read ({reason}); make it readable, or name another", file=path) from error
    return _parse_hosts(text, path)


def _parse_hosts(text: str, path: Path) -> tuple[HostfileHost, ...]:
    # Case does not distinguish names, as in DNS.
    seen: dict[str, int] = {}
    hosts: list[HostfileHost] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        host = _parse_host(stripped, path, number)
        first = seen.setdefault(host.name.lower(), number)
        if first != number:
            raise HostfileError(
                f"'{host.name}' is in line {first} already; give each host one line with all its slots", file=path, line=number
            )
        hosts.append(host)
    if not hosts:
        raise NoHostsError(f"lists no host; write a line `{EXAMPLE}` for each", file=path)
    return tuple(hosts)


def _parse_host(text: str, path: Path, number: int) -> HostfileHost:
    match = _LINE.fullmatch(text)
    if match is None:
        first = text.split()[0]
        name = first if HOST_NAME.fullmatch(first) else "node1"
        raise HostfileError(
            f"'{text[:80]}' is not a host with its slots; write `{name} slots=2`, with the number of ranks or GPUs", file=path, line=number
        )
    name, slots = match[1], int(match[2])
    problem = host_name_problem(name)
    if problem:
        raise HostfileError(problem, file=path, line=number)
    if slots == 0:
        raise HostfileError(f"'{name}' has no slots; give it 1 or more, or remove the line", file=path, line=number)
    return HostfileHost(name=name, slots=slots)


def host_name_problem(name: str) -> str | None:
    """Why a name cannot be a host's (it becomes a folder and an argument of ssh); None for one that can."""
    shown = name if len(name) <= 80 else f"{name[:79]}…"
    if BETWEEN_HOSTS in name:
        host = name.rpartition(BETWEEN_HOSTS)[2]
        alias = host if HOST_NAME.fullmatch(host) else "node1"
        return f"'{shown}' names a user: write `{alias}` alone, and the user into ~/.ssh/config (Host {alias}, User NAME)"
    if BEFORE_SLOTS in name:
        return f"'{shown}' has a colon, which separates slots; give the address a name in /etc/hosts or ~/.ssh/config and use that"
    if not HOST_NAME.fullmatch(name) or ".." in name:
        return f"'{shown}' is not a host name; write letters, digits, . _ and -, a letter or digit first"
    return f"'{shown}' is longer than {LONGEST_NAME} characters; give the host a shorter name" if len(name) > LONGEST_NAME else None


def parse_selection(text: str) -> dict[str, tuple[int, ...]]:
    """Host → slots of `node1@node2:0,2`, in rising order; no slots mean all of them."""
    named: dict[str, set[int]] = {}
    for selected in text.split(BETWEEN_HOSTS):
        host, colon, slots = selected.partition(BEFORE_SLOTS)
        if not host:
            raise HostfileError(f"'{text}' has an empty host name; write node1@node2:0,1")
        numbers = named.setdefault(host, set())
        if colon:
            numbers |= {_slot(part, text) for part in slots.split(BETWEEN_SLOTS)}
    return {host: tuple(sorted(numbers)) for host, numbers in named.items()}


def _slot(part: str, text: str) -> int:
    if not _SLOT.fullmatch(part.strip()):
        raise HostfileError(f"'{part}' is not a slot in '{text}'; write numbers with commas, node1:0,1, and @ between hosts")
    return int(part)


def count_selected_slots(text: str) -> int | None:
    """Number of slots that a selection names; None if it leaves a host's slots to the hostfile."""
    named = parse_selection(text)
    return sum(map(len, named.values())) if all(named.values()) else None


def select_hosts(hosts: Sequence[HostfileHost], include: str = "", exclude: str = "") -> tuple[HostSpec, ...]:
    """The selected hosts, in the hostfile's order; `devices` only of those whose slots were named."""
    if include and exclude:
        raise HostfileError(f"include ({include}) and exclude ({exclude}) are both given; keep one of the two")
    if not include and not exclude:
        return tuple(HostSpec(name=host.name, ranks=host.slots) for host in hosts)
    named = parse_selection(include or exclude)
    _refuse_unknown(named, hosts)
    left = [_included(host, named) if include else _excluded(host, named) for host in hosts]
    kept = tuple(host for host in left if host is not None)
    if not kept:
        raise HostfileError(f"exclude ({exclude}) leaves no slot of any host; exclude fewer")
    return kept


def _refuse_unknown(named: Mapping[str, tuple[int, ...]], hosts: Iterable[HostfileHost]) -> None:
    slots = {host.name: host.slots for host in hosts}
    for name, numbers in named.items():
        if name not in slots:
            raise HostfileError(f"'{name}' is not in the hostfile; {did_you_mean(name, slots)}")
        beyond = next((number for number in numbers if number >= slots[name]), None)
        if beyond is not None:
            there = "slot 0 alone" if slots[name] == 1 else f"slots 0 to {slots[name] - 1}"
            raise HostfileError(f"no slot {beyond} on '{name}', which has {there} in the hostfile")


def _included(host: HostfileHost, named: Mapping[str, tuple[int, ...]]) -> HostSpec | None:
    if host.name not in named:
        return None
    slots = named[host.name]
    return HostSpec(name=host.name, ranks=len(slots) or host.slots, devices=tuple(map(str, slots)))


def _excluded(host: HostfileHost, named: Mapping[str, tuple[int, ...]]) -> HostSpec | None:
    taken = named.get(host.name)
    if taken is None:
        return HostSpec(name=host.name, ranks=host.slots)
    left = [str(slot) for slot in range(host.slots) if slot not in taken] if taken else []
    return HostSpec(name=host.name, ranks=len(left), devices=tuple(left)) if left else None


def take_ranks(hosts: Sequence[HostSpec], ranks: int) -> tuple[HostSpec, ...]:
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
    """A hostfile of these hosts alone, with enough slots for the highest device that is named."""
    return "".join(f"{host.name} slots={max([host.ranks, *(int(device) + 1 for device in host.devices)])}\n" for host in hosts)


def include_text(hosts: Sequence[UsedHost]) -> str:
    """The value of `--include` to go with `hostfile_text`; empty where all slots of that file are used."""
    if not any(host.devices for host in hosts):
        return ""
    return BETWEEN_HOSTS.join(f"{host.name}{BEFORE_SLOTS}{','.join(host.devices)}" if host.devices else host.name for host in hosts)


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """One host of a run, and its slots in use."""

    name: str
    """Name in the hostfile, which ssh resolves."""
    ranks: int = 1
    devices: tuple[str, ...] = ()
    """GPU numbers where `include` or `exclude` name some of them; empty for the first `ranks` ones, or for CPU ranks."""
