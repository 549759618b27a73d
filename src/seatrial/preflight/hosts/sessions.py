"""Whether each host can be entered and an answerer starts there: ssh without a password, host keys that are known, a Python, Seatrial."""

from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.preflight.hosts.answers import Answers, part, trouble
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question

SSH = Question(
    name="ssh",
    looks_at="that a session opens on each host by ssh, without a password and without a question (BatchMode), as launchers need it; on "
    "the host that is this machine a child process is enough",
    prevents="{error}",
    fix="{way}",
    in_docs={
        "error": "Permission denied (publickey); Host key verification failed; Could not resolve hostname; Connection refused; or a "
        "launcher that waits for a password nobody types",
        "way": "ssh-copy-id HOST; ssh-keyscan HOST >> ~/.ssh/known_hosts, once the key is known to be right; or start sshd there",
    },
    refuses=True,
)
STARTS = Question(
    name="Python and Seatrial",
    looks_at="that the interpreter (place.python, else the path of the one Seatrial runs in) is on each host, starts, and has Seatrial",
    prevents="{error}",
    fix="{way}",
    in_docs={
        "error": "bash: /opt/venv/bin/python: No such file or directory; or: No module named seatrial",
        "way": "install the same environment (venv or conda) at that path on each host, or name the path they have in place.python",
    },
    refuses=True,
)
ONE_MACHINE_EACH = Question(
    name="a machine of its own",
    looks_at="that no two names of the hostfile are one machine; of place pernode it is only said, where one may mean it for a trial",
    prevents="Duplicate GPU detected : rank 0 and rank 1 both on CUDA device; or ranks that share a host which was counted twice",
    fix="{way}",
    in_docs={"way": "mend the hostfile, or what the name means (`getent hosts NAME`)"},
    refuses=True,
)
ITSELF = Question(
    name="ssh to itself",
    looks_at="that the head can enter itself by ssh: Seatrial does not need it, a `deepspeed --hostfile` of your own that names it does",
    prevents="{error}, from deepspeed's own pdsh, on the host that it was started on",
    fix="cat ~/.ssh/id_*.pub >> ~/.ssh/authorized_keys; ssh-keyscan {host} >> ~/.ssh/known_hosts; or leave the starting to Seatrial",
    in_docs={"error": "Permission denied (publickey)", "host": "HEAD"},
)
QUESTIONS = (SSH, STARTS, ONE_MACHINE_EACH, ITSELF)

# What ssh says → the later error, as launchers show it, and the way out.
SSH_WORDS = (
    (
        r"host key verification failed|remote host identification has changed|no matching host key",
        "Host key verification failed",
        "ssh-keyscan {host} >> ~/.ssh/known_hosts once you know the key to be right (ssh-keygen -R {host} first where there is an old one)",
    ),
    (
        r"permission denied|too many authentication failures|no supported authentication",
        "Permission denied (publickey)",
        "ssh-copy-id {host}, and load the key where it has a passphrase (ssh-add); `ssh -v {host}` tells which keys are offered",
    ),
    (
        r"could not resolve hostname|name or service not known|temporary failure in name resolution",
        "ssh: Could not resolve hostname {host}: Name or service not known",
        "mend the name in the hostfile, or add it to /etc/hosts, DNS or ~/.ssh/config",
    ),
    (
        r"connection refused",
        "ssh: connect to host {host} port 22: Connection refused",
        "start sshd there (systemctl start ssh), or give its port in place.ssh_args (-p 2222)",
    ),
    (
        r"no route to host|network is unreachable|timed out|connection closed|connection reset|has not begun",
        "ssh: connect to host {host} port 22: Connection timed out",
        "see that the host is up and reachable (`ping {host}`, `ssh -v {host}`), or take it out: place.exclude: {host}",
    ),
)
NO_PYTHON = re.compile(r"no such file or directory|not found|permission denied.*ended with 126|ended with 12[67]", re.IGNORECASE)
NO_MODULE = re.compile(r"no module named '?(seatrial[\w.]*|\w+)", re.IGNORECASE)


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    for host in wanted.names:
        yield from _entered(wanted, answers, host)
    yield from _one_machine_each(wanted, answers)
    if wanted.by_ssh and not answers.fast:
        yield from _itself(wanted, answers)


def _entered(wanted: Wanted, answers: Answers, host: str) -> Iterator[HostCheck]:
    reply = answers.first[host]
    complaint = reply.trouble
    # What fails after ssh has let us in is the interpreter's; a shell tells by its exit code, or by what it does not find.
    inside = bool(NO_MODULE.search(complaint)) or (bool(NO_PYTHON.search(complaint)) and "resolve" not in complaint.lower())
    if wanted.by_ssh:
        entered = not complaint or inside or host == wanted.head
        way = "a child process here" if host == wanted.head else f"in {reply.took_s:.1f} s"
        error, fix = ssh_complaint(complaint, host)
        yield HostCheck(host=host, check=SSH.answer(entered, way if entered else complaint, error=error, way=fix))
        if not entered:
            return
    error, fix = _start_complaint(complaint)
    yield HostCheck(host=host, check=STARTS.answer(not complaint, complaint or "started", error=error, way=fix))


def ssh_complaint(complaint: str, host: str) -> tuple[str, str]:
    """The later error and the fix for what ssh said."""
    for pattern, error, way in SSH_WORDS:
        if re.search(pattern, complaint, re.IGNORECASE):
            return error.format(host=host), way.format(host=host)
    return complaint or "ssh exited with exit code 255", f"see what `ssh -v -o BatchMode=yes {host} true` says"


def _start_complaint(complaint: str) -> tuple[str, str]:
    module = NO_MODULE.search(complaint)
    if module:
        return (
            f"No module named {module[1]}",
            "install Seatrial into that Python on each host, or name one that has it in place.python; with a checkout, set PYTHONPATH "
            "where seatrial is started: it goes along",
        )
    return (
        complaint or "No such file or directory",
        "install the same environment (venv or conda) at that path on each host, or name the path they have in place.python",
    )


def _one_machine_each(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    seen: dict[tuple[str, str], str] = {}
    for host in wanted.names:
        facts = answers.facts.get(host)
        if facts is None:
            continue
        first = seen.setdefault((facts.host, facts.boot_id), host)
        found = facts.host if first == host else f"{first} and {host} are both {facts.host}"
        way = (
            f"mend the hostfile, or what the name means (`getent hosts {host}`)"
            if wanted.by_ssh
            else "start the command of each node on a machine of its own"
        )
        yield HostCheck(host=host, check=ONE_MACHINE_EACH.answer(first == host, found, refuses=wanted.by_ssh, way=way))


def _itself(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    if not answers.answered(wanted.head):
        return
    name = wanted.own_ssh_name
    complaint = trouble(part(answers.first, wanted.head, "ssh"))
    error, _ = ssh_complaint(complaint, name)
    yield HostCheck(host=wanted.head, check=ITSELF.answer(not complaint, complaint or f"{name} lets itself in", error=error, host=name))
