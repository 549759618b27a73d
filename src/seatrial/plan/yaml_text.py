"""Plan text: reading it strictly, with the line of every key, and writing it.

In: a path or a YAML text. Out: plain values and a `Location` for every key path, or a PlanError with file and line. Refused: tags that
build objects, duplicate keys, merge keys, documents or aliases that unfold without bound, control characters, integers beyond 64 bits.
Scalars follow the YAML 1.2 core schema rather than PyYAML's 1.1: `1e-3` is a number, `yes` is text, `100:200` is not a time of day.

PyYAML rather than ruamel.yaml, which reads 1.2 and keeps lines too: both need a builder of our own, since neither bounds nesting and
aliases, and PyYAML is installed with transformers anyway.
"""

from __future__ import annotations

import json
import os
import re
import select
import stat
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seatrial.core.errors import PlanError, did_you_mean
from seatrial.core.shell import quote

KeyPath = tuple[str | int, ...]
LONGEST_SHOWN = 80


@dataclass(frozen=True)
class Location:
    """A file, or an option in its place, and a line in it."""

    file: str
    line: int | None = None


@dataclass
class Locations:
    """The location of every key path of a plan. Not compared: equal plans may come from different files."""

    source: str = field(default="", compare=False)
    where: dict[KeyPath, Location] = field(default_factory=dict, compare=False)

    def of(self, path: KeyPath) -> Location:
        """The location of `path`, else of the nearest mapping around it, else the whole source."""
        for length in range(len(path), -1, -1):
            found = self.where.get(path[:length])
            if found:
                return found
        return Location(self.source)

    def error(self, path: KeyPath, problem: str) -> PlanError:
        where = self.of(path)
        return PlanError(problem, file=where.file or None, line=where.line, key=dotted_key(path) or None)

    def under(self, path: KeyPath) -> dict[KeyPath, Location]:
        """Every known path at or below `path`."""
        return {known: where for known, where in self.where.items() if known[: len(path)] == path}

    def forget(self, path: KeyPath) -> None:
        for known in self.under(path):
            del self.where[known]


def dotted_key(path: KeyPath) -> str:
    """`axes.bs[1]`; `values` is left out, as in the short form."""
    shown = path
    if len(path) > 2 and path[0] == "axes" and path[2] == "values":
        shown = (*path[:2], *path[3:])
    text = ""
    for part in shown:
        text += f"[{part}]" if isinstance(part, int) else f".{_printable_key(part)}" if text else _printable_key(part)
    return text


def _printable_key(key: str) -> str:
    """A key that fits on one line of a terminal."""
    whole = key if key.isprintable() else ascii(key)
    return whole if len(whole) <= LONGEST_SHOWN else whole[: LONGEST_SHOWN - 1] + "…"


LARGEST_FILE_BYTES = 1024 * 1024
PIPE_TIMEOUT_S = 10.0
_CHUNK_BYTES = 64 * 1024


