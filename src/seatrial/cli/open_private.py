"""`watch --web --open`: the browser is told the address without anybody else on this host seeing its token.

In: the address. Out: a browser that goes there. What a process is started with can be read by every user of the host, so the browser is
given a file that only this user can read, and which leads on to the address.
"""

from __future__ import annotations

import contextlib
import html
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from seatrial.cli.open_page import ask_for_browser, has_display

NO_DISPLAY = "No browser can be opened here: open the address above; from another machine, through `ssh -L {port}:127.0.0.1:{port} HOST`."
LEADS_ON = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}"><title>Seatrial</title>\n'


@contextlib.contextmanager
def opened(address: str, port: int, ask: Callable[[str], bool] = ask_for_browser) -> Iterator[str]:
    """Ask for a browser beside the block, and take the file away after it; what is to be said where there is no display, else ''."""
    if not has_display(os.environ):
        yield NO_DISPLAY.format(port=port)
        return
    with tempfile.TemporaryDirectory(prefix="seatrial-") as folder:
        # Made by mkdtemp, for this user alone.
        page = Path(folder) / "open.html"
        page.write_text(LEADS_ON.format(address=html.escape(address)), encoding="utf-8")
        # A browser may stay in the foreground, and the server must answer it meanwhile.
        threading.Thread(target=ask, args=(page.as_uri(),), name="seatrial-browser", daemon=True).start()
        yield ""
