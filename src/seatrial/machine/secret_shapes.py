"""What a secret looks like where no name tells: tokens that services give a prefix of their own, passwords in addresses, private keys.

`hide_shapes("https://me:pw@host hf_abc…")` gives `https://me:***@host hf_***`.
"""

from __future__ import annotations

import re

MASK = "***"

# Prefix (kept, so that one sees what was hidden) and what follows it. Lengths are below the services' own, and above any ordinary word's.
_TOKENS = (
    # Model hubs and experiment trackers.
    (r"hf_", r"[A-Za-z0-9]{16,}"),
    (r"api_org_", r"[A-Za-z0-9]{16,}"),
    (r"wandb_v1_", r"\w{20,}"),
    (r"local-", r"[0-9a-f]{40}"),
    # OpenAI, Anthropic and those that took up their prefix; the digit tells them from words joined by dashes.
    (r"sk-", r"(?=[\w-]{0,80}\d)[\w-]{16,}"),
    (r"(?:sk|rk|pk)_(?:live|test)_", r"[A-Za-z0-9]{10,}"),
    (r"(?:gsk_|r8_|xai-|nvapi-|pplx-)", r"[\w-]{20,}"),
    # Code hosts and package registries.
    (r"gh[opusr]_", r"[A-Za-z0-9]{16,}"),
    (r"github_pat_", r"\w{16,}"),
    (r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-", r"[\w-]{16,}"),
    (r"npm_", r"[A-Za-z0-9]{30,}"),
    (r"pypi-", r"[\w-]{40,}"),
    # Clouds and chats.
    (r"(?:AKIA|ASIA)", r"[A-Z0-9]{12,}"),
    (r"AIza", r"[\w-]{30,}"),
    (r"ya29\.", r"[\w-]{20,}"),
    (r"GOCSPX-", r"[\w-]{20,}"),
    (r"dapi", r"[0-9a-f]{32}"),
    (r"xox[abeoprs]-", r"[\w-]{8,}"),
    (r"xapp-", r"[\w-]{16,}"),
    (r"SG\.", r"[\w-]{16,}\.[\w-]{16,}"),
    (r"hvs\.", r"[\w-]{20,}"),
    (r"https://hooks\.slack\.com/services/", r"[\w/]+"),
    (r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/", r"[\w-]+"),
    # A JSON web token, wherever it comes from, and what stands behind `Bearer`.
    (r"eyJ", r"[\w-]{8,2000}\.[\w-]{8,2000}\.[\w-]*"),
    (r"Bearer[ \t]+", r"[\w.~+/-]{8,}=*"),
)
_TOKEN = re.compile("|".join(rf"(?<![A-Za-z0-9])(?P<t{place}>{prefix}){rest}" for place, (prefix, rest) in enumerate(_TOKENS)))

# Lengths have an end, so that a log line of a hundred thousand letters is searched in no time.
_SCHEME = r"(?P<before>[a-z][a-z0-9+.-]{0,20}://"
# Up to the last @ before the path; where a password itself has a slash, up to the first @, unless what stands there is a port.
_URL_PASSWORD = re.compile(rf"{_SCHEME}[^\s:/@'\"]{{0,200}}:)(?:[^\s/'\"]{{1,400}}(?=@)|(?!\d+/)[^\s@'\"]{{1,400}}(?=@))", re.IGNORECASE)
# A long name without a password is a token.
_URL_TOKEN = re.compile(rf"{_SCHEME})[\w.~%+-]{{20,400}}(?=@)", re.IGNORECASE)
# `curl -u me:pw`; two numbers are a user and a group.
_USER_OPTION = re.compile(r"(?P<before>(?<!\S)(?:-u|--user|--proxy-user)[ \t=]+[\w.@-]+:)(?!\d+(?!\S))[^\s'\"]+")

_KEY_NAME = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
# Whole, without its end, or (where a log's tail begins inside it) without its beginning.
_PRIVATE_KEY = re.compile(rf"(?P<before>-----BEGIN {_KEY_NAME}).*?(?:-----END {_KEY_NAME}|\Z)", re.DOTALL)
_END_OF_PRIVATE_KEY = re.compile(rf"\A(?:[A-Za-z0-9+/=]+\s+)+(?P<before>-----END {_KEY_NAME})")


def hide_shapes(text: str) -> str:
    """`text` with every secret that its form alone gives away replaced by `***`."""
    text = _PRIVATE_KEY.sub(_kept, text)
    text = _END_OF_PRIVATE_KEY.sub(rf"{MASK}\g<before>", text)
    for pattern in (_URL_PASSWORD, _URL_TOKEN, _USER_OPTION):
        text = pattern.sub(_kept, text)
    return _TOKEN.sub(lambda match: f"{match[match.lastgroup or 0]}{MASK}", text)


def _kept(match: re.Match[str]) -> str:
    return f"{match['before']}{MASK}"
