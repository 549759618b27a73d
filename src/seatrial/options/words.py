"""The options of a launcher as its own parser takes them: `--option value`, `--option=value`, cut short, or one letter.

In: words a person typed after the launcher's name, and the launcher's `OptionTable`. Out: the options by plain name
(`nproc_per_node`), and the script behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class TypedOption:
    """One option of a command line."""

    name: str
    """Its plain name; as typed for one that the launcher does not have, or that could be several."""
    value: str
    """Empty for a flag, and where the value is missing."""
    words: tuple[str, ...]
    """As it was typed."""


@dataclass(frozen=True, kw_only=True)
class SplitWords:
    """A launcher's own options and what follows them."""

    options: tuple[TypedOption, ...]
    rest: tuple[str, ...]
    """The script and its arguments."""


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """What one launcher's parser knows."""

    flags: frozenset[str]
    """Options without a value."""
    valued: frozenset[str]
    short_names: Mapping[str, str]
    """`-m` to `module`."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """A second long name to the plain one."""
    dash_is_underscore: bool = False
    """Whether `--log-dir` is `--log_dir` to it."""

    @property
    def names(self) -> frozenset[str]:
        """Every long name it takes."""
        return self.flags | self.valued | frozenset(self.other_names)

    def split_words(self, words: Sequence[str]) -> SplitWords:
        """Options up to the script; the script's own options are left alone."""
        options: list[TypedOption] = []
        position = 0
        while position < len(words):
            name, inline = self.option_of(words[position])
            if name is None:
                position += words[position] == "--"
                break
            # An option of a newer launcher is more likely to take a value than not.
            width = 1 if inline is not None or name in self.flags else 2
            typed = tuple(words[position : position + width])
            value = inline if inline is not None else "".join(typed[1:])
            options.append(TypedOption(name=name, value=value, words=typed))
            position += width
        return SplitWords(options=tuple(options), rest=tuple(words[position:]))

    def values_in(self, words: Sequence[str]) -> dict[str, str]:
        """Plain name to value of every option in `words`; of one typed twice the last counts, as it does for the launcher."""
        return {option.name: option.value for option in self.split_words(words).options}

    def option_of(self, word: str) -> tuple[str | None, str | None]:
        """Plain name and inline value of an option word: `--nproc-per=2` is ("nproc_per_node", "2"); (None, None) for other words."""
        if word[:2] in self.short_names:
            name, attached = self.short_names[word[:2]], word[2:]
            if name in self.flags and attached:
                return None, None
            return name, attached.removeprefix("=") if attached else None
        name_typed, inline = _parts_of(word)
        return (None if name_typed is None else self._completed(name_typed)), inline

    def _completed(self, typed: str) -> str:
        """The one option that begins with `typed`; `typed` itself when there is none, or more than one."""
        name = typed.replace("-", "_") if self.dash_is_underscore else typed
        matches = {name} & self.names or {option for option in self.names if option.startswith(name)}
        plain = {self.other_names.get(match, match) for match in matches}
        return plain.pop() if len(plain) == 1 else name


def long_option(word: str) -> tuple[str | None, str | None]:
    """Name and inline value of any program's `--option-name=value`, as typed but for `_`; (None, None) for other words."""
    name, inline = _parts_of(word)
    return (None if name is None else name.replace("-", "_")), inline


def _parts_of(word: str) -> tuple[str | None, str | None]:
    if not word.startswith("--") or word == "--":
        return None, None
    name, equals, value = word.removeprefix("--").partition("=")
    return name, value if equals else None