def read_plan_text(path: Path, pipe_timeout_s: float = PIPE_TIMEOUT_S) -> str:
    """The text in `path`: a file, or a pipe that a shell creates for `<(…)`; anything else is a PlanError that names it."""
    data = _read_bytes(path, pipe_timeout_s)
    if len(data) > LARGEST_FILE_BYTES:
        raise PlanError(f"larger than {LARGEST_FILE_BYTES // 1024} KiB; is it the right file?", file=path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PlanError(f"not UTF-8 text (byte {error.start}); save the plan as UTF-8", file=path, line=line) from error


def _read_bytes(path: Path, pipe_timeout_s: float) -> bytes:
    try:
        # Opening a pipe without a writer would block for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise PlanError(f"no such file; {did_you_mean(path.name, _plans_beside(path))}", file=path) from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    try:
        return _read_descriptor(path, handle, pipe_timeout_s)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(handle)


def _read_descriptor(path: Path, handle: int, pipe_timeout_s: float) -> bytes:
    """Everything, or one byte more than the limit."""
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISFIFO(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a socket"
        raise PlanError(f"cannot be read: it is {what}; name a YAML file", file=path)
    if found.st_size > LARGEST_FILE_BYTES:
        # A huge file is refused unread.
        return b" " * (LARGEST_FILE_BYTES + 1)
    data, deadline_m = b"", time.monotonic() + pipe_timeout_s
    while len(data) <= LARGEST_FILE_BYTES:
        readable, _, _ = select.select([handle], [], [], max(0.0, deadline_m - time.monotonic()))
        if not readable:
            raise PlanError(f"cannot be read: a pipe that was not closed within {pipe_timeout_s:g} s", file=path)
        part = os.read(handle, _CHUNK_BYTES)
        if not part:
            break
        data += part
    return data


def _plans_beside(path: Path) -> list[str]:
    try:
        return [file.name for file in path.parent.glob("*.y*ml")]
    except OSError:
        return []


def _unreadable(path: Path, error: OSError | ValueError) -> PlanError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return PlanError(f"cannot be read: {reason}; name a YAML file that you may read", file=path)


LARGEST_NUMBER = 2**63 - 1
INTEGER_TOO_LARGE = "an integer beyond 64 bits; make it smaller, or quote it as text"
# An argument may hold line breaks and tabs.
_ALLOWED = "\n\t"


def refuse_unusable_values(value: Any, locations: Locations, path: KeyPath = ()) -> None:
    """Raise for the first key or value that a terminal, a file or a command line could not take as it is."""
    if isinstance(value, dict):
        for key, item in value.items():
            refuse_unusable_values(str(key), locations, (*path, key))
            refuse_unusable_values(item, locations, (*path, key))
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            refuse_unusable_values(item, locations, (*path, position))
    elif isinstance(value, str) and (problem := character_problem(value)):
        raise locations.error(path, problem)
    elif isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        raise locations.error(path, INTEGER_TOO_LARGE)


def character_problem(text: str) -> str | None:
    """The problem with the characters of `text`; None without one."""
    if text.isprintable():
        return None
    for letter in text:
        if unicodedata.category(letter) == "Cs":
            return "contains bytes that are not UTF-8; write it in UTF-8"
        if unicodedata.category(letter) == "Cc" and letter not in _ALLOWED:
            return f"contains the control character {ord(letter):#04x}; remove it"
    return None


# The largest matrix has ten thousand runs: more values than this are not a plan, or expand from aliases.
MAX_NODES = 30_000
DEEPEST_NESTING = 40
LONGEST_NUMBER = 400

TOO_DEEP = "nested too deeply to be a plan"
_TAG = "tag:yaml.org,2002:"
_SCALARS: tuple[tuple[str, str, str], ...] = (
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN"),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    ("float", r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+.0123456789"),
)


class _DocumentTooLarge(yaml.MarkedYAMLError):
    """Valid YAML beyond the limits of a plan."""


class PlanLoader(yaml.SafeLoader):
    """Composes nodes up to the limits of a plan; resolves only the scalars of the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (PyYAML's own class attribute)

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nodes, self._depth = 0, 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """PyYAML's own, but a text beyond the limits is refused at once and not after minutes."""
        self._nodes += 1
        self._depth += 1
        if self._nodes > MAX_NODES or self._depth > DEEPEST_NESTING:
            problem = TOO_DEEP if self._depth > DEEPEST_NESTING else f"more than {MAX_NODES:,} values, too many for a plan"
            raise _DocumentTooLarge(problem=problem, problem_mark=self.get_mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


for _name, _expression, _first in _SCALARS:
    PlanLoader.add_implicit_resolver(_TAG + _name, re.compile(_expression), [*_first, ""] if _name == "null" else list(_first))


@dataclass
class Document:
    """One YAML text: its plain value and the line of every key path in it."""

    value: Any
    where: dict[KeyPath, Location] = field(default_factory=dict)


def read_plan_file(path: Path) -> Document:
    document = parse_yaml(read_plan_text(path), str(path))
    if document.value is None:
        raise PlanError("the plan is empty; `seatrial init -- COMMAND…` writes one from a working command", file=path)
    if not isinstance(document.value, dict):
        raise PlanError(f"a plan is a mapping of keys to values; this is {kind_name(document.value)}", file=path, line=1)
    return document


def parse_yaml(text: str, file: str) -> Document:
    """The plain values of one YAML document; errors name `file`."""
    try:
        node = yaml.compose(text, Loader=PlanLoader)
    except _DocumentTooLarge as error:
        raise PlanError(str(error.problem), file=file, line=_line(error)) from error
    except yaml.MarkedYAMLError as error:
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise PlanError(f"not YAML: {reason or 'it cannot be read'}", file=file, line=_line(error)) from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise PlanError(
            f"contains a character that YAML does not allow (code {ord(text[error.position]):#x})", file=file, line=line
        ) from error
    except RecursionError as error:
        raise PlanError(TOO_DEEP, file=file) from error
    builder = _Builder(file)
    return Document(None if node is None else builder.build(node, ()), builder.where)


def kind_name(value: Any) -> str:
    """The type of a value in plain words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    names = {str: "text", int: "a whole number", float: "a number", dict: "a mapping", list: "a list"}
    return names.get(type(value), type(value).__name__)


def wrong_type_text(expected: str, value: Any) -> str:
    """Expected type, actual value, and what to do about quotes."""
    quotes = ""
    if isinstance(value, str) and "number" in expected and re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", value, re.IGNORECASE):
        quotes = "; take the quotes off"
    if expected == "text" and isinstance(value, (int, float)):
        quotes = "; put it in quotes"
    return f"must be {expected}, not {format_value(value)} ({kind_name(value)}){quotes}"


def format_value(value: Any) -> str:
    """A value as a plan writes it, cut to 60 characters."""
    text = {True: "true", False: "false", None: "null"}.get(value, repr(value)) if isinstance(value, (bool, type(None))) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _line(error: yaml.MarkedYAMLError) -> int | None:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark else None


class _Builder:
    """Nodes to plain values, counting what aliases expand to."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.where: dict[KeyPath, Location] = {}
        self._nodes = 0

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES or len(path) > DEEPEST_NESTING:
            raise self._error("its aliases expand to more than a plan can hold; write the values out", node)
        self.where.setdefault(path, self._at(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._plain(node, "seq")
            return [self.build(child, (*path, position)) for position, child in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self._plain(node, "map")
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in built:
                first = self.where[(*path, key)].line
                raise self._error(f"'{key}' is written twice, first in line {first}; keep one of them", key_node)
            self.where[(*path, key)] = self._at(key_node)
            built[key] = self.build(value_node, (*path, key))
        return built

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or not isinstance(key := self._scalar(node), str):
            raise self._error("a key must be text; put it in quotes", node)
        if key == "<<":
            raise self._error("merge keys (<<) are not supported; use `extends:` or write the values out", node)
        return key

    def _scalar(self, node: yaml.Node) -> Any:
        kind, text = str(node.tag).removeprefix(_TAG), str(node.value)
        if kind == "int" and len(text) > LONGEST_NUMBER:
            raise self._error(INTEGER_TOO_LARGE, node)
        try:
            match kind:
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
                case "float":
                    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except (ValueError, KeyError) as error:
            raise self._error(f"'{text[:40]}' is not {kind}", node) from error
        raise self._error(f"the tag {node.tag} is not allowed; a plan holds text, numbers, true, false, lists and mappings", node)

    def _plain(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _TAG + kind:
            raise self._error(f"the tag {node.tag} is not allowed; write a plain list or mapping", node)

    def _at(self, node: yaml.Node) -> Location:
        return Location(self.file, node.start_mark.line + 1)

    def _error(self, problem: str, node: yaml.Node) -> PlanError:
        return PlanError(problem, file=self.file, line=node.start_mark.line + 1)


_KEY_ORDER = ("name", "extends", "workload", "settings", "launcher", "place", "axes", "repeats", "steps")
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*")
_KEY_COMMENTS = {
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
    """`mapping` as a plan file to edit: keys in reading order, each with a comment, axes suggested where there are none."""
    head = [_comment_line(f"Made from: {quote(command)}")] if command else []
    head += [_comment_line(f"Note: {note}") for note in notes]
    head += ["# Look at the matrix with `seatrial plan show FILE`, run it with `seatrial run FILE`."]
    keys = [key for key in _KEY_ORDER if key in mapping] + [key for key in mapping if key not in _KEY_ORDER]
    comments = {key: f"# {text}\n" for key, text in _KEY_COMMENTS.items()}
    blocks = [comments.get(key, "") + "\n".join(_key_lines(key, mapping[key], 0)) + "\n" for key in keys]
    if not mapping.get("axes"):
        blocks.insert(keys.index("repeats") if "repeats" in keys else len(keys), _suggested_axes(mapping))
    ending = [] if "criteria" in mapping else [_ENDING]
    return "\n".join(["\n".join(head) + "\n", *blocks, *ending])


def _comment_line(text: str) -> str:
    """One comment line, without characters that would end it or that YAML forbids even in comments."""
    return "# " + "".join(letter if letter.isprintable() else " " for letter in text)


def _key_lines(key: str, value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    if isinstance(value, Mapping) and value and depth < 2:
        return [f"{pad}{_scalar_text(key)}:", *(line for name, item in value.items() for line in _key_lines(name, item, depth + 1))]
    if isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        return [f"{pad}{_scalar_text(key)}:", *(f"{pad}  - {_flow_text(item)}" for item in value)]
    return [f"{pad}{_scalar_text(key)}: {_flow_text(value)}"]


def _flow_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar_text(key)}: {_flow_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow_text(item) for item in value) + "]"
    return _scalar_text(value)


def _scalar_text(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    # Quoted where any YAML parser, 1.1 or 1.2, would read something else.
    if _PLAIN.fullmatch(value) and parse_yaml(value, "").value == value == yaml.safe_load(value):
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
    """Options of the script worth sweeping: (option, whether joined to the value by =, value, meaning)."""
    found = []
    arguments = [str(argument) for argument in args]
    for position, argument in enumerate(arguments):
        option, equals, inline = argument.partition("=")
        value = inline if equals else arguments[position + 1] if position + 1 < len(arguments) else ""
        meaning = next((text for pattern, text in _LIKELY_AXES if pattern.fullmatch(option.lstrip("-"))), None)
        if meaning and option.startswith("-") and value.isdigit():
            found.append((option, bool(equals), int(value), meaning))
    return found
