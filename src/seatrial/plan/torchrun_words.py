"""The options of torchrun, as far as telling them from the script behind them needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Every other option takes a value.
FLAGS = frozenset({"standalone", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "help"})
SHORT_NAMES = {"-m": "module", "-r": "redirects", "-t": "tee", "-h": "help"}


@dataclass(frozen=True, kw_only=True)
class SplitWords:
    """A launcher's own options and what follows them."""

    options: tuple[tuple[str, tuple[str, ...]], ...]
    """Each option's plain name and the words it was typed as."""
    rest: tuple[str, ...]
    """The script and its arguments."""


def option_of(word: str) -> tuple[str | None, str | None]:
    """Plain name and inline value of an option word: `--nproc-per-node=2` is ("nproc_per_node", "2"); (None, None) for other words."""
    if word in SHORT_NAMES:
        return SHORT_NAMES[word], None
    if not word.startswith("--") or word == "--":
        return None, None
    name, equals, value = word.removeprefix("--").partition("=")
    return name.replace("-", "_"), value if equals else None


def split_words(words: Sequence[str]) -> SplitWords:
    """Options up to the script; the script's own options are left alone."""
    options: list[tuple[str, tuple[str, ...]]] = []
    position = 0
    while position < len(words):
        name, inline = option_of(words[position])
        if name is None:
            position += words[position] == "--"
            break
        width = 1 if inline is not None or name in FLAGS else 2
        options.append((name, tuple(words[position : position + width])))
        position += width
    return SplitWords(options=tuple(options), rest=tuple(words[position:]))


def value_in(typed: tuple[str, ...]) -> str:
    """The value of an option as it was typed: `--nnodes=1` or `--nnodes 1`."""
    inline = option_of(typed[0])[1]
    return inline if inline is not None else typed[1] if len(typed) > 1 else ""
