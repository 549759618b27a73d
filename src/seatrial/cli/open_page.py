"""`--open`: a page in the user's own browser, or how to get to it where there is none.

In: the page's file. Out: a sentence. The browser is asked for by a small Python of its own: what a browser prints while it starts must not
get into a JSON line, and one that stays in the foreground must not keep the verb from ending.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from seatrial.shell import quote

OPENING_S = 15.0
OPENER = "import sys, webbrowser; sys.exit(0 if webbrowser.open(sys.argv[1]) else 1)"
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
WITHOUT_DISPLAYS = ("darwin", "win32")
"""Systems where a browser needs none of these variables."""


def open_page(page: Path, opener: Callable[[str], bool] | None = None, variables: Mapping[str, str] | None = None) -> str:
    """Open it and say so; where that cannot be done here, say where the page is and how it is read elsewhere."""
    page = page.resolve()
    if has_display(os.environ if variables is None else variables) and (opener or ask_for_browser)(page.as_uri()):
        return f"Opened: {page}"
    fetching = quote(["scp", f"{socket.gethostname()}:{page}", "."])
    return f"No browser can be opened here. The page is one file that needs no network: fetch it (`{fetching}`) and open it where you sit."


def has_display(variables: Mapping[str, str]) -> bool:
    """Whether a window can be shown: without one, Python would start a browser made of text in the middle of our own."""
    return sys.platform in WITHOUT_DISPLAYS or any(variables.get(name) for name in DISPLAYS)


def ask_for_browser(address: str) -> bool:
    """Whether a browser took it."""
    argv, nothing = [sys.executable, "-P", "-c", OPENER, address], subprocess.DEVNULL
    try:
        asking = subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError:
        return False
    try:
        return asking.wait(OPENING_S) == 0
    except subprocess.TimeoutExpired:
        # It shows the page and stays: it is the user's now.
        return True
