"""What makes two runs the same run: a hash over everything that changes the result, and nothing else.

Limits, criteria, order, how lines are read and the folder it runs in may change without running anything again. Numbers that are equal
hash alike (8 and 8.0); where a script would see different text, its arguments differ and so does the hash.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.run_spec import HOSTFILE, PERNODE, PlaceSpec, RunSpec, WorkloadSpec

HASH_DIGITS = 16


def group_key(spec: RunSpec) -> str:
    """Hash of a configuration; `spec` must have its repeat placeholders still unfilled."""
    return _digest(_what_counts(spec))


def run_hash(spec: RunSpec) -> str:
    """Hash of one run: its configuration and its repeat."""
    return _digest({**_what_counts(spec), "repeat": spec.repeat})


def script_digest(launcher: str, launcher_args: tuple[str, ...], workload: WorkloadSpec, cwd: Path) -> str | None:
    """sha256 of the user's script: the file itself, a module found under `cwd`, or the first script among a program's arguments."""
    if workload.script is None:
        return None
    names = [workload.script, *_module_files(workload.script, launcher_args)]
    names += [word for word in workload.args if launcher == "command" and word.endswith((".py", ".sh"))]
    digests = (_file_digest(cwd / name) for name in names)
    return next((digest for digest in digests if digest is not None), None)


def _file_digest(file: Path) -> str | None:
    """None for what is no plain file one can read; whether it can be started is not for a plan to say."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    except OSError:
        return None


def _module_files(script: str, launcher_args: tuple[str, ...]) -> list[str]:
    if not {"-m", "--module"} & set(launcher_args):
        return []
    path = script.replace(".", "/")
    return [f"{path}.py", f"{path}/__main__.py"]


def _what_counts(spec: RunSpec) -> dict[str, Any]:
    return {
        "workload": [spec.workload.module, spec.workload.script, list(spec.workload.args)],
        "script_sha256": spec.script_sha256,
        "settings": spec.settings,
        "axes": spec.axes,
        "launcher": [spec.launcher.kind, list(spec.launcher.args), list(spec.launcher.program)],
        "place": _place(spec.place),
        "env": spec.env,
        "steps": spec.steps,
        "rank_scope": spec.rank_scope,
        "timing": [spec.timing.sync, spec.timing.phase_every],
        # A sentinel's runs are no repeats of the group that it runs again.
        **({SENTINEL: True} if spec.mode == SENTINEL else {}),
    }


def _place(place: PlaceSpec) -> list[Any]:
    """How ranks and GPUs lie on hosts; which hosts these are, and how they are reached, changes no result."""
    counts: list[Any] = [place.kind, place.ranks, list(place.devices)]
    if place.hosts:
        # What `include` and `exclude` came to.
        counts.append([[host.ranks, list(host.devices)] for host in place.hosts])
    elif place.kind == HOSTFILE:
        counts += [place.include, place.exclude]
    elif place.kind == PERNODE:
        counts.append(place.nodes)
    return [*counts, *([{"interface": place.interface}] if place.interface else [])]


def _digest(value: Any) -> str:
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:HASH_DIGITS]


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
