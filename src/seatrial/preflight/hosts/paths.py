"""What the runs need on each host beside programs: their folder, their script, their data; and one and the same user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seatrial.preflight.hosts.alike import most_common
from seatrial.preflight.hosts.answers import Answers, part, texts, trouble
from seatrial.preflight.hosts.rows import HostCheck, hosts_text
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question

CWD = Question(
    name="folder of the runs",
    looks_at="that the folder in which the runs start is on each host",
    prevents="FileNotFoundError: [Errno 2] No such file or directory, before the first line of the script",
    fix="mount or copy it to the same path on each host",
    refuses=True,
)
SCRIPT = Question(
    name="script",
    looks_at="that the script lies at the same path on each host",
    prevents="can't open file 'train.py': [Errno 2] No such file or directory, on one host's ranks",
    fix="mount or copy the code to the same path on each host",
    refuses=True,
)
SAME_SCRIPT = Question(
    name="text of the script",
    looks_at="that the script has the same contents on all hosts, and on the head where it is there too",
    prevents="ranks that do not compute the same: RuntimeError: Detected mismatch between collectives on ranks; or a hang in one of them",
    fix="copy one and the same {script} to all hosts, or mount the folder of the code on each",
    in_docs={"script": "train.py"},
    refuses=True,
)
DATA = Question(
    name="data of the runs",
    looks_at="that data which the head has is at the same path on each host",
    prevents="FileNotFoundError: [Errno 2] No such file or directory, on one host's ranks",
    fix="mount or copy the data to the same path on each host",
    refuses=True,
)
USER = Question(
    name="user",
    looks_at="that the user has the same number (uid) on all hosts, so that each may write what another has made",
    prevents="PermissionError: [Errno 13] Permission denied, on files that another host's ranks have written",
    fix="enter the hosts as the same user (User in ~/.ssh/config), with the same uid on each",
)
QUESTIONS = (CWD, SCRIPT, SAME_SCRIPT, DATA, USER)
DIGITS_SHOWN = 8
BY_KIND = {"cwd": CWD, "script": SCRIPT, "data": DATA}


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    for host in wanted.names:
        if answers.answered(host):
            yield from _paths(wanted, answers, host)
    yield from _scripts(wanted, answers)
    users = {host: facts.uid for host, facts in answers.facts.items() if facts.uid >= 0}
    # Files are the head's first.
    expected = str(users.get(wanted.head, "")) or most_common({host: str(uid) for host, uid in users.items()})
    for host in wanted.names:
        if host in users:
            found = f"{answers.facts[host].user} ({users[host]})"
            ok = str(users[host]) == expected
            yield HostCheck(host=host, check=USER.answer(ok, found if ok else f"{found}; {expected} on the head"))


def _scripts(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    """One check for each host, whatever the number of scripts."""
    seen: dict[str, list[str]] = {}
    for path in (path for path, what in wanted.paths.items() if what == "script"):
        digests = {host: facts.scripts[path] for host, facts in answers.facts.items() if path in facts.scripts}
        usual = most_common(digests)
        others = [host for host, digest in digests.items() if digest == usual]
        for host, digest in digests.items():
            told = f"{Path(path).name} differs: {digest[:DIGITS_SHOWN]}; {usual[:DIGITS_SHOWN]} on {hosts_text(others, answers.labels)}"
            seen.setdefault(host, []).extend([told] if digest != usual else [])
    name = next((Path(path).name for path, what in wanted.paths.items() if what == "script"), "")
    for host, amiss in seen.items():
        yield HostCheck(host=host, check=SAME_SCRIPT.answer(not amiss, "; ".join(amiss) or f"{name} is the same", script=name))


def _paths(wanted: Wanted, answers: Answers, host: str) -> Iterator[HostCheck]:
    told = part(answers.first, host, "paths")
    troubles = texts(told, "troubles")
    for kind, question in BY_KIND.items():
        paths = [path for path, what in wanted.paths.items() if what == kind]
        if not paths:
            continue
        amiss = [troubles[path] for path in paths if path in troubles]
        complaint = trouble(told) or "; ".join(amiss)
        yield HostCheck(host=host, check=question.answer(not complaint, complaint or ", ".join(paths[:2])))
