"""A plan from a working command: what `seatrial sweep -P bs=8,16 -- COMMAND…` runs and `seatrial init -- COMMAND…` writes.

In: the words of the command and the axes. Out: a plan mapping for `load.plan_from_mapping` or `write.plan_yaml`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from seatrial.errors import UsageError, did_you_mean, nearest
from seatrial.machine.deepspeed_devices import is_on_cpu
from seatrial.machine.gpus import DEVICE_FILE, is_certain, read_driver, visible_gpus
from seatrial.plan.checks import RUN_NAMES
from seatrial.plan.checks_of_axes import RANKS_AXIS, is_harness_axis
from seatrial.plan.command_words import CommandParts, take_apart
from seatrial.plan.placeholders import PlaceholderProblem, names_in, rename
from seatrial.records.run_spec import Scalar

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def mapping_from_command(
    argv: Sequence[str],
    *,
    axes: Mapping[str, Sequence[Scalar]] = _NOTHING,
    repeats: int = 1,
    reads: str | None = None,
    patterns: Sequence[str] = (),
    samples_per_step: str | None = None,
    tokens_per_step: str | None = None,
    name: str | None = None,
    output: str | None = None,
    steps: int | None = None,
    more: Mapping[str, Any] = _NOTHING,
) -> dict[str, Any]:
    """The plan of a command; `more` holds other keys of a plan (rank_by, limits, criteria …) as they are to stand in it.

    Its `env` is added to the assignments typed in front of the command.
    """
    parts = take_apart(argv)
    reading = {
        "reads": reads,
        "patterns": list(patterns),
        "samples_per_step": _number_or_text(samples_per_step),
        "tokens_per_step": _number_or_text(tokens_per_step),
    }
    _check_names(argv, [text for text in (samples_per_step, tokens_per_step) if text], axes, steps)
    stem = f"sweep-{_stem(parts)}"
    folder = f"outputs/{stem}-{_digest([list(argv), dict(axes), steps, more.get('env')])}"
    env = {**parts.env, **more.get("env", {})}
    plan = {
        "name": name or stem,
        "workload": _filled({"script": parts.script, "args": list(parts.args), **reading}),
        "launcher": _filled({"kind": parts.kind, "args": list(parts.launcher_args), "program": list(parts.program)}),
        "place": _place(parts, env),
        "axes": {axis: list(values) for axis, values in axes.items()},
        "repeats": repeats,
        "steps": steps,
        "output": output or folder,
        **more,
        "env": env,
    }
    return _ranks_as_axis(_filled(plan), parts)


def _check_names(argv: Sequence[str], counts: Sequence[str], axes: Mapping[str, Sequence[Scalar]], steps: int | None) -> None:
    """Every axis stands in the command, and every placeholder of command and counts is an axis."""
    used = _names(argv)
    for axis in axes:
        if axis not in used and not is_harness_axis(axis):
            close = did_you_mean(axis, used) if used else f"write {{{axis}}} where its value belongs"
            raise UsageError(f"the axis '{axis}' stands nowhere in the command: there is no {{{axis}}} in it; {close}")
    known = {*axes, *RUN_NAMES, *(("steps",) if steps is not None else ())}
    for missing in sorted((used | _names(counts)) - known):
        if missing == "steps":
            raise UsageError("{steps} stands in the command, but the number of steps is not given: add --steps N")
        alike = nearest(missing, axes)
        raise UsageError(
            f"{{{missing}}} stands in the command, but no axis of that name is given: "
            f"{f'did you mean {{{alike}}}? If not, ' if alike else ''}add -P {missing}=VALUE,VALUE, "
            f"or write {{{{{missing}}}}} if the braces are the command's own"
        )


def _names(texts: Sequence[str]) -> set[str]:
    try:
        return {name for text in texts for name in names_in(text)}
    except PlaceholderProblem as problem:
        raise UsageError(str(problem)) from problem


def _place(parts: CommandParts, env: Mapping[str, str]) -> dict[str, Any]:
    """Where it runs; `env` is what the plan sets."""
    variables = {**os.environ, **env}
    if parts.place:
        return parts.place
    if parts.takes_every_gpu:
        return {"kind": "local", "ranks": _num_gpus_here(variables)}
    if parts.include is not None and is_on_cpu(variables):
        # Slots of a CPU are nothing but a number of ranks.
        return {"kind": "local", "ranks": len(parts.include.partition(":")[2].split(","))}
    ranks = int(parts.ranks) if parts.ranks is not None and parts.ranks.isdigit() else None
    return _filled({"kind": "local", "include": parts.include, "ranks": ranks})


def _num_gpus_here(variables: Mapping[str, str]) -> int:
    """How many GPUs a process with these variables sees on this host; on the CPU what LOCAL_SIZE says, else 1."""
    local_size = variables.get("LOCAL_SIZE", "")
    num_cpu_ranks = int(local_size) if local_size.isdecimal() and int(local_size) else 1
    if is_on_cpu(variables):
        return num_cpu_ranks
    driver = read_driver()
    if not is_certain(driver, DEVICE_FILE.exists()):
        raise UsageError(f"deepspeed takes every GPU it sees, and how many there are cannot be told ({driver.problem}); add --num_gpus N")
    return len(visible_gpus(driver.gpus, (), variables)) or num_cpu_ranks


def _ranks_as_axis(plan: dict[str, Any], parts: CommandParts) -> dict[str, Any]:
    """`--nproc_per_node {np}`: the axis np is the number of ranks, under the name a plan has for that."""
    if parts.ranks is None or parts.ranks.isdigit():
        return plan
    names = names_in(parts.ranks)
    if parts.ranks != f"{{{names[0]}}}" or names[0] not in plan["axes"]:
        raise UsageError(f"the number of processes must be a number or one axis such as {{np}}, not '{parts.ranks}'")
    old = names[0]
    axes = {RANKS_AXIS if axis == old else axis: values for axis, values in plan["axes"].items()}
    axes[RANKS_AXIS] = {"label": old.replace("_", "-"), "values": axes[RANKS_AXIS]}
    return {**_renamed(plan, old), "axes": axes}


def _renamed(value: Any, old: str) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(item, old) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, old) for item in value]
    return rename(value, old, RANKS_AXIS) if isinstance(value, str) else value


def _filled(mapping: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing."""
    return {key: value for key, value in mapping.items() if value is not None and value != [] and value != {}}


def _number_or_text(text: str | None) -> float | str | None:
    if text is None or not re.fullmatch(r"\d+(\.\d+)?", text):
        return text
    return float(text) if "." in text else int(text)


def _stem(parts: CommandParts) -> str:
    """`train` for train.py, ./train.sh and pkg.train; a program's own name otherwise."""
    scripts = [word for word in (parts.script, *parts.args) if word.endswith((".py", ".sh"))]
    last = PurePath(scripts[0]).stem if scripts else PurePath(parts.script).name.rpartition(".")[2]
    return re.sub(r"[^A-Za-z0-9+-]+", "-", last).strip("-")[:40] or "command"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()[:8]
