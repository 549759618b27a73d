"""The commands that start an answerer on each host. Pure: hosts and a place in, words out.

Through ssh as agents are started too, without a password and without a question about a key; a plain child for the host that is this
machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from seatrial.launch.own_programs import answers_words
from seatrial.machine.this_host import THIS_MACHINE, is_this_host
from seatrial.options.ssh import ssh_words
from seatrial.records.run_spec import HostSpec


def head_of(hosts: Sequence[HostSpec], is_here: Callable[[str], bool] = is_this_host) -> str:
    """The host that this process runs on, THIS_MACHINE where it is none of them."""
    return next((host.name for host in hosts if is_here(host.name)), THIS_MACHINE)


def ask_commands(
    hosts: Sequence[HostSpec], head: str, *, python: str = "", ssh_args: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Host → the words that start its answerer; the head is always among them. `python` is the interpreter of every host, this one's path
    where it is empty; `ssh_args` are the user's (`transports.choose.users_args`); `env` is the caller's, of which PYTHONPATH goes along."""
    answering = answers_words(python)
    # A machine without ranks need not have the interpreter of the hosts.
    own = {head: answering if any(host.name == head for host in hosts) else answers_words()}
    path = (os.environ if env is None else env).get("PYTHONPATH")
    remote = ("env", f"PYTHONPATH={path}", *answering) if path else answering
    return own | {host.name: tuple(ssh_words(host.name, remote, ssh_args)) for host in hosts if host.name != head}
