"""How Seatrial calls ssh: one way for the agents' start, the doctor's sessions and trials, and command.sh, so that what one of them enters
the others enter too.

The user's own options stand first, since ssh keeps the first value it meets of each; ours are for what the user does not say. What users
have set for pdsh counts where hosts are started by it (`pdsh_args`), and nowhere else.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from seatrial.errors import HostError

# What users of pdsh set for its ssh.
PDSH_APPEND = "PDSH_SSH_ARGS_APPEND"
CONNECT_S = 10
# Never a question, no terminal, no X11, and no waiting for minutes for a host that is off, or that goes off later.
OPTIONS = (
    "-T", "-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4",
)  # fmt: skip


def ssh_words(host: str, words: Sequence[str], ssh_args: Sequence[str] = ()) -> list[str]:
    """The whole command that runs `words` on `host`. They are quoted, since the shell there takes them apart again."""
    return ["ssh", *ssh_args, *OPTIONS, host, "--", shlex.join(words)]


def pdsh_args(ssh_args: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The user's options for an ssh that pdsh runs: the plan's, then those that are set for pdsh."""
    text = environ.get(PDSH_APPEND, "")
    try:
        return (*ssh_args, *shlex.split(text))
    except ValueError as error:
        problem = f"{PDSH_APPEND} cannot be taken apart into words ({str(error).lower()}): {text}"
        raise HostError(f"{problem}; close its quotes, or unset it and use place.ssh_args", host="", cause="bad_argument") from None
