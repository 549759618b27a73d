"""Data a plan names: folders and files in the settings of bundled workloads and in the arguments of scripts.

A bundled workload is refused when its data is not there. Of a script it is only said: it may make the folder itself, and a name with
a slash may be no path at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from seatrial.preflight.need import Need, options
from seatrial.preflight.question import Question
from seatrial.preflight.workload_settings import judges_its_host
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec

PATH_ENDINGS = ("_root", "_path", "_dir", "_folder", "_file", "_manifest")
DATA_OPTIONS = ("data", "dataset", "data_root", "train_data", "eval_data", "val_data", "manifest")
# What a job writes, it may make.
_WRITTEN = re.compile(r"out|save|log|ckpt|checkpoint|cache|result|tmp|temp|work|export|trace|profile|run|store")
# `org/name` of a model or dataset hub looks like a relative path.
_HUB_NAMED = re.compile(r"model|name|tokenizer|hub|repo")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

SETTING = Question(
    name="data {key}",
    looks_at="folders and files that the settings of a bundled workload name",
    prevents="FileNotFoundError: [Errno 2] No such file or directory: '{value}'",
    fix="prepare the data, or correct settings.{key}; a relative path counts from {cwd}",
    refuses=True,
)
ARGUMENT = Question(
    name="data --{key}",
    looks_at="paths that a script's arguments name for data",
    prevents="FileNotFoundError: [Errno 2] No such file or directory: '{value}'",
    fix="check the path (a relative one counts from {cwd}), unless the script makes it",
)
QUESTIONS = (SETTING, ARGUMENT)


def checks(need: Need) -> Iterator[Check]:
    for question, key, value, cwd in sorted(named_paths(need), key=lambda item: item[1:]):
        trouble = trouble_with(value, Path(cwd))
        yield question.answer(not trouble, trouble or value, key=key, value=value, cwd=cwd)


def named_paths(need: Need) -> set[tuple[Question, str, str, str]]:
    """(question, key, value, folder it counts from) of every path the runs read, once."""
    found = set()
    for spec in need.runs:
        found |= {(SETTING, key, value, spec.cwd) for key, value in _settings(spec) if not _is_told_of(spec, value)}
        found |= {(ARGUMENT, key, value, spec.cwd) for key, value in options(spec) if _is_data(key, value)}
    return found


def trouble_with(value: str, cwd: Path) -> str:
    """What is amiss with a path that is to be read; empty for nothing."""
    path = cwd / Path(value).expanduser()
    try:
        if not path.exists():
            return f"no such file or folder: {path}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return "" if os.access(path, needed) else f"{path} may not be read"


def _settings(spec: RunSpec) -> Iterator[tuple[str, str]]:
    for key, value in spec.settings.items():
        if isinstance(value, str) and value and key.endswith(PATH_ENDINGS) and not _WRITTEN.search(key) and not _is_hub_name(key, value):
            yield key, value


def _is_told_of(spec: RunSpec, value: str) -> bool:
    """Whether the workload itself will say that this is missing, and what to do about it."""
    return judges_its_host(spec) and not (Path(spec.cwd) / value).exists()


def _is_data(key: str, value: str) -> bool:
    if "/" not in value or _URL.match(value) or _WRITTEN.search(key) or _is_hub_name(key, value):
        return False
    return key.endswith(PATH_ENDINGS) or key in DATA_OPTIONS


def _is_hub_name(key: str, value: str) -> bool:
    """`org/name`: one slash, and the option speaks of a model or a name."""
    return bool(_URL.match(value)) or (bool(_HUB_NAMED.search(key)) and value.count("/") == 1 and value[0] not in "/.~")
