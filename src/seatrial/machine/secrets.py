"""Hiding what looks like a secret before it is written where the team can read it.

`mask("HF_TOKEN", "abc…")` gives `***`; `mask("HTTP_PROXY", "http://me:pw@host")` gives `http://me:***@host`;
`mask_words(["train.py", "--api-key", "abc"])` gives `["train.py", "--api-key", "***"]`; `mask_text` does the same to any text, and
`mask_lines` to the lines of a log. Values that are known to be secret (`known_secrets`) are hidden wherever they stand.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from seatrial.machine.secret_names import is_ordinary_value, is_secret_name, is_secret_option, is_secret_parameter
from seatrial.machine.secret_shapes import MASK, hide_shapes

# Shorter ones (`1`, `dev`) would be found in every other word.
SHORTEST_KNOWN = 6
# How long what stands behind `token:` in a log must be: parsers complain of an `Unexpected token: }`.
SHORTEST_TOLD = 16

# An option, a variable, a key of JSON or YAML, a header or a parameter, up to where its value begins.
_NAMED = re.compile(
    r"""(?<![\w.-])(?P<dashes>--?)?(?P<name>[A-Za-z_][\w.-]*)"""
    r"""(?:(?P<quote>\\?["'])?(?P<sign>[ \t]*=(?!=)[ \t]*|[ \t]*:(?!//)[ \t]*)|(?<=\w)(?P<space>[ \t]+)(?!-))"""
)
_QUOTED = r"""(?:'[^'\n]*'|"(?:[^"\\\n]|\\.)*")"""
# A value ends before the next parameter of an address, field of a connection string or item of a list; a password may have the rest.
_NEXT = r"""(?:&[\w.%\[\]-]+=|;\s*(?:[A-Za-z][\w .-]*=|$)|,\s*\\?["']?[\w.-]+\\?["']?\s*[=:])"""
_VALUE = re.compile(
    rf"""{_QUOTED}(?:{_QUOTED}|[^\s'",;)\]}}&])*"""
    rf"""|["']\S+"""
    rf"""|(?:(?!{_NEXT})[^\s"'])(?:(?!{_NEXT})[^\s"']|["'](?![\s,;:)\]}}]|$))*"""
)
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|Digest|Negotiate|ApiKey)[ \t]+", re.IGNORECASE)


def mask(name: str, value: str) -> str:
    """`value` as it may be shown: whole, in part, or not at all."""
    if not value:
        return value
    return MASK if is_secret_name(name) and not is_ordinary_value(name, value) else mask_text(value)


def mask_text(text: str, known: Iterable[str] = ()) -> str:
    """`text` without `known` secrets, tokens of a known form, passwords in addresses, and values of names that look secret."""
    # Longest first: one may be the beginning of another.
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _hide_named(hide_shapes(text))


def mask_lines(lines: Sequence[str], known: Iterable[str] = ()) -> tuple[str, ...]:
    """The lines of a log; a private key over several of them becomes one."""
    return tuple(mask_text("\n".join(lines), known).split("\n")) if lines else ()


def mask_words(words: Sequence[str]) -> list[str]:
    """The words of a command as they may be shown; the value of an option may be the word behind it."""
    return [_shown(option, word) for option, word in zip(["", *words], words, strict=False)]


def known_secrets(variables: Mapping[str, str], words: Sequence[str] = ()) -> tuple[str, ...]:
    """Values that must not be shown anywhere: those of variables with a secret name, and of options among `words`."""
    values = [value for name, value in variables.items() if is_secret_name(name) and not is_ordinary_value(name, value)]
    values += [word for option, word in itertools.pairwise(words) if _is_value_of(option, word)]
    return tuple(value for value in dict.fromkeys(values) if len(value) >= SHORTEST_KNOWN)


def _shown(option: str, word: str) -> str:
    if _is_value_of(option, word):
        return MASK
    if option in ("-u", "--user", "--proxy-user"):
        return mask_text(f"{option} {word}").removeprefix(f"{option} ")
    return mask_text(word)


def _is_value_of(option: str, word: str) -> bool:
    name = option.lstrip("-")
    # What begins with a dash is the next option: this one was a flag.
    if name == option or not word or word.startswith("-") or "=" in name:
        return False
    return is_secret_option(name) and not is_ordinary_value(name, word)


def _hide_named(text: str) -> str:
    parts, position = [], 0
    for named in _NAMED.finditer(text):
        value = _VALUE.match(text, _value_begins(text, named)) if named.start() >= position and _names_secret(text, named) else None
        if value is not None and _is_secret_value(named, value[0]):
            parts += [text[position : value.start()], _quoted_alike(value[0]) if named["quote"] else MASK]
            position = value.end()
    return "".join([*parts, text[position:]])


def _names_secret(text: str, named: re.Match[str]) -> bool:
    name = named["name"]
    if named["dashes"]:
        return is_secret_option(name)
    if named["space"]:
        return False
    begins = named.start()
    return is_secret_parameter(name) if text[max(begins - 1, 0) : begins] in ("?", "&", ";") else is_secret_name(name)


def _value_begins(text: str, named: re.Match[str]) -> int:
    """Behind `Bearer`, where the value of a header begins with it."""
    scheme = _SCHEME.match(text, named.end())
    return scheme.end() if scheme else named.end()


def _is_secret_value(named: re.Match[str], value: str) -> bool:
    bare = value.strip("\\\"'")
    if not bare or bare == MASK or is_ordinary_value(named["name"], bare.rstrip(")]},;")):
        return False
    told = named["name"].lower() == "token" and not named["dashes"] and ":" in (named["sign"] or "") and not named["quote"]
    return len(bare) >= SHORTEST_TOLD if told else True


def _quoted_alike(value: str) -> str:
    """The mask, inside the quotes of a key's value: JSON stays JSON."""
    quote = value[0]
    whole = quote in "\"'" and len(value) > 1 and value.endswith(quote) and quote not in value[1:-1]
    return f"{quote}{MASK}{quote}" if whole else MASK
