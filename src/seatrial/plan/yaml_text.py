"""Plan text to plain values, with the line of every key.

Plain YAML only: no tags that build objects, no duplicate keys, no documents that unfold without end. Scalars follow the YAML 1.2
core schema rather than PyYAML's 1.1, so that `1e-3` is a number, `yes` is a word and `100:200` is not a time of day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seatrial.errors import PlanError
from seatrial.plan.locate import KeyPath, Where
from seatrial.plan.plain_text import TOO_LARGE
from seatrial.plan.plan_file import plan_text

# The largest matrix has ten thousand runs: a plan with more values than this is none, or unfolds from aliases.
MOST_NODES = 30_000
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


class _TooMuch(yaml.MarkedYAMLError):
    """YAML, but far more of it than a plan."""


class PlanLoader(yaml.SafeLoader):
    """Composes nodes, up to what a plan can have; only the scalars of the YAML 1.2 core schema are told apart."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (PyYAML's own class attribute)

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nodes, self._depth = 0, 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As PyYAML does it, but a text that has too much of anything is given up at once and not after minutes."""
        self._nodes += 1
        self._depth += 1
        if self._nodes > MOST_NODES or self._depth > DEEPEST_NESTING:
            problem = TOO_DEEP if self._depth > DEEPEST_NESTING else f"more than {MOST_NODES:,} values, which no plan has"
            raise _TooMuch(problem=problem, problem_mark=self.get_mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


for _name, _expression, _first in _SCALARS:
    PlanLoader.add_implicit_resolver(_TAG + _name, re.compile(_expression), [*_first, ""] if _name == "null" else list(_first))


@dataclass
class Document:
    """One YAML text: its plain value and the line of every key path in it."""

    value: Any
    where: dict[KeyPath, Where] = field(default_factory=dict)


def read_plan_file(path: Path) -> Document:
    """The mapping in a plan file; every way in which it is not one is a PlanError."""
    document = parse(plan_text(path), str(path))
    if document.value is None:
        raise PlanError("the plan is empty; `seatrial init -- COMMAND…` writes one from a working command", file=path)
    if not isinstance(document.value, dict):
        raise PlanError(f"a plan is a mapping of keys to values; this is {kind_of(document.value)}", file=path, line=1)
    return document


def parse(text: str, file: str) -> Document:
    """Plain values of one YAML document; `file` is what errors name."""
    try:
        node = yaml.compose(text, Loader=PlanLoader)
    except _TooMuch as error:
        raise PlanError(str(error.problem), file=file, line=_line(error)) from error
    except yaml.MarkedYAMLError as error:
        raise PlanError(f"not YAML: {_reason(error)}", file=file, line=_line(error)) from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise PlanError(f"holds a character that YAML does not take (code {ord(text[error.position]):#x})", file=file, line=line) from error
    except RecursionError as error:
        raise PlanError(TOO_DEEP, file=file) from error
    builder = _Builder(file)
    return Document(None if node is None else builder.build(node, ()), builder.where)


def kind_of(value: Any) -> str:
    """What a value is, in words a plan's author uses."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    names = {str: "text", int: "a whole number", float: "a number", dict: "a mapping", list: "a list"}
    return names.get(type(value), type(value).__name__)


def _reason(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    return ", ".join(parts) or "it cannot be read"


def _line(error: yaml.MarkedYAMLError) -> int | None:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark else None


class _Builder:
    """Nodes to plain values, counting what aliases unfold to."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.where: dict[KeyPath, Where] = {}
        self._nodes = 0

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self._nodes += 1
        if self._nodes > MOST_NODES or len(path) > DEEPEST_NESTING:
            raise self._error("its aliases unfold to more than a plan can hold; write the values out", node)
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
            raise self._error("a key must be a word; put it in quotes", node)
        if key == "<<":
            raise self._error("merge keys (<<) are not read; use `extends:` or write the values out", node)
        return key

    def _scalar(self, node: yaml.Node) -> Any:
        kind, text = str(node.tag).removeprefix(_TAG), str(node.value)
        if kind == "int" and len(text) > LONGEST_NUMBER:
            raise self._error(TOO_LARGE, node)
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
                    return float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".Inf", "inf").replace(".NaN", "nan"))
        except (ValueError, KeyError) as error:
            raise self._error(f"'{text[:40]}' is not {kind}", node) from error
        raise self._error(f"the tag {node.tag} is not read; a plan holds words, numbers, true, false, lists and mappings", node)

    def _plain(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _TAG + kind:
            raise self._error(f"the tag {node.tag} is not read; write a plain list or mapping", node)

    def _at(self, node: yaml.Node) -> Where:
        return Where(self.file, node.start_mark.line + 1)

    def _error(self, problem: str, node: yaml.Node) -> PlanError:
        return PlanError(problem, file=self.file, line=node.start_mark.line + 1)
