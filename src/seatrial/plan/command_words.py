"""A command a person typed, taken apart: variables in front, the launcher and its options, the script, its arguments.

In: words such as `torchrun --nproc_per_node 2 train.py --bs 8`. Out: `CommandParts`, which keeps every word as it was typed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from seatrial.errors import UsageError
from seatrial.options import deepspeed as deepspeed_options
from seatrial.options import torchrun as torchrun_options
from seatrial.options.words import TypedOption, long_option
from seatrial.plan.command_hosts import hosts_typed, is_for_one_node, is_said_by_place

TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
DEEPSPEED_PROGRAMS = ("deepspeed", "ds")
DEEPSPEED_MODULES = ("deepspeed.launcher.runner",)
# Options by which other programs, or torchrun or deepspeed behind one of them, are told the number of processes.
_RANK_OPTIONS = ("nproc_per_node", "num_processes")
_DEEPSPEED_RANK_OPTIONS = ("num_gpus", "num_accelerators")
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# Options of the interpreter whose value is the next word.
_PYTHON_VALUED = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True, kw_only=True)
class CommandParts:
    """A command, word for word."""

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
    """The launcher was told neither which GPUs nor how many, and takes all it sees."""
    place: dict[str, Any] = field(default_factory=dict)
    """The plan's place where the launcher was told of other hosts; empty where it was not."""
    env: dict[str, str] = field(default_factory=dict)
    """Assignments in front of the command: `OMP_NUM_THREADS=1 torchrun …`."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the command was taken."""


def take_apart(argv: Sequence[str]) -> CommandParts:
    """The parts of a command; UsageError for one that cannot be run yet or has no script."""
    env, words = _assignments(argv)
    if not words:
        raise UsageError("no command was given; write it after --, as in: -- torchrun --nproc_per_node 2 train.py")
    program = PurePath(words[0]).name
    if program in DEEPSPEED_PROGRAMS:
        return _deepspeed(words[:1], words[1:], env)
    if program == "torchrun":
        return _torchrun(words[:1], words[1:], env)
    if _PYTHON.fullmatch(program):
        return _python(words, env)
    return _program(words, env)


def _program(words: Sequence[str], env: dict[str, str]) -> CommandParts:
    """Any other program: started as typed, its number of ranks read where it is said."""
    ranks = None
    # Elsewhere a number of GPUs may be anything.
    behind = _DEEPSPEED_RANK_OPTIONS if any(PurePath(word).name in DEEPSPEED_PROGRAMS for word in words) else ()
    for position, word in enumerate(words):
        name, inline = long_option(word)
        value = inline if inline is not None else "".join(words[position + 1 : position + 2])
        if name in (*_RANK_OPTIONS, *behind) and (value.isdigit() or "{" in value):
            ranks = value
    return CommandParts(kind="command", script=words[0], args=tuple(words[1:]), ranks=ranks, env=env)


def _assignments(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    env: dict[str, str] = {}
    words = list(argv)
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        env[match[1]] = match[2]
        words.pop(0)
    return env, words


def _python(words: Sequence[str], env: dict[str, str]) -> CommandParts:
    position = 1
    options: list[str] = []
    while position < len(words) and words[position].startswith("-"):
        option = words[position]
        if option in ("-c", "-"):
            return _program(words, env)
        if option == "-m":
            return _python_module(words, position, options, env)
        width = 2 if option in _PYTHON_VALUED else 1
        options += words[position : position + width]
        position += width
    if position >= len(words):
        raise UsageError(f"there is no script in the command: {' '.join(words)}")
    return CommandParts(
        kind="python", program=(words[0],), launcher_args=tuple(options), script=words[position], args=tuple(words[position + 1 :]), env=env
    )


def _python_module(words: Sequence[str], position: int, options: list[str], env: dict[str, str]) -> CommandParts:
    if position + 1 >= len(words):
        raise UsageError("python -m is not followed by a module")
    module, rest = words[position + 1], words[position + 2 :]
    if module in DEEPSPEED_MODULES:
        return _deepspeed(words[: position + 2], rest, env)
    if module.partition(".")[0] == "accelerate":
        return _program(words, env)
    if module in TORCHRUN_MODULES:
        return _torchrun(words[: position + 2], rest, env)
    return CommandParts(kind="python", program=(words[0],), launcher_args=(*options, "-m"), script=module, args=tuple(rest), env=env)


def _torchrun(program: Sequence[str], words: Sequence[str], env: dict[str, str]) -> CommandParts:
    split = torchrun_options.split_words(words)
    if not split.rest:
        raise _no_script(program, words)
    kept: list[str] = []
    ranks, notes = None, []
    for option in split.options:
        name, value = option.name, option.value
        if name == "nproc_per_node" and (value.isdigit() or "{" in value):
            ranks = value
            continue
        if name == "nproc_per_node":
            notes.append(f"nproc_per_node {value} is left to torchrun; the plan counts 1 rank until place.ranks says how many there are")
        if is_for_one_node(name, value):
            continue
        kept += option.words
    return CommandParts(
        kind="torchrun",
        program=tuple(program),
        launcher_args=tuple(kept),
        script=split.rest[0],
        args=split.rest[1:],
        ranks=ranks,
        env=env,
        notes=tuple(notes),
    )


def _deepspeed(program: Sequence[str], words: Sequence[str], env: dict[str, str]) -> CommandParts:
    split = deepspeed_options.split_words(words)
    if not split.rest:
        raise _no_script(program, words)
    kept: list[str] = []
    notes: list[str] = []
    devices: dict[str, str] = {}
    place = hosts_typed(split.options)
    for option in split.options:
        name, value = option.name, option.value
        if is_said_by_place(option, place):
            continue
        if name in ("include", "num_gpus"):
            devices[name] = value
        elif deepspeed_options.is_quiet(name, value):
            notes.append(f"{' '.join(option.words)} is left out: {deepspeed_options.QUIET.partition(';')[0]}")
        else:
            kept += _passed_on(option)
    _check_devices(devices)
    if not devices and not place:
        notes.append("deepspeed, told neither --include nor --num_gpus, takes every GPU it sees; place.ranks is their number here")
    return CommandParts(
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


def _passed_on(option: TypedOption) -> tuple[str, ...]:
    """The option's words; UsageError for one that deepspeed does not have in this spelling, or that Seatrial does not take."""
    name, typed = option.name, " ".join(option.words)
    if name in deepspeed_options.NOT_PASSED_ON:
        raise UsageError(f"{typed}: {deepspeed_options.NOT_PASSED_ON[name]}")
    underscored = name.replace("-", "_")
    if name != underscored and underscored in deepspeed_options.OPTIONS.names:
        raise UsageError(f"deepspeed has no option --{name}; write --{underscored}")
    return option.words


def _check_devices(typed: dict[str, str]) -> None:
    if len(typed) > 1:
        raise UsageError("--include and --num_gpus are both given, and deepspeed takes one of them; keep --include")
    ranks = typed.get("num_gpus", "1")
    if not ranks.isdecimal() and "{" not in ranks:
        raise UsageError(f"--num_gpus {ranks}: must be a number or one axis such as {{np}}")


def _no_script(program: Sequence[str], words: Sequence[str]) -> UsageError:
    return UsageError(f"there is no script in the command: {' '.join([*program, *words])}")
