"""Identity of runs: the hash of each.

In: a resolved run. Out: its hash, that of its configuration without the repeat, and the digest of the user's script.

The hash of a run covers everything that changes its result and nothing else: limits, criteria, order, how lines are read and the folder
it runs in may change without a new run. Equal numbers have the same hash (8 and 8.0); where a script would see different text, its
arguments differ and so does the hash.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from seatrial.core import files
from seatrial.plan import workloads
from seatrial.records.plan import SENTINEL, PlaceSpec, RunSpec, WorkloadSpec

HASH_DIGITS = 16


def group_key(spec: RunSpec) -> str:
    """Hash of a configuration; the placeholders of the repeat must still be open in `spec`."""
    return _hash(_identity(spec))


def run_hash(spec: RunSpec) -> str:
    """Hash of one run: its configuration and its repeat."""
    return _hash({**_identity(spec), "repeat": spec.repeat})


def script_digest(launcher: str, launcher_args: tuple[str, ...], workload: WorkloadSpec, cwd: Path) -> str | None:
    """sha256 of the user's script: the file itself, a module found under `cwd`, or the first script among a program's arguments."""
    if workload.script is None:
        return None
    names = [workload.script, *_module_files(workload.script, launcher_args)]
    names += [argument for argument in workload.args if launcher == "command" and argument.endswith((".py", ".sh"))]
    digests = (_file_digest(cwd / name) for name in names)
    return next((digest for digest in digests if digest is not None), None)


def _file_digest(file: Path) -> str | None:
    """Digest of the file; None if it is not readable. Preflight checks whether it can be started."""
    try:
        with files.open_file(file) as source:
            return hashlib.file_digest(source, "sha256").hexdigest()
    except OSError:
        return None


def _module_files(script: str, launcher_args: tuple[str, ...]) -> list[str]:
    if not {"-m", "--module"} & set(launcher_args):
        return []
    path = script.replace(".", "/")
    return [f"{path}.py", f"{path}/__main__.py"]


def _identity(spec: RunSpec) -> dict[str, Any]:
    return {
        "workload": [spec.workload.module, spec.workload.script, list(spec.workload.args)],
        "script_sha256": spec.script_sha256,
        "settings": workloads.hashed_settings(spec.workload.name, spec.settings) if spec.workload.module else spec.settings,
        "axes": spec.axes,
        "launcher": [spec.launcher.kind, list(spec.launcher.args), list(spec.launcher.program)],
        "place": _place_identity(spec.place),
        "env": spec.env,
        "steps": spec.steps,
        "rank_scope": spec.rank_scope,
        "timing": [spec.timing.sync, spec.timing.phase_every],
        # Sentinel runs are not repeats of the group they copy.
        **({SENTINEL: True} if spec.mode == SENTINEL else {}),
    }


def _place_identity(place: PlaceSpec) -> list[Any]:
    """How ranks and GPUs are laid out; which hosts these are and how they are reached does not change the result."""
    counts: list[Any] = [place.kind, place.ranks, list(place.devices)]
    if place.hosts:
        # `include` and `exclude` are applied already.
        counts.append([[host.ranks, list(host.devices)] for host in place.hosts])
    elif place.traits.lists_hosts:
        counts += [place.include, place.exclude]
    elif place.traits.counts_nodes:
        counts.append(place.nodes)
    return [*counts, *([{"interface": place.interface}] if place.interface else [])]


def _hash(value: Any) -> str:
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:HASH_DIGITS]


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
