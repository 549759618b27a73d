"""Commands as texts write them. In: lines of shell or a piece of inline code. Out: the words of each command, and what is wrong with them.

Nothing is run: `seatrial …` is read by the parser of its verb, `make …` is looked up in the Makefile, `python …` among the files. A word
in capitals, in braces or of three dots stands for one of the reader's.
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
STARTED_IN = (ROOT, ROOT / "runbooks" / "stage1")
"""Folders in which a reader is told to type commands."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_DOTS = {"…", "...", "[…]"}
_BETWEEN = set("();<>|&")
_STREAM = re.compile(r"(?<=\s)\d(?=>)")
_TARGET = re.compile(r"^(?P<names>[a-z][\w -]*):(?!=)", re.MULTILINE)


def commands_in(text: str) -> Iterator[list[str]]:
    """Of each command in the text that starts one of our programs: its words, the program first. Continued lines are one."""
    for line in text.replace("\\\n", " ").splitlines():
        for words in _split(line):
            while words and _ASSIGNMENT.fullmatch(words[0]):
                words = words[1:]
            if words and words[0] in PROGRAMS:
                yield words


def _split(line: str) -> Iterator[list[str]]:
    """The words between `|`, `&&`, `;`, `>` and their like; of a text that is no shell, none."""
    lexer = shlex.shlex(_STREAM.sub("", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    try:
        for word in lexer:
            if set(word) <= _BETWEEN:
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:
        return
    yield words


def wrong_with(words: list[str]) -> str:
    """What the program does not know of these words; empty when it knows them all."""
    program, *rest = words
    rest = [word for word in rest if word not in _DOTS]
    return {"seatrial": wrong_with_verb, "make": _wrong_with_make, "python": _wrong_with_python}[program](rest)


def wrong_with_verb(words: list[str]) -> str:
    """The same of `seatrial`, by the parsers of its verbs."""
    command = _seatrial()
    if words[:1] == ["--version"]:
        return ""
    while hasattr(command, "commands"):
        if not words or _stands_for_something(words[0]) or words[0] == "--help":
            return ""
        verb, *words = words
        if verb not in command.commands:
            return f"there is no verb {verb!r}"
        command = command.commands[verb]
    return _wrong_with_options(command, words)


def _wrong_with_options(command: Any, words: list[str]) -> str:
    # An option may be named alone, at the end: `seatrial run --set`.
    with_value = {name for parameter in command.params if not getattr(parameter, "is_flag", True) for name in parameter.opts}
    words = [*words, "VALUE"] if words and words[-1] in with_value else words
    context = command.context_class(command, info_name=command.name)
    try:
        _, left, _ = command.make_parser(context).parse_args(list(words))
    except Exception as error:
        # typer has errors of click's kind, of its own or click's own, by version.
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())
    return f"{' '.join(left)} is more than it takes" if left and not context.allow_extra_args else ""


def _stands_for_something(word: str) -> bool:
    return word in _DOTS or word.isupper() or (word.startswith("{") and word.endswith("}"))


def _wrong_with_make(words: list[str]) -> str:
    unknown = [word for word in words if not word.startswith("-") and "=" not in word and not word.isupper() and word not in make_targets()]
    return f"the Makefile has no {', '.join(unknown)}" if unknown else ""


def _wrong_with_python(words: list[str]) -> str:
    """Of `python -m NAME` the module must be there, of `python a/b.py` the file; a script without a folder is the reader's own."""
    if words[:1] == ["-m"] and len(words) > 1:
        return "" if _stands_for_something(words[1]) or _is_module(words[1]) else f"there is no module {words[1]}"
    script = next((word for word in words if not word.startswith("-")), "")
    if script.endswith(".py") and "/" in script and not any((folder / script).is_file() for folder in STARTED_IN):
        return f"there is no file {script}"
    return ""


@cache
def make_targets() -> frozenset[str]:
    found = _TARGET.finditer((ROOT / "Makefile").read_text())
    return frozenset(name for match in found for name in match["names"].split())


@cache
def _seatrial() -> Any:
    """The whole command line, as typer makes it."""
    return typer.main.get_command(build_app(list(VERBS)))


@cache
def _is_module(name: str) -> bool:
    """By its file where it is ours; others must be installed."""
    if name.partition(".")[0] in ("seatrial", "seatrial_workloads", "seatrial_runbooks", "tests"):
        base = (ROOT if name.startswith("tests") else ROOT / "src") / name.replace(".", "/")
        return base.with_suffix(".py").is_file() or (base / "__main__.py").is_file()
    return importlib.util.find_spec(name.partition(".")[0]) is not None
