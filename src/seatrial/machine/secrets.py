"""Hiding what looks like a secret before it is written where the team can read it.

`mask("HF_TOKEN", "hf_abc…")` gives `***`; `mask("HTTP_PROXY", "http://me:pw@host")` gives `http://me:***@host`;
`mask_words(["train.py", "--api-key", "abc"])` gives `["train.py", "--api-key", "***"]`, and `mask_text` does the same to a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"

# TOKEN and KEY must end a word of the name: TOKENIZERS_PARALLELISM and MAX_TOKENS are settings, not secrets.
_SECRET_NAME = re.compile(r"SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:TOKEN|KEY)(?=_|$)", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)", re.IGNORECASE)
_KNOWN_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?P<kind>hf_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abp]-|sk-|AKIA)[A-Za-z0-9_-]{8,}",
)
# Of an option the whole name must end in it: `--key-dim 64` and `model.token_dropout=0.1` are settings.
_SECRET_OPTION = r"[\w.-]*(?:SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)[\w-]*|[\w.-]*(?:TOKEN|KEY)"
# The words of a tokenizer, and what is counted a token.
_ORDINARY_OPTION = re.compile(r"(?:^|[._-])(?:PAD|EOS|BOS|UNK|CLS|SEP|MASK|PER)[_-]?TOKEN$", re.IGNORECASE)
_OPTION = re.compile(rf"--?(?P<name>{_SECRET_OPTION})", re.IGNORECASE)
_NAMED_VALUE = re.compile(
    rf"""(?P<before>(?<![\w.-])(?:--?(?P<option>{_SECRET_OPTION})(?:=|\s+(?!-))|(?P<variable>{_SECRET_OPTION})=))"""
    r"""(?:'[^']*'|"[^"]*"|\S)+""",
    re.IGNORECASE,
)


def mask(name: str, value: str) -> str:
    """`value` as it may be shown: whole, in part, or not at all."""
    if not value:
        return value
    return MASK if looks_secret(name) else mask_text(value)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret whatever its value looks like."""
    return _SECRET_NAME.search(name) is not None


def mask_text(text: str) -> str:
    """`text` without passwords in addresses, tokens of a known form, and values given to an option or a name that looks secret."""
    without_named = _NAMED_VALUE.sub(_hidden, text)
    without_passwords = _URL_PASSWORD.sub(rf"\g<before>{MASK}", without_named)
    return _KNOWN_TOKENS.sub(rf"\g<kind>{MASK}", without_passwords)


def mask_words(words: Sequence[str]) -> list[str]:
    """The words of a command as they may be shown; the value of an option may be the word behind it."""
    before = ["", *words]
    return [MASK if _is_value_of(option, word) else mask_text(word) for option, word in zip(before, words, strict=False)]


def _is_value_of(option: str, word: str) -> bool:
    named = _OPTION.fullmatch(option)
    # What begins with a dash is the next option: this one was a flag.
    return bool(named and word and not word.startswith("-") and not _ORDINARY_OPTION.search(named["name"]))


def _hidden(match: re.Match[str]) -> str:
    name = match["option"] or match["variable"]
    return match[0] if _ORDINARY_OPTION.search(name) else f"{match['before']}{MASK}"
