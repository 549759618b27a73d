"""Settings of a workload: read from a JSON file or flags into its dataclass, with checks that name the field and the fix.

Standard library only: the harness imports a workload's settings without torch.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import json
import math
import os
import textwrap
import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from seatrial.core.errors import did_you_mean
from seatrial.records.events import ENV_RUN_DIR


def check_types(settings: Any) -> None:
    """Every field has its annotated type; an int is accepted for a float."""
    for name, kind in typing.get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if not _is_instance(value, kind):
            raise ValueError(f"{name} is {value!r}; expected {describe_type(kind)}")


def check_at_least(settings: Any, **lowest: float) -> None:
    """Each named field is at least its bound, or None."""
    for name, bound in lowest.items():
        value = getattr(settings, name)
        if value is not None and not value >= bound:
            raise ValueError(f"{name} is {value}; it must be {bound} or more")


def check_one_of(settings: Any, **choices: tuple[str, ...]) -> None:
    """Each named field is one of its choices, or None."""
    for name, known in choices.items():
        value = getattr(settings, name)
        if value is not None and value not in known:
            raise ValueError(f"{name} is '{value}'; expected one of {', '.join(known)}")


def strip_optional(kind: Any) -> Any:
    """`int` for `int | None`; other types unchanged."""
    if isinstance(kind, types.UnionType) and types.NoneType in typing.get_args(kind):
        return next(choice for choice in typing.get_args(kind) if choice is not types.NoneType)
    return kind


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of `bool | str`, else the one of an optional."""
    plain = strip_optional(kind)
    return typing.get_args(plain) if isinstance(plain, types.UnionType) else (plain,)


def describe_type(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    text = " or ".join(names[choice] for choice in _alternatives(kind))
    return f"{text}, or null for never" if strip_optional(kind) is not kind else text


def _is_instance(value: Any, kind: Any) -> bool:
    if value is None:
        return strip_optional(kind) is not kind
    plain = strip_optional(kind)
    if isinstance(plain, types.UnionType):
        return any(_is_instance(value, choice) for choice in _alternatives(plain))
    if isinstance(value, bool) or plain is bool:
        return isinstance(value, bool) and plain is bool
    if plain is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, plain)


Settings = TypeVar("Settings")

NO_VALUE = ("none", "null", "never")
BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, kw_only=True)
class Start(Generic[Settings]):
    """Settings and run folder of a training."""

    settings: Settings
    run_dir: Path


def load_settings(kind: type[Settings], argv: Sequence[str] | None = None, epilog: str | None = None) -> Start[Settings]:
    """Read and check file and flags, and choose the run folder. `epilog` ends the help."""
    parser = _parser(kind)
    parser.epilog = epilog
    given = vars(parser.parse_args(argv))
    settings_file, run_dir = given.pop("settings_file"), given.pop("run_dir")
    flags = {name: value for name, value in given.items() if value is not MISSING}
    try:
        values = {**(_read_file(settings_file, kind) if settings_file else {}), **flags}
        return Start(settings=kind(**values), run_dir=run_dir or _default_run_dir(kind))
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _parser(kind: type) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_module(kind)}.train",
        usage="%(prog)s [--settings FILE] [--run-dir FOLDER] [--SETTING VALUE ...]",
        description=inspect.getdoc(kind),
        allow_abbrev=False,
    )
    parser.add_argument("--settings", dest="settings_file", type=Path, metavar="FILE", help="JSON object with any of the settings below")
    parser.add_argument(
        "--run-dir", type=Path, metavar="FOLDER", help=f"where events and train.log go (default: ${ENV_RUN_DIR}, else ./runs/NAME-TIME)"
    )
    hints, docs = typing.get_type_hints(kind), field_docs(kind)
    for field in fields(kind):
        default = "never" if field.default is None else str(field.default).lower() if hints[field.name] is bool else str(field.default)
        help_text = f"{docs.get(field.name, '')} (default: {default})".replace("%", "%%")
        parser.add_argument(
            f"--{field.name}", default=MISSING, type=_converter(hints[field.name]), metavar=field.name.upper(), help=help_text
        )
    return parser


def _converter(kind: Any) -> Any:
    """argparse type function for a field of this type."""
    plain = strip_optional(kind)

    def convert(text: str) -> Any:
        lowered = text.strip().lower()
        if plain is not kind and lowered in NO_VALUE:
            return None
        try:
            # Text fits `bool | str` too; the settings themselves read `true` in it.
            return BOOLEANS[lowered] if plain is bool else text if isinstance(plain, types.UnionType) else plain(text)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(f"'{text}' is not {describe_type(kind)}") from None

    return convert


def _read_file(path: Path, kind: type) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}); expected one object of settings") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} contains {type(values).__name__}; expected one object of settings")
    known = [field.name for field in fields(kind)]
    for name in values:
        if name not in known:
            raise ValueError(f"{path}: unknown setting '{name}': {did_you_mean(name, known)}")
    return values


def _default_run_dir(kind: type) -> Path:
    from_harness = os.environ.get(ENV_RUN_DIR)
    if from_harness:
        return Path(from_harness)
    # Imports the probe, which a plan that only reads settings does not need.
    from seatrial_workloads.common.run_folder import NoSharedStartTime, shared_start_name

    try:
        return Path("runs") / f"{_module(kind).rpartition('.')[2]}-{shared_start_name(os.environ)}"
    except NoSharedStartTime as reason:
        raise ValueError(f"ranks {reason} must share a folder: give each the same --run-dir FOLDER") from None


def _module(kind: type) -> str:
    return kind.__module__.removesuffix(".settings")


def field_docs(kind: type) -> dict[str, str]:
    """The docstring line under each field."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    except OSError:
        return {}
    docs = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            docs[ast.unparse(field.target)] = str(text.value.value)
    return docs
