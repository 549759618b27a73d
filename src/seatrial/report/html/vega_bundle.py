"""Vega, Vega-Lite and Vega-Embed as one text for a script element, made by vl_convert, the package of their own makers.

In: nothing. Out: the text of an ES module that sets `window.vegaEmbed`, or None without vl_convert. Making it takes two seconds, so it is
kept in the user's cache folder under vl_convert's version; where that cannot be written, every process makes its own. It runs in every
page that is sent on, so a file that somebody else wrote, or could have written into, is not taken.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from seatrial import files

SNIPPET = "window.vegaEmbed=vegaEmbed;"
SMALLEST_WHOLE = 100_000
"""Characters; a file cut short is made again."""
PRIVATE_FOLDER, PRIVATE = 0o700, 0o600
_unkept: dict[Path, str] = {}
# In texts of the bundle, where a backslash changes nothing: whoever edits the page as text must not hit these.
_ENDS = re.compile(r"</(script|body|head|html)", re.IGNORECASE)


def vega_bundle() -> str | None:
    """The text, from the cache or made now; None where it cannot be had."""
    version = _version()
    if version is None:
        return None
    kept = _cache_folder() / f"vega-{version}.js"
    return _read(kept) or _unkept.get(kept) or _made(kept)


def _version() -> str | None:
    from importlib import metadata

    try:
        return metadata.version("vl-convert-python")
    except metadata.PackageNotFoundError:
        return None


def _cache_folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given.startswith("/"):
        return Path(given) / "seatrial"
    # Without a home there is no cache; `~` as a folder of the current one would be a surprise.
    home = os.path.expanduser("~")  # noqa: PTH111 (Path.home() raises where there is none)
    return Path(home if home.startswith("/") else "/nonexistent") / ".cache" / "seatrial"


def _read(kept: Path) -> str | None:
    try:
        with files.open_file(kept) as source:
            if not _is_ours(source.fileno()):
                return None
            text = source.read().decode("utf-8")
    except (OSError, ValueError):
        return None
    return text if _is_whole(text) else None


def _is_ours(handle: int) -> bool:
    """Asked of the open file: what lies under its name may be another one by now."""
    found = os.fstat(handle)
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _made(kept: Path) -> str | None:
    try:
        import vl_convert
    except ImportError:
        return None
    text = _in_a_script(str(vl_convert.javascript_bundle(SNIPPET)))
    if not _is_whole(text):
        return None
    try:
        kept.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        files.write_text(kept, text, PRIVATE)
    except OSError:
        # A live page asks again and again.
        _unkept[kept] = text
    return text


def _in_a_script(text: str) -> str:
    """No sign that ends a script or the document, and no line break that a browser turns into another one: the hash is of what it reads."""
    safe = _ENDS.sub(r"<\\/\1", text).replace("<!--", "<\\!--")
    return safe.replace("\r\n", "\n").replace("\r", "\n")


def _is_whole(text: str) -> bool:
    """It ends with what sets the name; a file written by somebody else would end otherwise."""
    return len(text) >= SMALLEST_WHOLE and "window.vegaEmbed=" in text[-200:] and not _ENDS.search(text)
