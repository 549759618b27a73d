"""Settings of a workload from a file and flags. In: a Settings dataclass and argv. Out: the settings and the folder to write to.

    python -m seatrial_workloads.dummy.train --settings settings.json --run-dir out/attempt-1     as the harness starts it
    python -m seatrial_workloads.dummy.train --steps 50 --micro_batch 8                          by hand

Flags stand over the file; both are checked by the dataclass itself. Wrong use ends with a message and exit code 2, as argparse does.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import json
import os
import textwrap
import typing
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from seatrial.errors import did_you_mean
from seatrial.records.events import ENV_RUN_DIR
from seatrial_workloads.common.settings_checks import field_names, kind_in_words, without_none
from seatrial_workloads.common.start_time import NoCommonTime, shared_start_name

Settings = TypeVar("Settings")

NO_VALUE = ("none", "null", "never")
BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, kw_only=True)
class Start(Generic[Settings]):
    """All a trainer needs to begin."""

    settings: Settings
    run_dir: Path


def load_settings(kind: type[Settings], argv: Sequence[str] | None = None) -> Start[Settings]:
    """Read file and flags, check them, and name the run folder."""
    parser = _parser(kind)
    given = vars(parser.parse_args(argv))
    settings_file, run_dir = given.pop("settings_file"), given.pop("run_dir")
    flags = {name: value for name, value in given.items() if value is not MISSING}
    try:
        values = {**(_read_file(settings_file, kind) if settings_file else {}), **flags}
        return Start(settings=kind(**values), run_dir=_run_dir(run_dir, _workload(kind)))
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _parser(kind: type) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {kind.__module__.removesuffix('.settings')}.train",
        usage="%(prog)s [--settings FILE] [--run-dir FOLDER] [--SETTING VALUE ...]",
        description=inspect.getdoc(kind),
        allow_abbrev=False,
    )
    parser.add_argument("--settings", dest="settings_file", type=Path, metavar="FILE", help="JSON object with any of the settings below")
    parser.add_argument(
        "--run-dir", type=Path, metavar="FOLDER", help=f"where events and train.log go (default: ${ENV_RUN_DIR}, else ./runs/NAME-TIME)"
    )
    hints, texts = typing.get_type_hints(kind), field_texts(kind)
    for field in fields(kind):
        help_text = f"{texts.get(field.name, '')} (default: {_shown(field.default)})".replace("%", "%%")
        parser.add_argument(
            f"--{field.name}", default=MISSING, type=_converter(hints[field.name]), metavar=field.name.upper(), help=help_text
        )
    return parser


def _converter(kind: Any) -> Any:
    """From a word on the command line to a value of this type."""
    plain = without_none(kind)

    def convert(text: str) -> Any:
        word = text.strip().lower()
        if plain is not kind and word in NO_VALUE:
            return None
        if plain is bool:
            if word in BOOLEANS:
                return BOOLEANS[word]
            raise argparse.ArgumentTypeError(f"'{text}' is not {kind_in_words(kind)}")
        try:
            return plain(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not {kind_in_words(kind)}") from None

    return convert


def _read_file(path: Path, kind: type) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}); expected one object of settings") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {type(values).__name__}; expected one object of settings")
    for name in values:
        if name not in field_names(kind):
            raise ValueError(f"{path}: unknown setting '{name}': {did_you_mean(name, field_names(kind))}")
    return values


def _run_dir(given: Path | None, workload: str) -> Path:
    if given is not None:
        return given
    from_harness = os.environ.get(ENV_RUN_DIR)
    if from_harness:
        return Path(from_harness)
    try:
        return Path("runs") / f"{workload}-{shared_start_name(os.environ)}"
    except NoCommonTime as which:
        raise ValueError(f"ranks {which} must share a folder: give each the same --run-dir FOLDER") from None


def _workload(kind: type) -> str:
    return kind.__module__.split(".")[-2] if "." in kind.__module__ else kind.__module__


def field_texts(kind: type) -> dict[str, str]:
    """The docstring line under each field."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    except OSError:
        return {}
    texts = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[ast.unparse(field.target)] = str(text.value.value)
    return texts


def _shown(default: Any) -> str:
    return "never" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
