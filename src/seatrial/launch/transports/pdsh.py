"""pdsh: one process for all hosts, which runs an ssh for each.

`-R exec` and not `-R ssh`: both put the host for %h (tried with pdsh 2.34), but only the first keeps the words of ssh's options whole.
A `%` of ours is doubled for it; one at the end of a word would otherwise run into the next. What it prints bears the host's name in
front, without the domain where all hosts have the same, and is sorted into the hosts' files by it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from seatrial.hostfile import HOST_NAME
from seatrial.launch.transports.child import Child, ChildErrand, end_all, end_strays
from seatrial.launch.transports.ssh import hurried
from seatrial.launch.transports.transport import Ended, Errand, Start, ending
from seatrial.options.ssh import pdsh_args, ssh_words

PROGRAM = "pdsh"
HOST = "%h"
# pdsh's own default: all hosts are started at once, however many there are.
LEAST_FANOUT = 32
# For the last lines in its pipe.
READER_PATIENCE_S = 2.0
_OWN_LINE = re.compile(rb"pdsh@[^:]*: (?P<host>[^:]+): \S+ exited with exit code (?P<code>\d+)")
_LABELLED = re.compile(rb"(?P<host>[^:\s]+): (?P<text>.*)", re.DOTALL)
# Stands for the host's name while words are quoted; no word has it.
_ANY = "\0"


def can_name(hosts: Iterable[str]) -> bool:
    """Whether pdsh takes these names as they are. In others, brackets are ranges, `^` a file, `/` a pattern, `:` and `@` other programs
    and users."""
    return all(HOST_NAME.fullmatch(host) for host in hosts)


def pdsh_words(hosts: Sequence[str], words_for: Callable[[str], Sequence[str]], ssh_args: Sequence[str]) -> list[str]:
    """The whole command; `words_for` gives a host's words, which may differ between hosts in their name alone."""
    escaped = [word.replace("%", "%%") for word in ssh_words(_ANY, words_for(_ANY), ssh_args)]
    fanout = str(max(LEAST_FANOUT, len(hosts)))
    return [PROGRAM, "-R", "exec", "-f", fanout, "-w", ",".join(hosts), *(word.replace(_ANY, HOST) for word in escaped)]


def run_by_pdsh(host: str, words_for: Callable[[str], Sequence[str]], ssh_args: Sequence[str]) -> list[str]:
    """The command that pdsh makes of it for one host; quoted otherwise than ours, since the name is put in afterwards."""
    return [word.replace(_ANY, host) for word in ssh_words(_ANY, words_for(_ANY), ssh_args)]


class Pdsh:
    """One pdsh for all hosts."""

    kind = "pdsh"

    def __init__(
        self, words_for: Callable[[str], Sequence[str]], ssh_args: Sequence[str] = (), environ: Mapping[str, str] = os.environ
    ) -> None:
        self._words_for = words_for
        self._ssh_args = pdsh_args(ssh_args, environ)
        self._child: Child | None = None
        self._errands: list[Child] = []
        self._logs: dict[str, Path] = {}
        self._codes: dict[str, int] = {}
        self._reader = threading.Thread(target=self._read, name="seatrial-pdsh", daemon=True)

    def start(self, starts: Sequence[Start]) -> None:
        self._logs = {start.host: start.log for start in starts}
        # There for every host, as with ssh: empty where nobody had anything to say.
        self._append(self._logs, b"")
        self._child = Child(pdsh_words(tuple(self._logs), self._words_for, self._ssh_args), None)
        self._reader.start()

    def ended(self) -> dict[str, Ended]:
        told = {host: ending("ssh (by pdsh)", code) for host, code in dict(self._codes).items()}
        if self._child is None or self._child.returncode is None:
            return told
        # What it said last is to be read first: it tells more than its own end.
        self._reader.join(READER_PATIENCE_S)
        told = {host: ending("ssh (by pdsh)", code) for host, code in dict(self._codes).items()}
        return {**dict.fromkeys(self._logs, ending(PROGRAM, self._child.returncode)), **told}

    def errand(self, start: Start) -> Errand:
        """By ssh itself, which is what pdsh would run."""
        self._errands.append(hurried(start, self._ssh_args))
        return ChildErrand("ssh", self._errands[-1])

    def close(self, after_run: bool = True) -> None:
        if self._child is None:
            return
        end_all([self._child, *self._errands])
        # One that was killed has left its ssh behind, each in a session of its own.
        end_strays([run_by_pdsh(host, self._words_for, self._ssh_args) for host in self._logs])
        self._reader.join(READER_PATIENCE_S)

    def _read(self) -> None:
        """A thread: pdsh would stand still at a full pipe, and with it the last words of an agent."""
        assert self._child is not None
        with self._child.stream as stream:
            for line in stream:
                self._take(line)

    def _take(self, line: bytes) -> None:
        own = _OWN_LINE.match(line)
        if own and (host := self._host(own["host"])):
            self._codes[host] = int(own["code"])
            self._append([host], line)
            return
        labelled = _LABELLED.match(line)
        if labelled and (host := self._host(labelled["host"])):
            self._append([host], labelled["text"])
            return
        # Of no host in particular, so everybody's: `pdsh: Invalid …`.
        self._append(self._logs, line)

    def _append(self, hosts: Iterable[str], text: bytes) -> None:
        for host in hosts:
            try:
                with open(self._logs[host], "ab") as log:
                    log.write(text)
            except OSError:
                # A full disk: the starting goes on, and is told by the agents' calls.
                continue

    def _host(self, label: bytes) -> str | None:
        name = os.fsdecode(label)
        if name in self._logs:
            return name
        short = [host for host in self._logs if host.partition(".")[0] == name]
        return short[0] if len(short) == 1 else None
