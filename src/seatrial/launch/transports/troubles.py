"""What went wrong on a host before its agent called: from the words of ssh, pdsh and the agent to a cause and a fix.

In: how the starting ended and the last lines of nodes/<host>/start.log. Out: a HostError, whose cause is an entry of the registry of
signatures. The first row of the table that fits decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from seatrial.errors import HostError
from seatrial.files import tail_lines
from seatrial.launch.transports.transport import Ended
from seatrial.wording import named

SHOWN_LINES = 3
READ_LINES = 40
MOST_HOSTS_NAMED = 5
# What pdsh says of every ssh that failed; ssh's own words stand before it.
_NO_NEWS = re.compile(r"pdsh@\S+: \S+ \S+ exited with exit code \d+|\S*Warning: Permanently added")

_FIXES: tuple[tuple[str, str, str], ...] = (
    (
        r"Permission denied \(|Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|Too many authentication failures",
        "ssh_denied",
        "let `ssh -o BatchMode=yes {host} true` work without a question (ssh-copy-id {host}, or accept its key once)",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "name_unknown",
        "write the name into /etc/hosts or ~/.ssh/config, or correct it in the hostfile",
    ),
    (
        r"Connection (?:refused|timed out|closed by|reset)|No route to host|Network is unreachable|kex_exchange",
        "host_lost",
        "see that {host} is up and sshd runs there on that port (`ssh {host} true`), or leave the host out with place.exclude",
    ),
    (
        r"port \d+ is in use|no TCP port is free",
        "port_in_use",
        "leave place.port out, so that a free one is taken, or end what holds it on {host}",
    ),
    (
        r"cannot reach the harness|harness could not be reached",
        "node_not_started",
        "let {host} reach this machine by TCP (a firewall, or a name that resolves to another network); `seatrial doctor PLAN` tries it",
    ),
    (
        r"No module named '?seatrial|ModuleNotFoundError|ImportError",
        "import_error",
        "install Seatrial on {host} in the same environment, or name its interpreter with place.python",
    ),
    (
        r"(?:has no|cannot read) \S*call\.json",
        "file_missing",
        "let {host} see the output folder under the same path (a shared disk): no file of this attempt was found there",
    ),
    (
        r"command not found|: not found|No such file or directory|cannot execute|Exec format error",
        "program_missing",
        "let the interpreter lie at the same path on {host}, or name one that does with place.python",
    ),
)
_UNTOLD = "look at the lines above and try `ssh {host} true`; `seatrial doctor PLAN` asks every host at once"
_KILLED = "see who ended it (a person, or the kernel for want of memory: `dmesg`), then start the same command again"
_SILENT = "see whether {host} is very busy and can reach this machine by TCP; `seatrial doctor PLAN` tries it"


def host_error(ended: Mapping[str, Ended], logs: Mapping[str, Path]) -> HostError:
    """The error for hosts whose starting is over, told by the first of them."""
    host = next(iter(ended))
    said = _said(logs[host])
    cause, fix = _diagnosed(said)
    problem = f"{host}: its agent could not be started: {ended[host].words}{_quoted(said)}{_others(list(ended)[1:])}"
    was_killed = (ended[host].returncode or 0) < 0
    return HostError(f"{problem}; {(fix or (_KILLED if was_killed else _UNTOLD)).format(host=host)}", host=host, cause=cause)


def silence_error(silent: list[str], logs: Mapping[str, Path], patience_s: float) -> HostError:
    """The error for hosts of which nothing was heard in time."""
    host = silent[0]
    said = _said(logs[host])
    cause, fix = _diagnosed(said)
    problem = f"the agent of {host} did not call within {patience_s:.0f} s{_quoted(said)}{_others(silent[1:])}"
    return HostError(f"{problem}; {(fix or _SILENT).format(host=host)}", host=host, cause=cause)


def left_error(host: str, why: str, logs: Mapping[str, Path]) -> HostError:
    """The error for a host that called and went before it was told what to do."""
    said = _said(logs[host])
    return HostError(
        f"the agent of {host} called and went again ({why}){_quoted(said)}; {_UNTOLD.format(host=host)}", host=host, cause="node_gone"
    )


def _said(log: Path) -> list[str]:
    return [line.strip() for line in tail_lines(log, READ_LINES) if line.strip()]


def _diagnosed(said: list[str]) -> tuple[str, str]:
    """(cause, fix); the general cause and no fix where nothing is known of it."""
    text = "\n".join(said)
    return next(((cause, fix) for pattern, cause, fix in _FIXES if re.search(pattern, text)), ("node_not_started", ""))


def _quoted(said: list[str]) -> str:
    telling = [line for line in said if not _NO_NEWS.match(line)] or said
    return f" ({' / '.join(telling[-SHOWN_LINES:])})" if telling else ""


def _others(hosts: list[str]) -> str:
    return f"; so it is on {named(hosts, MOST_HOSTS_NAMED)}" if hosts else ""
