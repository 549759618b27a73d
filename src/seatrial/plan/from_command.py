"""Builds a plan from a working command: what `seatrial sweep -P bs=8,16 -- COMMAND…` runs and `seatrial init -- COMMAND…` writes.

In: argv, such as `torchrun --nproc_per_node 2 train.py --bs {bs}`, and the axes. Out: `ParsedCommand` (variables in front, launcher and
its options, script, arguments), and a plan mapping for `load.plan_from_mapping` or `yaml_text.plan_yaml`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from seatrial.core import launcher_options
from seatrial.core.errors import UsageError, did_you_mean, nearest
from seatrial.core.launcher_options import NOT_PASSED_ON, ParsedOption, is_for_one_host, long_option
from seatrial.machine.gpus import DEVICE_FILE, is_deepspeed_on_cpu, knows_all_gpus, read_driver, visible_gpus
from seatrial.plan.checks import RUN_NAMES
from seatrial.plan.placeholders import PlaceholderProblem, names_in, rename
from seatrial.plan.schema import RANKS_AXIS, is_harness_axis
from seatrial.records.caution import Scalar

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
    """The plan of a command; `more` holds other keys of the plan (rank_by, limits, criteria …).

    Its `env` is added to the assignments typed in front of the command.
    """
    parts = parse_command(argv)
    reading = {
        "reads": reads,
        "patterns": list(patterns),
        "samples_per_step": _number_or_text(samples_per_step),
        "tokens_per_step": _number_or_text(tokens_per_step),
    }
    _check_names(argv, axes, steps)
    for option, text in (("--samples-per-step", samples_per_step), ("--tokens-per-step", tokens_per_step)):
        _check_work_names(option, text or "", axes, steps)
    stem = f"sweep-{_stem(parts)}"
    identity = json.dumps([list(argv), dict(axes), steps, more.get("env")], sort_keys=True, ensure_ascii=True)
    folder = f"outputs/{stem}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    env = {**parts.env, **more.get("env", {})}
    plan = {
        "name": name or stem,
        "workload": _without_empty({"script": parts.script, "args": list(parts.args), **reading}),
        "launcher": _without_empty({"kind": parts.kind, "args": list(parts.launcher_args), "program": list(parts.program)}),
        "place": _place(parts, env),
        "axes": {axis: list(values) for axis, values in axes.items()},
        "repeats": repeats,
        "steps": steps,
        "output": output or folder,
        **more,
        "env": env,
    }
    return _ranks_as_axis(_without_empty(plan), parts)


def _check_names(argv: Sequence[str], axes: Mapping[str, Sequence[Scalar]], steps: int | None) -> None:
    """Every axis is used in the command, and every placeholder of the command is an axis."""
    used = _names(argv)
    for axis in axes:
        if axis not in used and not is_harness_axis(axis):
            close = did_you_mean(axis, used) if used else f"write {{{axis}}} where its value belongs"
            raise UsageError(f"the axis '{axis}' is not used: the command has no {{{axis}}}; {close}")
    known = {*axes, *RUN_NAMES, *(("steps",) if steps is not None else ())}
    for missing in sorted(used - known):
        if missing == "steps":
            raise UsageError("{steps} is in the command, but the number of steps is not set: add --steps N")
        nearest_name = nearest(missing, axes)
        raise UsageError(
            f"{{{missing}}} is in the command, but there is no axis of that name: "
            f"{f'did you mean {{{nearest_name}}}? If not, ' if nearest_name else ''}add -P {missing}=VALUE,VALUE, "
            f"or write {{{{{missing}}}}} if the braces are the command's own"
        )


def _check_work_names(option: str, text: str, axes: Mapping[str, Sequence[Scalar]], steps: int | None) -> None:
    known = {*axes, *RUN_NAMES, *(("steps",) if steps is not None else ())}
    for missing in (name for name in sorted(_names([text])) if name not in known):
        hint = did_you_mean(missing, axes) if axes else "add it as an axis with -P, or write its number"
        raise UsageError(f"{option} {text}: there is no axis '{missing}'; {hint}")


def _names(texts: Sequence[str]) -> set[str]:
    try:
        return {name for text in texts for name in names_in(text)}
    except PlaceholderProblem as problem:
        raise UsageError(str(problem)) from problem


def _place(parts: ParsedCommand, env: Mapping[str, str]) -> dict[str, Any]:
    variables = {**os.environ, **env}
    if parts.place:
        return parts.place
    if parts.takes_every_gpu:
        return {"kind": "local", "ranks": _num_gpus_here(variables)}
    if parts.include is not None and is_deepspeed_on_cpu(variables):
        # On the CPU, slots are only a number of ranks.
        return {"kind": "local", "ranks": len(parts.include.partition(":")[2].split(","))}
    ranks = int(parts.ranks) if parts.ranks is not None and parts.ranks.isdigit() else None
    return _without_empty({"kind": "local", "include": parts.include, "ranks": ranks})


def _num_gpus_here(variables: Mapping[str, str]) -> int:
    """How many GPUs a process with these variables sees on this host; on the CPU what LOCAL_SIZE says, else 1."""
    local_size = variables.get("LOCAL_SIZE", "")
    num_cpu_ranks = int(local_size) if local_size.isdecimal() and int(local_size) else 1
    if is_deepspeed_on_cpu(variables):
        return num_cpu_ranks
    driver = read_driver()
    if not knows_all_gpus(driver, DEVICE_FILE.exists()):
        raise UsageError(f"deepspeed takes every GPU it sees, and their number is unknown ({driver.problem}); add --num_gpus N")
    return len(visible_gpus(driver.gpus, (), variables)) or num_cpu_ranks


def _ranks_as_axis(plan: dict[str, Any], parts: ParsedCommand) -> dict[str, Any]:
    """`--nproc_per_node {np}`: the axis np becomes `place.ranks`, labelled np."""
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


def _without_empty(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None and value != [] and value != {}}


def _number_or_text(text: str | None) -> float | str | None:
    if text is None or not re.fullmatch(r"\d+(\.\d+)?", text):
        return text
    return float(text) if "." in text else int(text)


def _stem(parts: ParsedCommand) -> str:
    """`train` for train.py, ./train.sh and pkg.train; a program's own name otherwise."""
    scripts = [argument for argument in (parts.script, *parts.args) if argument.endswith((".py", ".sh"))]
    last = PurePath(scripts[0]).stem if scripts else PurePath(parts.script).name.rpartition(".")[2]
    return re.sub(r"[^A-Za-z0-9+-]+", "-", last).strip("-")[:40] or "command"


