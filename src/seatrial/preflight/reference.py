"""docs/doctor.md, made from the questions themselves so that it cannot say something else. `markdown()` is the whole page."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.preflight.checks import LOAD, TELEMETRY, all_questions
from seatrial.preflight.hosts.examine import UNMADE, host_questions
from seatrial.preflight.question import Question

_HEAD = """\
# What is looked at before a campaign

For whoever wants trouble named before it happens.
`seatrial doctor` looks at this host, `seatrial doctor PLAN` also at what the plan needs. Every line is one check: `✓` is as it should be,
`!` is worth knowing and no reason to stop, `✗` would end a campaign before it starts. For what is not right it names the error you would
have met later, and the fix. The exit code is 0 without a `✗` and 2 with one; `--json` ends with one JSON document.

`run` and `sweep` make the same checks before the first run, but for those that may take longer ({slow}); `seatrial doctor --fast` makes
exactly these. The result is kept in `preflight.json`. A `✗` ends with exit code 2 and starts nothing; a `!` is told in one line, and the
campaign goes on.

A file is written and removed to try the output folder; nothing else is changed. Words in capitals stand for what a check fills in.
The last column says what a check can do: **refuse** a campaign, **warn**, or only **tell**.
"""
_HOSTS = """\
# Every host of a run at once

For a plan with `place: {kind: hostfile}`, `seatrial doctor PLAN` also looks at every host of it, and `seatrial doctor --hostfile FILE` does
without a plan. One ssh session for each host asks them all at once, so that it takes as long as the slowest host, whatever their number; a
host that does not answer is told of and holds up nobody. The result is a table, a row for each check and a column for each host; where the
columns do not fit, a row gives counts and names the odd ones. `·` is a host that was not looked at for this row.

`run` and `sweep` make the same checks before the first run, but for the head's ssh to itself, and connections between all pairs of hosts:
each host then calls node 0, the next host and the head, and node 0 calls every host. What the hosts told of themselves is kept.

For `place: {kind: pernode}` nobody can enter the nodes: they are looked at when the campaign starts, through the command that runs on each,
and are shown as `node1 (gpu-b)`, the rank and what the host calls itself. No name but that of `--master-addr` need resolve there.

How fast links are is tried between neighbours in a ring of the hosts, each with one other at a time: in two or three rounds, whatever the
number of hosts. It ends as soon as its bytes are through, after a few hundredths of a second where no link is slow. What looks slow is
tried once more, so that a slow link costs a second or four.

Small files whose names begin with `.seatrial-trial-` are written to the output folder and removed; ports are opened for a moment.
"""


def markdown() -> str:
    """The reference page of the doctor."""
    head = _HEAD.format(slow=f"names, {TELEMETRY}")
    sections = [_section(title, questions) for title, questions in all_questions().items()]
    of_hosts = [_section(title, questions) for title, questions in {**host_questions(), "any of them": (UNMADE,)}.items()]
    return "\n".join([head, *sections, _HOSTS, *of_hosts])


def _section(title: str, questions: Sequence[Question]) -> str:
    heading = {LOAD: "What else the host is doing", "any": "Any subject"}.get(title, title[0].upper() + title[1:])
    rows = [
        f"## {heading}\n",
        "| check | what is looked at | the later error it prevents | the fix | can |",
        "|---|---|---|---|---|",
        *(_row(question) for question in questions),
    ]
    return "\n".join(rows) + "\n"


def _row(question: Question) -> str:
    can = "refuse" if question.refuses else "tell" if question.only_tells else "warn"
    texts = (question.name, question.looks_at, question.prevents, question.fix)
    cells = [question.described(text).replace("|", "\\|") for text in texts]
    return f"| {' | '.join([*cells, can])} |"
