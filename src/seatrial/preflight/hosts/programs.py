"""Programs that a run on many hosts needs: pdsh on the head where the plan asks for it, ninja where DeepSpeed builds its ops, and the runs'
own program on each host."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.preflight.hosts.answers import Answers, part, texts, trouble
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question

PDSH = Question(
    name="pdsh",
    looks_at="that pdsh is on the head where place.via asks for it; without a wish, ssh does where it is missing",
    prevents="RuntimeError: launcher 'pdsh' not installed",
    fix="install pdsh on the head (apt-get install pdsh), or set place.via: ssh",
    refuses=True,
)
SSH = Question(
    name="ssh program",
    looks_at="that ssh is on the head, which both ways of starting agents need",
    prevents="FileNotFoundError: [Errno 2] No such file or directory: 'ssh'",
    fix="install an ssh client (apt-get install openssh-client), or use place.kind: pernode, which needs none",
    refuses=True,
)
NINJA = Question(
    name="ninja",
    looks_at="that ninja is on each host, on the PATH that the runs get, where DeepSpeed may build its ops",
    prevents="RuntimeError: Unable to JIT load the fused_adam op due to ninja not being installed",
    fix="pip install ninja into the environment of the runs on each host, and put its bin folder on PATH",
)
PROGRAM = Question(
    name="program {program}",
    looks_at="that the program the runs start with is on each host",
    prevents="{program}: No such file or directory, on one host's ranks",
    fix="install the same environment on each host, at the same path",
    refuses=True,
)
QUESTIONS = (PDSH, SSH, NINJA, PROGRAM)


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    if wanted.by_ssh and answers.answered(wanted.head):
        yield from _of_the_head(wanted, answers)
    for host in wanted.names:
        told = part(answers.first, host, "programs")
        where = texts(told, "where")
        if trouble(told):
            continue
        if wanted.ninja:
            yield HostCheck(host=host, check=NINJA.answer(bool(where.get("ninja")), where.get("ninja") or "not on PATH"))
        for program in wanted.program:
            yield HostCheck(host=host, check=PROGRAM.answer(bool(where.get(program)), where.get(program) or "not there", program=program))


def _of_the_head(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    where = texts(part(answers.first, wanted.head, "programs"), "where")
    others = [host for host in wanted.names if host != wanted.head]
    if others:
        yield HostCheck(host=wanted.head, check=SSH.answer(bool(where.get("ssh")), where.get("ssh") or "not on PATH"))
    missing = not where.get("pdsh")
    found = where.get("pdsh") or ("not on PATH" if wanted.place.via == "pdsh" else "not on PATH: agents are started by ssh")
    yield HostCheck(host=wanted.head, check=PDSH.answer(not missing or wanted.place.via != "pdsh", found))