SEVERAL_NODES = (
    "leave it out; type `seatrial sweep --nodes {nodes} --node-rank R` on each node, or set in a plan "
    "`place: {{kind: hostfile, hostfile: FILE}}` (by ssh) or `place: {{kind: pernode, nodes: {nodes}}}`"
)
# Options that become keys of `place`, or mean nothing with a hostfile.
HOST_OPTIONS = ("hostfile", "include", "exclude", "master_addr", "master_port", "launcher", "ssh_port", "no_ssh_check", "force_multi")
_PLACE_KEYS = ("hostfile", "include", "exclude", "master_addr")
# deepspeed's defaults: all nodes, no node rank.
_DEEPSPEED_DEFAULTS = {"num_nodes": "-1", "node_rank": "-1"}


def place_from_options(options: Sequence[ParsedOption]) -> dict[str, Any]:
    """`place` of a deepspeed command with a hostfile; empty without one."""
    typed = {option.name: option for option in options}
    if "hostfile" not in typed:
        return {}
    for name in ("num_gpus", "num_nodes", "node_rank", "no_ssh"):
        if name in typed and typed[name].value != _DEEPSPEED_DEFAULTS.get(name):
            why = "the slots of the hostfile set the number; leave it out" if name == "num_gpus" else NOT_PASSED_ON[name]
            raise UsageError(f"{' '.join(typed[name].typed)}: {why}")
    place: dict[str, Any] = {"kind": "hostfile", **{name: typed[name].value for name in _PLACE_KEYS if name in typed}}
    if "master_port" in typed:
        place["port"] = _number(typed["master_port"])
    if "ssh_port" in typed:
        place["ssh_args"] = ["-p", str(_number(typed["ssh_port"]))]
    if "launcher" in typed:
        if typed["launcher"].value.lower() != "pdsh":
            option = " ".join(typed["launcher"].typed)
            raise UsageError(f"{option}: other hosts are reached by pdsh, or by ssh where there is none; leave it out")
        place["via"] = "pdsh"
    return place


def _number(option: ParsedOption) -> int:
    if not option.value.isascii() or not option.value.isdigit():
        raise UsageError(f"{' '.join(option.typed)}: must be a number")
    return int(option.value)


