"""The options of torchrun as its own parser takes them: `-` for `_`, `--option=value`, cut short, or one letter.

In: words a person typed after `torchrun`. Out: the options by plain name (`nproc_per_node`), and the script behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FLAGS = frozenset({"standalone", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "help"})
VALUED = frozenset(
    {
        "nnodes",
        "nproc_per_node",
        "rdzv_backend",
        "rdzv_endpoint",
        "rdzv_id",
        "rdzv_conf",
        "max_restarts",
        "monitor_interval",
        "start_method",
        "event_log_handler",
        "role",
        "log_dir",
        "redirects",
        "tee",
        "local_ranks_filter",
        "duplicate_stdout_filters",
        "duplicate_stderr_filters",
        "node_rank",
        "master_addr",
        "master_port",
        "local_addr",
        "logs_specs",
        "numa_binding",
        "signals_to_handle",
        "shutdown_timeout",
    }
)
SHORT_NAMES = {"-m": "module", "-r": "redirects", "-t": "tee", "-h": "help"}


@dataclass(frozen=True, kw_only=True)
class TypedOption:
    """One option of a command line."""

    name: str
    """Its plain name; as typed for one that torchrun does not have, or that could be several."""
    value: str
    """Empty for a flag, and where the value is missing."""
    words: tuple[str, ...]
    """As it was typed."""


@dataclass(frozen=True, kw_only=True)
class SplitWords:
    """torchrun's own options and what follows them."""

    options: tuple[TypedOption, ...]
    rest: tuple[str, ...]
    """The script and its arguments."""


def split_words(words: Sequence[str]) -> SplitWords:
    """Options up to the script; the script's own options are left alone."""
    options: list[TypedOption] = []
    position = 0
    while position < len(words):
        name, inline = option_of(words[position])
        if name is None:
            position += words[position] == "--"
            break
        # An option of a newer torchrun is more likely to take a value than not.
        width = 1 if inline is not None or name in FLAGS else 2
        typed = tuple(words[position : position + width])
        value = inline if inline is not None else "".join(typed[1:])
        options.append(TypedOption(name=name, value=value, words=typed))
        position += width
    return SplitWords(options=tuple(options), rest=tuple(words[position:]))


def values_in(words: Sequence[str]) -> dict[str, str]:
    """Plain name to value of every option in `words`; of one typed twice the last counts, as it does for torchrun."""
    return {option.name: option.value for option in split_words(words).options}


def option_of(word: str) -> tuple[str | None, str | None]:
    """Plain name and inline value of an option word: `--nproc-per=2` is ("nproc_per_node", "2"); (None, None) for other words."""
    if word[:2] in SHORT_NAMES:
        name, attached = SHORT_NAMES[word[:2]], word[2:]
        if name in FLAGS and attached:
            return None, None
        return name, attached.removeprefix("=") if attached else None
    name_typed, inline = long_option(word)
    return (None if name_typed is None else _completed(name_typed)), inline


def long_option(word: str) -> tuple[str | None, str | None]:
    """Name and inline value of any program's `--option-name=value`, as typed but for `_`; (None, None) for other words."""
    if not word.startswith("--") or word == "--":
        return None, None
    name, equals, value = word.removeprefix("--").partition("=")
    return name.replace("-", "_"), value if equals else None


def _completed(name: str) -> str:
    """The one option that begins with `name`; `name` itself when there is none, or more than one."""
    known = FLAGS | VALUED
    matches = [name] if name in known else [option for option in known if option.startswith(name)]
    return matches[0] if len(matches) == 1 else name
