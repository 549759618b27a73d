"""docs/doctor.md, made from the questions themselves so that it cannot say something else. `markdown()` is the whole page."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.preflight.checks import LOAD, TELEMETRY, all_questions
from seatrial.preflight.question import Question

_HEAD = """\
# What is looked at before a campaign

`seatrial doctor` looks at this host, `seatrial doctor PLAN` also at what the plan needs. Every line is one check: `✓` is as it should be,
`!` is worth knowing and no reason to stop, `✗` would end a campaign before it starts. For what is not right it names the error you would
have met later, and the fix. The exit code is 0 without a `✗` and 2 with one; `--json` ends with one JSON document.

`run` and `sweep` make the same checks before the first run, but for those that may take longer ({slow}); `seatrial doctor --fast` makes
exactly these. The result is kept in `preflight.json`. A `✗` ends with exit code 2 and starts nothing; a `!` is told in one line, and the
campaign goes on.

A file is written and removed to try the output folder; nothing else is changed. Words in capitals stand for what a check fills in.
The last column says what a check can do: **refuse** a campaign, **warn**, or only **tell**.
"""


def markdown() -> str:
    """The reference page of the doctor."""
    head = _HEAD.format(slow=f"names, {TELEMETRY}")
    sections = [_section(title, questions) for title, questions in all_questions().items()]
    return "\n".join([head, *sections])


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
