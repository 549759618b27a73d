"""docs/doctor.md, generated from the definitions of all checks."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.preflight.check_definition import CheckDefinition
from seatrial.preflight.hosts.run_checks import HOST_CHECKS_CRASHED, host_definitions
from seatrial.preflight.run_checks import LOAD, TELEMETRY, all_definitions

_HEAD = """\
# What is checked before a campaign

For whoever wants problems named before they happen.
`seatrial doctor` checks this host, `seatrial doctor PLAN` also what the plan needs. Every line is one check: `✓` passed, `!` is a warning,
`✗` would refuse a campaign. A check that fails names the error you would have met later, and the fix. The exit code is 0 without a `✗` and
2 with one; `--json` ends with one JSON document.

`run` and `sweep` make the same checks before the first run, except those that may be slow ({slow}); `seatrial doctor --fast` makes exactly
these. The result is written to `preflight.json`. A `✗` ends with exit code 2 and starts nothing; a `!` is one line, and the campaign
goes on.

`seatrial doctor PLAN --warm` then fills caches on every host of the plan, which the first run there would otherwise do in its start-up:
DeepSpeed's ops, torch.compile's kernels. It says per host what was built and in how many seconds, or why not.

With a PLAN, the Pythons that it names are started to ask for their versions, and git in its folders; `seatrial plan show PLAN` starts
nothing. A file is written and removed to try the output folder; without --warm nothing else is changed. Names in capitals are filled in by
the check.
The last column says what a check can do: **refuse** a campaign, **warn**, or only **inform**.
"""
_HOSTS = """\
# Every host of a run at once

For a plan with `place: {kind: hostfile}`, `seatrial doctor PLAN` also checks every host of it, and `seatrial doctor --hostfile FILE` does
without a plan. All hosts are asked at once, one ssh session each: it takes as long as the slowest host, whatever their number, and a host
that does not answer is reported and delays nobody. The result is a table, a row for each check and a column for each host; where the
columns do not fit, a row gives counts and names the hosts that differ. `·` is a host without a result in this row.

`run` and `sweep` make the same checks before the first run, except the head's ssh to itself, and connections between all pairs of hosts:
each host then connects to node 0, the next host and the head, and node 0 to every host. The hosts' facts are kept.

For `place: {kind: pernode}` there is no ssh: nodes are checked when the campaign starts, through the command that runs on each, and are
shown as `node1 (gpu-b)`, rank and host name. Only `--master-addr` need resolve there.

Link speed is measured between neighbours in a ring of the hosts, each with one other at a time: in two or three rounds, whatever the number
of hosts. A trial ends as soon as its bytes are through, after a few hundredths of a second on a fast link. What looks slow is tried once
more, so that a slow link costs one to four seconds.

Small files whose names begin with `.seatrial-trial-` are written to the output folder and removed; ports are opened for a moment.
"""


def doctor_page() -> str:
    head = _HEAD.format(slow=f"names, {TELEMETRY}")
    sections = [_section(title, definitions) for title, definitions in all_definitions().items()]
    host_sections = [
        _section(title, definitions) for title, definitions in {**host_definitions(), "any of them": (HOST_CHECKS_CRASHED,)}.items()
    ]
    return "\n".join([head, *sections, _HOSTS, *host_sections])


def _section(title: str, definitions: Sequence[CheckDefinition]) -> str:
    heading = {LOAD: "What else the host is doing", "any": "Any subject"}.get(title, title[0].upper() + title[1:])
    rows = [
        f"## {heading}\n",
        "| check | what is checked | the later error it prevents | the fix | can |",
        "|---|---|---|---|---|",
        *(_row(definition) for definition in definitions),
    ]
    return "\n".join(rows) + "\n"


def _row(definition: CheckDefinition) -> str:
    can = "refuse" if definition.refuses else "inform" if definition.informational else "warn"
    texts = (definition.name, definition.what, definition.prevents, definition.fix)
    cells = [definition.described(text).replace("|", "\\|") for text in texts]
    return f"| {' | '.join([*cells, can])} |"
