"""Which names hold a secret: of variables, options, keys of a configuration, parameters of an address.

`is_secret_name("WANDB_API_KEY")`, `("hub.token")` and `("AccountKey")` are; `("max_tokens")`, `("key-dim")`, `("pad_token")` are not.
"""

from __future__ import annotations

import re

# Anywhere in a name.
_ALWAYS = re.compile(r"SECRET|PASSWORD|PASSWD|PASSPHRASE|PASSCODE|CREDENTIAL", re.IGNORECASE)
# At the end of one. TOKENIZERS_PARALLELISM, MAX_TOKENS and KEY_DIM are settings, and a monkey has no key.
_KEY_BEFORE = (
    r"(?:^|[_.-]|API|ACCESS|ACCOUNT|APP|AUTH|CLIENT|DEPLOY|ENCRYPTION|LICENSE|MASTER|PRIVATE|SERVICE|SHARED|SIGNING|SSH|STORAGE"
    r"|SUBSCRIPTION|WEBHOOK)"
)
_AT_THE_END = re.compile(
    rf"(?:TOKEN|{_KEY_BEFORE}KEY(?:[_-]?(?:FILE|PATH|ID|DATA|PEM|JSON|B64|BASE64))?|(?:API|ACCESS|AUTH)[_-]?(?:KEYS|TOKENS)"
    r"|[_.-](?:PASS|PWD|PSWD|AUTH|JWT)|(?:GH|GITHUB|GITLAB|AZURE|DEVOPS|EXT)_PAT|(?:^|[_.-])(?:AUTHORIZATION|COOKIE)"
    r"|ACCESS[_-]?SIGNATURE)(?:[_-]?\d{1,2})?$",
    re.IGNORECASE,
)
# Words of a tokenizer, columns of data, and what is counted by the token or done in passes.
_ORDINARY = re.compile(
    r"(?:^|[_.-])(?:"
    r"(?:PAD|EOS|BOS|UNK|CLS|SEP|MASK|PER|SPECIAL|IMAGE|AUDIO|VIDEO|VISION|SPEECH|TEXT|START|STOP|END|BLANK|NEXT|PREV|FIRST|LAST|NEW|EACH)"
    r"[_-]?TOKEN"
    r"|(?:PUBLIC|PRIMARY|FOREIGN|SORT|GROUP|PARTITION|INDEX|CACHE|TEXT|IMAGE|AUDIO|VIDEO|LABEL|INPUT|OUTPUT|TARGET|DATA|FEATURE|COLUMN"
    r"|PROMPT|RESPONSE|MESSAGES|QUERY|STATE|METRIC)[_-]?KEY"
    r"|(?:FORWARD|BACKWARD|FIRST|SECOND|SINGLE|MULTI|ONE|TWO|NUM|N|PER|ALL|BY)[_-]?PASS)$",
    re.IGNORECASE,
)
# Alone these say too little (`sorted(key=len)`, `pass=3 fail=0`, PWD); as an option or inside an address they do.
_SHORT = re.compile(r"KEY|PASS|PWD", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"KEY|PASS|PWD|SIG|SIGNATURE|AUTH|(?:X-AMZ-|X-GOOG-)(?:SIGNATURE|CREDENTIAL|SECURITY-TOKEN)", re.IGNORECASE)
# What a switch or a count is set to.
_ORDINARY_VALUE = re.compile(r"true|false|none|null|yes|no|on|off|auto|-?\d{1,6}(?:\.\d+)?", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret, whatever it looks like."""
    if _ALWAYS.search(name):
        return True
    return bool(_AT_THE_END.search(name)) and not _ORDINARY.search(name) and not _is_short_and_lower(name)


def is_secret_option(name: str) -> bool:
    """The same of an option, given without its dashes: `--key`, `--pass` and `--auth` take a secret."""
    return is_secret_name(name) or name.upper() in ("KEY", "PASS", "AUTH")


def is_secret_parameter(name: str) -> bool:
    """The same of a parameter behind `?`, `&` or `;` of an address or a connection string."""
    return is_secret_option(name) or bool(_IN_ADDRESS.fullmatch(name))


def is_ordinary_value(name: str, value: str) -> bool:
    """Whether `value` only switches or counts something, so that even under this name it is none; a password may be a number."""
    return not _ALWAYS.search(name) and bool(_ORDINARY_VALUE.fullmatch(value))


def _is_short_and_lower(name: str) -> bool:
    return bool(_SHORT.fullmatch(name)) and name != name.upper()
