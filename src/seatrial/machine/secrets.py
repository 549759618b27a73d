"""Hiding what looks like a secret before a variable is written where the team can read it.

`mask("HF_TOKEN", "hf_abc…")` gives `***`; `mask("HTTP_PROXY", "http://me:pw@host")` gives `http://me:***@host`.
"""

from __future__ import annotations

import re

MASK = "***"

# TOKEN and KEY must end a word of the name: TOKENIZERS_PARALLELISM and MAX_TOKENS are settings, not secrets.
_SECRET_NAME = re.compile(r"SECRET|PASSWORD|PASSWD|CREDENTIAL|(?:TOKEN|KEY)(?=_|$)", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)", re.IGNORECASE)
_KNOWN_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?P<kind>hf_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abp]-|sk-|AKIA)[A-Za-z0-9_-]{8,}",
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
    """`text` without passwords in addresses and without tokens of a known form."""
    without_passwords = _URL_PASSWORD.sub(rf"\g<before>{MASK}", text)
    return _KNOWN_TOKENS.sub(rf"\g<kind>{MASK}", without_passwords)