def is_for_one_node(name: str, value: str) -> bool:
    """Whether a torchrun option only means "one node"; UsageError if it requests more."""
    alone = {"nnodes": ("1", "1:1"), "node_rank": ("0",)}.get(name)
    if alone is not None and value not in alone:
        nodes = value.rpartition(":")[2] if name == "nnodes" else ""
        raise UsageError(f"--{name} {value}: {SEVERAL_NODES.format(nodes=nodes if nodes.isdigit() else 'N')}")
    return alone is not None


def is_covered_by_place(option: ParsedOption, place: dict[str, Any]) -> bool:
    """Whether a deepspeed option need not be passed on: `place` has it, or it only means "one host"."""
    return option.name in HOST_OPTIONS or option.name in _DEEPSPEED_DEFAULTS if place else is_for_one_host(option.name, option.value)


TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
DEEPSPEED_PROGRAMS = ("deepspeed", "ds")
DEEPSPEED_MODULES = ("deepspeed.launcher.runner",)
# Options for the number of processes, also of torchrun or deepspeed behind another program.
_RANK_OPTIONS = ("nproc_per_node", "num_processes")
_DEEPSPEED_RANK_OPTIONS = ("num_gpus", "num_accelerators")
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# Interpreter options whose value is the next argument.
_PYTHON_VALUED = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True, kw_only=True)
class ParsedCommand:
    """The parts of a command; every argument is kept as typed."""

    kind: str
    """`python`, `torchrun`, `deepspeed`, or `command` for any other program."""
    program: tuple[str, ...] = ()
    """What starts the launcher, as typed; empty for `command`."""
    launcher_args: tuple[str, ...] = ()
    script: str
    args: tuple[str, ...]
    ranks: str | None = None
    """torchrun's nproc_per_node, deepspeed's num_gpus, or accelerate's num_processes, where it is a number or a placeholder."""
    include: str | None = None
    """deepspeed's include: the GPUs to use, as typed."""
    takes_every_gpu: bool = False
    """The launcher got neither GPUs nor their number, and takes all it sees."""
    place: dict[str, Any] = field(default_factory=dict)
    """The plan's place where the launcher got other hosts; else empty."""
    env: dict[str, str] = field(default_factory=dict)
    """Assignments in front of the command: `OMP_NUM_THREADS=1 torchrun …`."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the command was read."""


def parse_command(argv: Sequence[str]) -> ParsedCommand:
    """Split a command into its parts; UsageError for one that is not supported or has no script."""
    env, argv = _split_assignments(argv)
    if not argv:
        raise UsageError("no command was given; write it after --, as in: -- torchrun --nproc_per_node 2 train.py")
    program = PurePath(argv[0]).name
    if program in DEEPSPEED_PROGRAMS:
        return _parse_deepspeed(argv[:1], argv[1:], env)
    if program == "torchrun":
        return _parse_torchrun(argv[:1], argv[1:], env)
    if _PYTHON.fullmatch(program):
        return _parse_python(argv, env)
    return _parse_program(argv, env)


def _parse_program(argv: Sequence[str], env: dict[str, str]) -> ParsedCommand:
    """Any other program, started as typed; the number of ranks comes from its options, if any gives it."""
    ranks = None
    # For other programs, an option num_gpus may mean anything.
    behind = _DEEPSPEED_RANK_OPTIONS if any(PurePath(argument).name in DEEPSPEED_PROGRAMS for argument in argv) else ()
    for position, argument in enumerate(argv):
        name, inline = long_option(argument)
        value = inline if inline is not None else "".join(argv[position + 1 : position + 2])
        if name in (*_RANK_OPTIONS, *behind) and (value.isdigit() or "{" in value):
            ranks = value
    return ParsedCommand(kind="command", script=argv[0], args=tuple(argv[1:]), ranks=ranks, env=env)


