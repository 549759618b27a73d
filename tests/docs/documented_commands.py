"""Commands in docs and messages. In: lines of shell or inline code. Out: the argv of each command, and what is wrong with it.

Nothing is run: `seatrial …` goes through the parser of its verb, `make …` is looked up in the Makefile, `python …` among the files. An
argument in capitals, in braces or of three dots is a placeholder.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from seatrial.cli.main import VERBS, build_app
from tests.docs.pages import ROOT

PROGRAMS = ("seatrial", "make", "python")
STARTED_IN = (ROOT, *(ROOT / "runbooks" / name for name in ("stage1", "sparse-lm", "sft")))
"""Folders from which commands are run."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_DOTS = {"…", "...", "[…]"}
_BETWEEN = set("();<>|&")
_STREAM = re.compile(r"(?<=\s)\d(?=>)")
_TARGET = re.compile(r"^(?P<names>[a-z][\w -]*):(?!=)", re.MULTILINE)


def commands_in(text: str) -> Iterator[list[str]]:
    """The argv of each command in the text that starts one of our programs. Continued lines are one."""
    for line in text.replace("\\\n", " ").splitlines():
        for argv in _split(line):
            while argv and _ASSIGNMENT.fullmatch(argv[0]):
                argv = argv[1:]
            if argv and argv[0] in PROGRAMS:
                yield argv


def _split(line: str) -> Iterator[list[str]]:
    """The argv between `|`, `&&`, `;`, `>` and the like; nothing for text that is not shell."""
    lexer = shlex.shlex(_STREAM.sub("", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    argv: list[str] = []
    try:
        for argument in lexer:
            if set(argument) <= _BETWEEN:
                yield argv
                argv = []
            else:
                argv.append(argument)
    except ValueError:
        return
    yield argv


def wrong_with(argv: list[str]) -> str:
    """What is wrong with the command; empty if nothing is."""
    program, *rest = argv
    rest = [argument for argument in rest if argument not in _DOTS]
    return {"seatrial": wrong_with_verb, "make": _wrong_with_make, "python": _wrong_with_python}[program](rest)


def wrong_with_verb(argv: list[str]) -> str:
    """The same for `seatrial`, by the parsers of its verbs."""
    command = _seatrial()
    if argv[:1] == ["--version"]:
        return ""
    while hasattr(command, "commands"):
        if not argv or _is_placeholder(argv[0]) or argv[0] == "--help":
            return ""
        verb, *argv = argv
        if verb not in command.commands:
            return f"there is no verb {verb!r}"
        command = command.commands[verb]
    return _wrong_with_options(command, argv)


def _wrong_with_options(command: Any, argv: list[str]) -> str:
    # An option may be named alone, at the end: `seatrial run --set`.
    with_value = {name for parameter in command.params if not getattr(parameter, "is_flag", True) for name in parameter.opts}
    argv = [*argv, "VALUE"] if argv and argv[-1] in with_value else argv
    context = command.context_class(command, info_name=command.name)
    try:
        _, left, _ = command.make_parser(context).parse_args(list(argv))
    except Exception as error:
        # typer has errors of click's kind, of its own or click's own, by version.
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())
    return f"{' '.join(left)} is one argument too many" if left and not context.allow_extra_args else ""


def _is_placeholder(argument: str) -> bool:
    return argument in _DOTS or argument.isupper() or (argument.startswith("{") and argument.endswith("}"))


def _wrong_with_make(argv: list[str]) -> str:
    unknown = [
        argument
        for argument in argv
        if not argument.startswith("-") and "=" not in argument and not argument.isupper() and argument not in make_targets()
    ]
    return f"the Makefile has no {', '.join(unknown)}" if unknown else ""


def _wrong_with_python(argv: list[str]) -> str:
    """The module of `python -m NAME` and the file of `python a/b.py` must exist; a script without a folder is the reader's own."""
    if argv[:1] == ["-m"] and len(argv) > 1:
        return "" if _is_placeholder(argv[1]) or _is_module(argv[1]) else f"there is no module {argv[1]}"
    script = next((argument for argument in argv if not argument.startswith("-")), "")
    if script.endswith(".py") and "/" in script and not any((folder / script).is_file() for folder in STARTED_IN):
        return f"there is no file {script}"
    return ""


@cache
def make_targets() -> frozenset[str]:
    found = _TARGET.finditer((ROOT / "Makefile").read_text())
    return frozenset(name for match in found for name in match["names"].split())


@cache
def _seatrial() -> Any:
    """The whole command line, as typer builds it."""
    return typer.main.get_command(build_app(list(VERBS)))


@cache
def _is_module(name: str) -> bool:
    """By its file where it is ours; others must be installed."""
    if name.partition(".")[0] in ("seatrial", "seatrial_workloads", "seatrial_runbooks", "tests"):
        base = (ROOT if name.startswith("tests") else ROOT / "src") / name.replace(".", "/")
        return base.with_suffix(".py").is_file() or (base / "__main__.py").is_file()
    return importlib.util.find_spec(name.partition(".")[0]) is not None
