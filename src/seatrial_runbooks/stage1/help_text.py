"""`--help` of the driver: how it is called, and every variable with its default, what it takes and what it means."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from seatrial_runbooks.stage1.variables import SECTIONS, Variable

WIDTH = 120
WHAT = """\
Stage 1 benchmark: runs train.py over a matrix of settings, watches every run, ranks the groups.
Exit codes: 0 every run ended well, 1 wrong use or an error, 2 a run failed or a check refused to start, 3 runs are missing,
130 interrupted.
"""
USAGE = """\
NAME=VALUE … ./scripts/{name} [--dry-run] [--yes] [--help]

{what}
Set by variables; what is not set, or is empty, has its default. The same command again goes on where it stopped.

  --dry-run  Print plans and commands and start nothing.
  --yes      More than 1,000 runs are meant, and not a slip in a list: start them.
"""
EXAMPLES = """\
Examples:
  MODE=sweep INCLUDE=localhost:0,1 SWEEP_ZERO_STAGES=0 SWEEP_MICRO_BATCHES=160,192 OUTPUT_ROOT=outputs/x ./scripts/{name}
  INCLUDE=localhost WORLD_SIZE=2 SPEECH_MODEL_PATH=tiny TEXT_MODEL_PATH=tiny PRETRAINED_CKPT=none MAX_STEPS=20 ./scripts/{name} --dry-run"""


def help_text(name: str, what: str = WHAT, defaults: Mapping[str, str] | None = None) -> str:
    """The whole text; `defaults` are another procedure's own and stand over the table's."""
    own = defaults or {}
    parts = [f"{title}\n{''.join(_entry(variable, own) for variable in variables)}" for title, variables in SECTIONS.items()]
    return "\n".join([USAGE.format(name=name, what=what), *parts, EXAMPLES.format(name=name)])


def _entry(variable: Variable, own: Mapping[str, str]) -> str:
    value = own.get(variable.name, variable.default)
    default = f"default {value}" if value else "no default"
    text = f"{variable.text} Takes {variable.kind.expected}; {default}. Becomes: {variable.becomes}."
    indent = " " * 6
    body = textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return f"  {variable.name}\n{body}\n"