def _split_assignments(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    env: dict[str, str] = {}
    argv = list(argv)
    while argv and (match := _ASSIGNMENT.fullmatch(argv[0])):
        env[match[1]] = match[2]
        argv.pop(0)
    return env, argv


def _parse_python(argv: Sequence[str], env: dict[str, str]) -> ParsedCommand:
    position = 1
    options: list[str] = []
    while position < len(argv) and argv[position].startswith("-"):
        option = argv[position]
        if option in ("-c", "-"):
            return _parse_program(argv, env)
        if option == "-m":
            return _parse_python_module(argv, position, options, env)
        width = 2 if option in _PYTHON_VALUED else 1
        options += argv[position : position + width]
        position += width
    if position >= len(argv):
        raise UsageError(f"there is no script in the command: {' '.join(argv)}")
    return ParsedCommand(
        kind="python", program=(argv[0],), launcher_args=tuple(options), script=argv[position], args=tuple(argv[position + 1 :]), env=env
    )


def _parse_python_module(argv: Sequence[str], position: int, options: list[str], env: dict[str, str]) -> ParsedCommand:
    if position + 1 >= len(argv):
        raise UsageError("python -m is not followed by a module")
    module, rest = argv[position + 1], argv[position + 2 :]
    if module in DEEPSPEED_MODULES:
        return _parse_deepspeed(argv[: position + 2], rest, env)
    if module.partition(".")[0] == "accelerate":
        return _parse_program(argv, env)
    if module in TORCHRUN_MODULES:
        return _parse_torchrun(argv[: position + 2], rest, env)
    return ParsedCommand(kind="python", program=(argv[0],), launcher_args=(*options, "-m"), script=module, args=tuple(rest), env=env)


def _parse_torchrun(program: Sequence[str], argv: Sequence[str], env: dict[str, str]) -> ParsedCommand:
    split = launcher_options.TORCHRUN.parse(argv)
    if not split.rest:
        raise _no_script(program, argv)
    kept: list[str] = []
    ranks, notes = None, []
    for option in split.options:
        name, value = option.name, option.value
        if name == "nproc_per_node" and (value.isdigit() or "{" in value):
            ranks = value
            continue
        if name == "nproc_per_node":
            notes.append(f"torchrun decides nproc_per_node {value}; ranks are counted at run time")
        if is_for_one_node(name, value):
            continue
        kept += option.typed
    return ParsedCommand(
        kind="torchrun",
        program=tuple(program),
        launcher_args=tuple(kept),
        script=split.rest[0],
        args=split.rest[1:],
        ranks=ranks,
        env=env,
        notes=tuple(notes),
    )


def _parse_deepspeed(program: Sequence[str], argv: Sequence[str], env: dict[str, str]) -> ParsedCommand:
    split = launcher_options.DEEPSPEED.parse(argv)
    if not split.rest:
        raise _no_script(program, argv)
    kept: list[str] = []
    notes: list[str] = []
    devices: dict[str, str] = {}
    place = place_from_options(split.options)
    for option in split.options:
        name, value = option.name, option.value
        if is_covered_by_place(option, place):
            continue
        if name in ("include", "num_gpus"):
            devices[name] = value
        elif launcher_options.is_quiet(name, value):
            notes.append(f"{' '.join(option.typed)} is left out: {launcher_options.QUIET.partition(';')[0]}")
        else:
            kept += _passed_on(option)
    _check_devices(devices)
    if not devices and not place:
        notes.append("deepspeed without --include and --num_gpus takes every GPU it sees; place.ranks is their number here")
    return ParsedCommand(
        kind="deepspeed",
        program=tuple(program),
        launcher_args=tuple(kept),
        script=split.rest[0],
        args=split.rest[1:],
        ranks=devices.get("num_gpus"),
        include=devices.get("include"),
        takes_every_gpu=not devices and not place,
        place=place,
        env=env,
        notes=tuple(notes),
    )


def _passed_on(option: ParsedOption) -> tuple[str, ...]:
    """The option's arguments; UsageError for one that deepspeed spells differently or that Seatrial does not support."""
    name, typed = option.name, " ".join(option.typed)
    if name in launcher_options.NOT_PASSED_ON:
        raise UsageError(f"{typed}: {launcher_options.NOT_PASSED_ON[name]}")
    underscored = name.replace("-", "_")
    if name != underscored and underscored in launcher_options.DEEPSPEED.names:
        raise UsageError(f"deepspeed has no option --{name}; write --{underscored}")
    return option.typed


def _check_devices(typed: dict[str, str]) -> None:
    if len(typed) > 1:
        raise UsageError("--include and --num_gpus are both given, and deepspeed takes one of them; keep --include")
    ranks = typed.get("num_gpus", "1")
    if not ranks.isdecimal() and "{" not in ranks:
        raise UsageError(f"--num_gpus {ranks}: must be a number or one axis such as {{np}}")


def _no_script(program: Sequence[str], argv: Sequence[str]) -> UsageError:
    return UsageError(f"there is no script in the command: {' '.join([*program, *argv])}")
