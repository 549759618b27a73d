"""Masking secrets before anything is written where others can read it: by name, by format, and by known value.

`mask("HF_TOKEN", "abc…")` gives `***`; `mask("HTTP_PROXY", "http://me:pw@host")` gives `http://me:***@host`;
`mask_argv(["train.py", "--api-key", "abc"])` gives `["train.py", "--api-key", "***"]`; `mask_text` does the same to any text, and
`mask_lines` to the lines of a log. Values that are known to be secret (`collect_secrets`) are masked wherever they occur. By name,
`WANDB_API_KEY`, `hub.token` and `AccountKey` are secret; `max_tokens`, `key-dim` and `pad_token` are not. Standard library only.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence

MASK = "***"
LONGEST_COMMAND = 512
MAX_BEFORE = 32
"""Arguments before a `-p` among which its program is looked for."""

# Prefix (kept, so that one sees what was masked) and the rest. Lengths are below the services' own, and above any ordinary word's.
_TOKENS = (
    # Model hubs and experiment trackers.
    (r"hf_", r"[A-Za-z0-9]{16,}"),
    (r"api_org_", r"[A-Za-z0-9]{16,}"),
    (r"wandb_v1_", r"\w{20,}"),
    (r"local-", r"[0-9a-f]{40}"),
    # OpenAI, Anthropic and others with their prefix; the digit distinguishes them from words joined by dashes.
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
    # JSON web tokens, and what follows `Bearer`.
    (r"eyJ", r"[\w-]{8,2000}\.[\w-]{8,2000}\.[\w-]*"),
    (r"Bearer[ \t]+", r"[\w.~+/-]{8,}=*"),
)
_TOKEN = re.compile("|".join(rf"(?<![A-Za-z0-9])(?P<t{place}>{prefix}){rest}" for place, (prefix, rest) in enumerate(_TOKENS)))

# Bounded lengths, so that a log line of a hundred thousand letters is searched quickly.
_URL_SCHEME = r"(?P<before>[a-z][a-z0-9+.-]{0,20}://"
# Up to the last @ before the path; where the password itself has a slash, up to the first @, unless that part is a port.
_URL_PASSWORD = re.compile(
    rf"{_URL_SCHEME}[^\s:/@'\"]{{0,200}}:)(?:[^\s/'\"]{{1,400}}(?=@)|(?!\d+/)[^\s@'\"]{{1,400}}(?=@))", re.IGNORECASE
)
# A long user name without a password is a token.
_URL_TOKEN = re.compile(rf"{_URL_SCHEME})[\w.~%+-]{{20,400}}(?=@)", re.IGNORECASE)
# `curl -u me:pw`; two numbers are a user and a group.
_USER_OPTION = re.compile(r"(?P<before>(?<!\S)(?:-u|--user|--proxy-user)[ \t=]+[\w.@-]+:)(?!\d+(?!\S))[^\s'\"]+")

# A header has several values, and the rest of the line is theirs.
_COOKIE = re.compile(r"(?P<before>(?<![\w-])(?:Set-)?Cookie[\"']?[ \t]*:[ \t]*[\"']?)[^\r\n\"']+", re.IGNORECASE)
# Only what is user and password in base64: `Basic training` is none.
_BASIC = re.compile(r"(?P<before>(?<![A-Za-z0-9])Basic[ \t]+)(?P<value>[A-Za-z0-9+/]{4,2000}={0,2})(?![\w+/=])", re.IGNORECASE)
# `-p` takes a password, a port, a folder, a pattern: decided by the program before it, else by the value.
_P_OPTION = re.compile(r"""(?P<before>(?<![\w-])-p(?:["']?,?[ \t]+|=)["']?)(?P<value>[^\s"',]+)""")
_P_ATTACHED = re.compile(r"(?P<before>(?<![\w-])-p)(?P<value>[^\s\"',=-][^\s\"',]*)")
_PROGRAM = re.compile(
    r"(?<![\w.-])(?:(?P<attached>sshpass|mysql\w*|mariadb[\w-]*)"
    r"|(?P<password>smbclient|rabbitmqadmin|(?:docker|podman|helm|oras)\b.{0,40}? login)"
    r"|mkdir|cp|install|ssh|scp|sftp|rsync|grep|ps|patch|read|tmux|screen|nc|find|tar|tee)(?![\w.-])"
)
_NEXT_COMMAND = re.compile(r"[|;&]")
_PORT = re.compile(r"[\d.:-]+(?:/(?:tcp|udp))?")
_LOOKS_LIKE_PASSWORD = re.compile(r"(?=\S*[A-Za-z])(?=\S*[\d!@#$%^&*+?~])[^\s/\\=]{6,}")

_KEY_NAME = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
# Complete, without its end, or (where the tail of a log begins inside it) without its beginning.
_PRIVATE_KEY = re.compile(rf"(?P<before>-----BEGIN {_KEY_NAME}).*?(?:-----END {_KEY_NAME}|\Z)", re.DOTALL)
_END_OF_PRIVATE_KEY = re.compile(rf"\A(?:[A-Za-z0-9+/=]+\s+)+(?P<before>-----END {_KEY_NAME})")


def mask_known_formats(text: str) -> str:
    """`text` without secrets that their format alone reveals: tokens with a service's prefix, passwords in URLs, private keys."""
    text = _PRIVATE_KEY.sub(rf"\g<before>{MASK}", text)
    text = _END_OF_PRIVATE_KEY.sub(rf"{MASK}\g<before>", text)
    for pattern in (_URL_PASSWORD, _URL_TOKEN, _USER_OPTION, _COOKIE):
        text = pattern.sub(rf"\g<before>{MASK}", text)
    text = _BASIC.sub(lambda found: f"{found['before']}{MASK}" if _is_user_and_password(found["value"]) else found[0], text)
    text = _P_OPTION.sub(lambda found: f"{found['before']}{MASK}" if _is_dash_p_value(found, attached=False) else found[0], text)
    text = _P_ATTACHED.sub(lambda found: f"{found['before']}{MASK}" if _is_dash_p_value(found, attached=True) else found[0], text)
    return _TOKEN.sub(lambda match: f"{match[match.lastgroup or 0]}{MASK}", text)


def _is_user_and_password(base64_text: str) -> bool:
    try:
        user, colon, password = base64.b64decode(base64_text, validate=True).decode("utf-8").partition(":")
    except ValueError:
        return False
    return bool(user and colon and password) and (user + password).isprintable()


def _is_dash_p_value(found: re.Match[str], *, attached: bool) -> bool:
    # The program is on the same line.
    line = found.string[found.string.rfind("\n", 0, found.start()) + 1 : found.start()][-LONGEST_COMMAND:]
    return is_dash_p_password(line, found["value"], attached=attached)


def is_dash_p_password(before: str, value: str, *, attached: bool = False) -> bool:
    """Whether the value of an option `-p` is a password, after the text `before` on its command line: by the last known program in it.
    Without one, only what is neither a word, a number, a port nor a path counts."""
    if not value or value == MASK or value.startswith("-"):
        return False
    program = next(reversed(list(_PROGRAM.finditer(_NEXT_COMMAND.split(before)[-1]))), None)
    if attached or program is not None:
        return program is not None and bool(program["attached"] or (program["password"] and not attached))
    return not _PORT.fullmatch(value) and bool(_LOOKS_LIKE_PASSWORD.fullmatch(value))


# Anywhere in a name.
_ALWAYS_SECRET = re.compile(r"SECRET|PASSWORD|PASSWD|PASSPHRASE|PASSCODE|CREDENTIAL", re.IGNORECASE)
# At the end of a name. TOKENIZERS_PARALLELISM, MAX_TOKENS and KEY_DIM are settings, and `monkey` is not a key.
_KEY_BEFORE = (
    r"(?:^|[_.-]|API|ACCESS|ACCOUNT|APP|AUTH|CLIENT|DEPLOY|ENCRYPTION|LICENSE|MASTER|PRIVATE|SERVICE|SHARED|SIGNING|SSH|STORAGE"
    r"|SUBSCRIPTION|WEBHOOK)"
)
_SECRET_AT_END = re.compile(
    rf"(?:TOKEN|{_KEY_BEFORE}KEY(?:[_-]?(?:FILE|PATH|ID|DATA|PEM|JSON|B64|BASE64))?|(?:API|ACCESS|AUTH)[_-]?(?:KEYS|TOKENS)"
    r"|[_.-](?:PASS|PWD|PSWD|AUTH|JWT|SESSION)|(?:GH|GITHUB|GITLAB|AZURE|DEVOPS|EXT)_PAT|(?:^|[_.-])AUTHORIZATION"
    # Programs with a variable of their own: SSHPASS, PGPASS, BINDPW.
    r"|(?:SSH|PG|DB|MYSQL|LDAP|SMTP|FTP|MAIL|REDIS|VNC|SUDO|ROOT|ADMIN|USER|BIND)PASS"
    r"|(?:^|[_.-]|SSH|PG|DB|MYSQL|LDAP|SMTP|FTP|MAIL|REDIS|VNC|SUDO|ROOT|ADMIN|USER|BIND)PW"
    r"|(?:^|[_.-])AUTH[_-]?CONFIG|(?:^|[_.-])COOKIES?(?:[_-]?(?:JAR|FILE|STRING|VALUE|SECRET|HEADER|NAME|TXT))?"
    r"|ACCESS[_-]?SIGNATURE)(?:[_-]?\d{1,2})?$",
    re.IGNORECASE,
)
# A tokenizer's tokens, columns of data, counts per token, and passes.
_ORDINARY_NAME = re.compile(
    r"(?:^|[_.-])(?:"
    r"(?:PAD|EOS|BOS|UNK|CLS|SEP|MASK|PER|SPECIAL|IMAGE|AUDIO|VIDEO|VISION|SPEECH|TEXT|START|STOP|END|BLANK|NEXT|PREV|FIRST|LAST|NEW|EACH)"
    r"[_-]?TOKEN"
    r"|(?:PUBLIC|PRIMARY|FOREIGN|SORT|GROUP|PARTITION|INDEX|CACHE|TEXT|IMAGE|AUDIO|VIDEO|LABEL|INPUT|OUTPUT|TARGET|DATA|FEATURE|COLUMN"
    r"|PROMPT|RESPONSE|MESSAGES|QUERY|STATE|METRIC)[_-]?KEY"
    r"|(?:FORWARD|BACKWARD|FIRST|SECOND|SINGLE|MULTI|ONE|TWO|NUM|N|PER|ALL|BY)[_-]?PASS)$",
    re.IGNORECASE,
)
# Ambiguous alone (`sorted(key=len)`, `pass=3 fail=0`, PWD), but secret as an option or in a URL.
_AMBIGUOUS = re.compile(r"KEY|PASS|PWD", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"KEY|PASS|PWD|SIG|SIGNATURE|AUTH|(?:X-AMZ-|X-GOOG-)(?:SIGNATURE|CREDENTIAL|SECURITY-TOKEN)", re.IGNORECASE)
# Switches and counts.
_ORDINARY_VALUE = re.compile(r"true|false|none|null|yes|no|on|off|auto|-?\d{1,6}(?:\.\d+)?", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or key of this name holds a secret, whatever its value."""
    if _ALWAYS_SECRET.search(name):
        return True
    return (
        bool(_SECRET_AT_END.search(name)) and not _ORDINARY_NAME.search(name) and not (_AMBIGUOUS.fullmatch(name) and name != name.upper())
    )


def is_secret_option(name: str) -> bool:
    """The same for an option, given without its dashes: `--key`, `--pass` and `--auth` take a secret."""
    return is_secret_name(name) or name.upper() in ("KEY", "PASS", "AUTH")


def is_secret_parameter(name: str) -> bool:
    """The same for a parameter after `?`, `&` or `;` of a URL or a connection string."""
    return is_secret_option(name) or bool(_SECRET_IN_URL.fullmatch(name))


def is_ordinary_value(name: str, value: str) -> bool:
    """Whether `value` is only a switch or a count, and so no secret even under this name; a password may be a number."""
    return not _ALWAYS_SECRET.search(name) and bool(_ORDINARY_VALUE.fullmatch(value))


# Shorter values (`1`, `dev`) occur in ordinary words.
MIN_SECRET_LENGTH = 6
# Of what follows `token:` in a log: parsers report an `Unexpected token: }`.
MIN_LOGGED_TOKEN_LENGTH = 16

# An option, variable, JSON or YAML key, header or parameter, up to where its value begins.
_NAMED = re.compile(
    r"""(?<![\w.-])(?P<dashes>--?)?(?P<name>[A-Za-z_][\w.-]*)"""
    r"""(?:(?P<quote>\\?["'])?(?P<sign>[ \t]*=(?!=)[ \t]*|[ \t]*:(?!//)[ \t]*)|(?<=\w)(?P<space>[ \t]+)(?!-))"""
)
_QUOTED = r"""(?:'[^'\n]*'|"(?:[^"\\\n]|\\.)*")"""
# A value ends before the next parameter of a URL, field of a connection string or item of a list; a password may contain the rest.
_NEXT = r"""(?:&[\w.%\[\]-]+=|;\s*(?:[A-Za-z][\w .-]*=|$)|,\s*\\?["']?[\w.-]+\\?["']?\s*[=:])"""
_VALUE = re.compile(
    rf"""{_QUOTED}(?:{_QUOTED}|[^\s'",;)\]}}&])*"""
    rf"""|["']\S+"""
    rf"""|(?:(?!{_NEXT})[^\s"'])(?:(?!{_NEXT})[^\s"']|["'](?![\s,;:)\]}}]|$))*"""
)
_AUTH_SCHEME = re.compile(r"(?:Bearer|Basic|Token|Digest|Negotiate|ApiKey)[ \t]+", re.IGNORECASE)


def mask(name: str, value: str) -> str:
    """The value of a variable as it may be shown: whole, in part, or not at all."""
    if not value:
        return value
    return MASK if is_secret_name(name) and not is_ordinary_value(name, value) else mask_text(value)


def mask_text(text: str, known: Iterable[str] = ()) -> str:
    """`text` without `known` secrets, tokens of known formats, passwords in URLs, and values of secret names."""
    # Longest first: one may be a prefix of another.
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _mask_named(mask_known_formats(text))


def mask_lines(lines: Sequence[str], known: Iterable[str] = ()) -> tuple[str, ...]:
    """The lines of a log; a private key of several lines becomes one line."""
    return tuple(mask_text("\n".join(lines), known).split("\n")) if lines else ()


def mask_argv(argv: Sequence[str]) -> list[str]:
    """A command as it may be shown; an option's value may be the argument after it."""
    return [_mask_argument(argv[max(0, at - MAX_BEFORE) : at], argument) for at, argument in enumerate(argv)]


def collect_secrets(variables: Mapping[str, str], argv: Sequence[str] = ()) -> tuple[str, ...]:
    """Values that must not be shown anywhere: those of variables and of options in `argv` with a secret name."""
    values = [value for name, value in variables.items() if is_secret_name(name) and not is_ordinary_value(name, value)]
    values += [argument for at, argument in enumerate(argv) if _is_secret_argument(argv[max(0, at - MAX_BEFORE) : at], argument)]
    return tuple(value for value in dict.fromkeys(values) if len(value) >= MIN_SECRET_LENGTH)


def _mask_argument(before: Sequence[str], argument: str) -> str:
    if _is_secret_argument(before, argument):
        return MASK
    option = before[-1] if before else ""
    if argument[:2] == "-p" and is_dash_p_password(" ".join(before)[-LONGEST_COMMAND:], argument[2:], attached=True):
        return f"-p{MASK}"
    if option in ("-u", "--user", "--proxy-user"):
        return mask_text(f"{option} {argument}").removeprefix(f"{option} ")
    return mask_text(argument)


def _is_secret_argument(before: Sequence[str], argument: str) -> bool:
    option = before[-1] if before else ""
    if option == "-p":
        return is_dash_p_password(" ".join(before[:-1])[-LONGEST_COMMAND:], argument)
    name = option.lstrip("-")
    # After a flag, the next argument begins with a dash.
    if name == option or not argument or argument.startswith("-") or "=" in name:
        return False
    return is_secret_option(name) and not is_ordinary_value(name, argument)


def _mask_named(text: str) -> str:
    parts, position = [], 0
    for named in _NAMED.finditer(text):
        value = _VALUE.match(text, _find_value(text, named)) if named.start() >= position and _names_secret(text, named) else None
        if value is not None and _is_secret_value(named, value[0]):
            parts += [text[position : value.start()], _mask_quoted(value[0]) if named["quote"] else MASK]
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


def _find_value(text: str, named: re.Match[str]) -> int:
    """Where the value begins: after `Bearer` or another authentication scheme of a header."""
    scheme = _AUTH_SCHEME.match(text, named.end())
    return scheme.end() if scheme else named.end()


def _is_secret_value(named: re.Match[str], value: str) -> bool:
    bare = value.strip("\\\"'")
    if not bare or bare == MASK or is_ordinary_value(named["name"], bare.rstrip(")]},;")):
        return False
    is_logged_token = named["name"].lower() == "token" and not named["dashes"] and ":" in (named["sign"] or "") and not named["quote"]
    return len(bare) >= MIN_LOGGED_TOKEN_LENGTH if is_logged_token else True


def _mask_quoted(value: str) -> str:
    """The mask in the value's quotes: JSON stays JSON."""
    quote = value[0]
    whole = quote in "\"'" and len(value) > 1 and value.endswith(quote) and quote not in value[1:-1]
    return f"{quote}{MASK}{quote}" if whole else MASK
