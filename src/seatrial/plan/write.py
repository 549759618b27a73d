"""A plan mapping as YAML text to go on editing: keys in reading order, a reason beside each, axes suggested where there are none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from seatrial.plan.yaml_text import parse
from seatrial.shell import quote

_ORDER = ("name", "extends", "workload", "settings", "launcher", "place", "axes", "repeats", "steps")
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*")
_REASONS = {
    "workload": "What is run. {AXIS}, {steps}, {run}, {group}, {repeat} and {seed} are filled in; {{ and }} are braces.",
    "launcher": "How processes start: python, torchrun, deepspeed, or command for any other program.",
    "place": 'Where they run. For GPUs write {kind: local, include: "localhost:0,1"} instead of ranks.',
    "axes": "The matrix: every combination of these values is one group.",
    "repeats": "How often each group is run; two or more give an interval.",
    "output": "Everything the campaign writes; {time} may stand in it. The same folder again resumes.",
}
_LIKELY_AXES = (
    (re.compile(r"(?:micro|per[-_]device[-_]train|train)?[-_]?(?:bs|bsz|batch|batch[-_]?size)"), "batch size"),
    (re.compile(r"(?:dataloader[-_])?(?:num[-_]?)?(?:workers|nw)"), "loader workers"),
)
_ENDING = """\
# What must hold for PASS; without this, that no run fails.
# criteria:
#   - {metric: failed_runs, at_most: 0}
#   - {metric: loss_falls, scope: every_run}
"""


def plan_yaml(mapping: Mapping[str, Any], *, command: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """The text of a plan file; loading it gives the plan that `mapping` gives."""
    head = [_comment(f"Made from: {quote(command)}")] if command else []
    head += [_comment(f"Note: {note}") for note in notes]
    head += ["# Look at the matrix with `seatrial plan show FILE`, run it with `seatrial run FILE`."]
    keys = [key for key in _ORDER if key in mapping] + [key for key in mapping if key not in _ORDER]
    blocks = [_block(key, mapping[key]) for key in keys]
    if not mapping.get("axes"):
        blocks.insert(keys.index("repeats") if "repeats" in keys else len(keys), _suggested_axes(mapping))
    ending = [] if "criteria" in mapping else [_ENDING]
    return "\n".join(["\n".join(head) + "\n", *blocks, *ending])


def _comment(text: str) -> str:
    """One line, without what would end it or what YAML does not take even in a comment."""
    return "# " + "".join(letter if letter.isprintable() else " " for letter in text)


def _block(key: str, value: Any) -> str:
    reason = f"# {_REASONS[key]}\n" if key in _REASONS else ""
    return reason + "\n".join(_lines(key, value, 0)) + "\n"


def _lines(key: str, value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    if isinstance(value, Mapping) and value and depth < 2:
        return [f"{pad}{_scalar(key)}:", *(line for name, item in value.items() for line in _lines(name, item, depth + 1))]
    if isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        return [f"{pad}{_scalar(key)}:", *(f"{pad}  - {_flow(item)}" for item in value)]
    return [f"{pad}{_scalar(key)}: {_flow(value)}"]


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    # A word that any reader of YAML, old or new, takes for something else must be quoted.
    if _PLAIN.fullmatch(value) and parse(value, "").value == value == yaml.safe_load(value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)


def _suggested_axes(mapping: Mapping[str, Any]) -> str:
    found = _likely_axes(mapping.get("workload", {}).get("args", []))
    lines = ["# No axes yet: this runs one group. To compare settings, name values and put {NAME} into workload.args in their place:"]
    lines.append("# axes:")
    for option, joined, value, meaning in found or [("--batch-size", False, 8, "batch size")]:
        name = option.strip("-").replace("-", "_")
        in_args = f'"{option}={{{name}}}"' if joined else f'"{option}", "{{{name}}}"'
        lines.append(f"#   {name}: [{value}, {value * 2 or 2}]    # {meaning}; in args {in_args}")
    return "\n".join(lines) + "\n"


def _likely_axes(args: Sequence[Any]) -> list[tuple[str, bool, int, str]]:
    """Options of the script that look worth sweeping: as typed, whether joined to the value by =, the value, what it is."""
    found = []
    words = [str(word) for word in args]
    for position, word in enumerate(words):
        option, equals, inline = word.partition("=")
        value = inline if equals else words[position + 1] if position + 1 < len(words) else ""
        meaning = next((text for pattern, text in _LIKELY_AXES if pattern.fullmatch(option.lstrip("-"))), None)
        if meaning and option.startswith("-") and value.isdigit():
            found.append((option, bool(equals), int(value), meaning))
    return found
