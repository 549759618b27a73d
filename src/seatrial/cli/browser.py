"""Opens pages in the user's browser (`report --open`, `watch --web --open`), or prints how to reach them without one.

In: a page's file or address. Out: a sentence. A separate Python process starts the browser: its start-up output must not
get into a JSON line, and one that stays in the foreground must not keep the verb from ending. A live page's address holds a token, and the
arguments of a process can be read by every user of the host: there the browser is given a file that only this user can read, which
redirects to the address.
"""

from __future__ import annotations

import contextlib
import html
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from seatrial.core.shell import quote

STARTING_S = 15.0
OPENER = "import sys, webbrowser; sys.exit(0 if webbrowser.open(sys.argv[1]) else 1)"
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
WITHOUT_DISPLAYS = ("darwin", "win32")
"""Systems where a browser needs no display variable."""
NO_DISPLAY = "No browser can be opened here: open the address above; from another machine, through `ssh -L {port}:127.0.0.1:{port} HOST`."
REDIRECT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}"><title>Seatrial</title>\n'


def has_display(variables: Mapping[str, str]) -> bool:
    """Whether a window can be shown: without one, Python would start a text browser in the terminal."""
    return sys.platform in WITHOUT_DISPLAYS or any(variables.get(name) for name in DISPLAYS)


def start_browser(address: str) -> bool:
    """Whether a browser took it."""
    argv, nothing = [sys.executable, "-P", "-c", OPENER, address], subprocess.DEVNULL
    try:
        starting = subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError:
        return False
    try:
        return starting.wait(STARTING_S) == 0
    except subprocess.TimeoutExpired:
        # It shows the page and stays open.
        return True


def open_page(page: Path, opener: Callable[[str], bool] | None = None, variables: Mapping[str, str] | None = None) -> str:
    """Open the file and return a sentence about it, or about how to read it elsewhere."""
    page = page.resolve()
    if has_display(os.environ if variables is None else variables) and (opener or start_browser)(page.as_uri()):
        return f"Opened: {page}"
    fetching = quote(["scp", f"{socket.gethostname()}:{page}", "."])
    return f"No browser can be opened here. The page is one file that needs no network: fetch it with `{fetching}`."


@contextlib.contextmanager
def open_private(address: str, port: int, opener: Callable[[str], bool] = start_browser) -> Iterator[str]:
    """Open the address beside the block, and remove the file after it; yields what to print where there is no display, else ''."""
    if not has_display(os.environ):
        yield NO_DISPLAY.format(port=port)
        return
    with tempfile.TemporaryDirectory(prefix="seatrial-") as folder:
        # Created by mkdtemp, for this user alone.
        page = Path(folder) / "open.html"
        page.write_text(REDIRECT.format(address=html.escape(address)), encoding="utf-8")
        # A browser may stay in the foreground, and the server must answer it meanwhile.
        threading.Thread(target=opener, args=(page.as_uri(),), name="seatrial-browser", daemon=True).start()
        yield ""
