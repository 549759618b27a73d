"""summary.pdf by a headless browser, and PNGs of the main charts by vl_convert.

PDF: any browser of the Chromium family opens the page, draws all charts and prints: the one named by SEATRIAL_BROWSER, else the first of a
few names on PATH. It is driven by the DevTools protocol over two pipes, since its own `--print-to-pdf` prints as soon as the page is
loaded, with or without a virtual time budget, and the charts are then missing; playwright, which the tests use with the same browsers, is
about 130 MB with a Node.js driver of its own: too much for one call that prints a page.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.core import files
from seatrial.core.errors import LaunchError, UsageError
from seatrial.core.text import shortened
from seatrial.report.html.data import ChartData, drawn_spec
from seatrial.report.html.page import all_charts

BROWSER_VARIABLE = "SEATRIAL_BROWSER"
BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge", "microsoft-edge-stable",
    "brave-browser", "chrome-headless-shell", "headless_shell",
)  # fmt: skip
PRINT_TIMEOUT_S = 180.0
"""A page of a thousand runs is drawn in seconds, on a machine busy with training more slowly."""
# The page is laid out this wide and then scaled to the paper: at the paper's own width it would get the layout of a phone.
LAYOUT_WIDTH_PX, LAYOUT_HEIGHT_PX = 860, 1200
A4_INCHES = {"paperWidth": 8.27, "paperHeight": 11.69}
# The same as in the page's print styles.
MARGIN_INCHES = 0.55
PX_PER_INCH = 96
# The page itself reports when it is loaded: a load event does not name its page. Without the extra `charts` there is no `window.seatrial`.
DRAW_ALL = """(async () => {
  if (document.readyState !== "complete") await new Promise(done => window.addEventListener("load", done, {once: true}));
  if (window.seatrial) await window.seatrial.drawAll();
  await document.fonts.ready;
  return [...document.querySelectorAll("figure.chart")].filter(one => !["drawn", "empty"].includes(one.dataset.state))
    .map(one => one.dataset.chart || one.id);
})()"""
# Turns off what a new profile would ask or fetch, and what small containers lack.
FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-extensions", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-breakpad", "--mute-audio",
    "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND", "--password-store=basic", "--hide-scrollbars",
)  # fmt: skip
CHUNK_BYTES = 1 << 20
ABOVE_BOTH = 10
LONGEST_ERROR = 300


class BrowserError(LaunchError):
    """The browser ended, gave no answer, or refused."""


def find_browser(variables: Mapping[str, str] | None = None) -> str | None:
    """The browser as an absolute path; None where there is none."""
    variables = os.environ if variables is None else variables
    named = variables.get(BROWSER_VARIABLE, "")
    found = (shutil.which(name, path=variables.get("PATH")) for name in ([named] if named else BROWSERS))
    return next((str(Path(program).absolute()) for program in found if program), None)


def required_browser(variables: Mapping[str, str] | None = None) -> str:
    """`find_browser`; a UsageError names what to install."""
    found = find_browser(variables)
    if found is not None:
        return found
    named = (os.environ if variables is None else variables).get(BROWSER_VARIABLE, "")
    if named:
        raise UsageError(f"{BROWSER_VARIABLE} names '{named}', which is not a program here; name a Chromium, Chrome or Edge, or unset it")
    raise UsageError(
        "--pdf needs a headless browser, and there is no Chromium, Chrome or Edge on PATH: install one (for example `apt install "
        f"chromium`), or set {BROWSER_VARIABLE}=PROGRAM; or open the page anywhere and print it from there"
    )


def write_pdf(page: Path, pdf: Path, browser: str, *, timeout_s: float = PRINT_TIMEOUT_S) -> list[str]:
    """Print `page` into `pdf`; returns the names of charts that could not be drawn."""
    with headless_browser(browser, timeout_s) as tools:
        session = _open_page(tools, page)
        undrawn = _draw_all(tools, session)
        printed = tools.call("Page.printToPDF", session, **_print_options())
    _write_pdf(pdf, printed.get("data"), browser)
    return undrawn


def _open_page(tools: DevTools, page: Path) -> str:
    """Load the page in a new tab; returns its session."""
    target = tools.call("Target.createTarget", url="about:blank").get("targetId", "")
    session = str(tools.call("Target.attachToTarget", targetId=target, flatten=True).get("sessionId", ""))
    size = {"width": LAYOUT_WIDTH_PX, "height": LAYOUT_HEIGHT_PX, "deviceScaleFactor": 1, "mobile": False}
    tools.call("Emulation.setDeviceMetricsOverride", session, **size)
    tools.call("Emulation.setEmulatedMedia", session, features=[{"name": "prefers-color-scheme", "value": "light"}])
    tools.call("Page.enable", session)
    # The empty page of the new tab has fired its load event, too.
    tools.events.clear()
    refused = tools.call("Page.navigate", session, url=page.resolve().as_uri()).get("errorText")
    if refused:
        raise BrowserError(f"the browser could not open {page} ({refused})")
    tools.wait_for("Page.loadEventFired")
    return session


def _draw_all(tools: DevTools, session: str) -> list[str]:
    drawn = tools.call("Runtime.evaluate", session, expression=DRAW_ALL, awaitPromise=True, returnByValue=True)
    if "exceptionDetails" in drawn:
        return ["all (the page's own script failed)"]
    value = drawn.get("result", {}).get("value")
    return [str(name) for name in value] if isinstance(value, list) else []


def _print_options() -> dict[str, Any]:
    usable_px = (A4_INCHES["paperWidth"] - 2 * MARGIN_INCHES) * PX_PER_INCH
    margins = {f"margin{side}": MARGIN_INCHES for side in ("Top", "Bottom", "Left", "Right")}
    scale = round(usable_px / LAYOUT_WIDTH_PX, 3)
    return {**A4_INCHES, **margins, "printBackground": True, "scale": scale, "transferMode": "ReturnAsBase64"}


def _write_pdf(pdf: Path, data: object, browser: str) -> None:
    try:
        content = base64.b64decode(data if isinstance(data, str) else "", validate=True)
    except binascii.Error:
        content = b""
    if not content.startswith(b"%PDF"):
        raise BrowserError(f"{browser} did not print a PDF; print {pdf.with_suffix('.html')} from another browser")
    with files.atomic_write(pdf) as temporary:
        temporary.write_bytes(content)


def browser_command(program: str, profile: Path, *, as_root: bool) -> list[str]:
    """The browser's argv; only for root without its sandbox, which does not work there."""
    return [program, *FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if as_root else []), "about:blank"]


@contextlib.contextmanager
def headless_browser(program: str, timeout_s: float) -> Iterator[DevTools]:
    """Start the browser with its own profile, for `timeout_s` at most; kill it and remove the profile when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="seatrial-browser-"))
    ours: list[int] = []
    try:
        stderr = folder / "stderr.txt"
        pid, *ours = _spawn(browser_command(program, folder / "profile", as_root=os.geteuid() == 0), stderr)
        try:
            yield DevTools(program, ours[0], ours[1], stderr, time.monotonic() + timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
    finally:
        for descriptor in ours:
            os.close(descriptor)
        # Its last processes may still write into the profile.
        shutil.rmtree(folder, ignore_errors=True)


def _spawn(argv: Sequence[str], stderr: Path) -> tuple[int, int, int]:
    """The pid, and the descriptors to read answers from and to write calls to, which are 4 and 3 in the browser."""
    (call_end, calls), (answers, answer_end) = os.pipe(), os.pipe()
    # Above both, so that none is overwritten before it is copied.
    theirs = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, ABOVE_BOTH) for descriptor in (call_end, answer_end)]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(stderr), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, theirs[0], 3),
        (os.POSIX_SPAWN_DUP2, theirs[1], 4),
    ]
    try:
        # Its own process group: our signals do not reach the browser, and all its processes can be killed together.
        return os.posix_spawn(argv[0], list(argv), os.environ, file_actions=actions, setpgroup=0), answers, calls
    except OSError as error:
        os.close(answers)
        os.close(calls)
        raise BrowserError(f"{argv[0]} could not be started ({error.strerror})") from error
    finally:
        for descriptor in (call_end, answer_end, *theirs):
            os.close(descriptor)


class DevTools:
    """A client of the DevTools protocol; each message is JSON and a zero byte."""

    def __init__(self, program: str, read_fd: int, write_fd: int, stderr: Path, deadline_m: float) -> None:
        self._program, self._stderr, self.deadline_m = program, stderr, deadline_m
        self._read_fd, self._write_fd = read_fd, write_fd
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The result of one call."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        try:
            # The few short messages fit into the pipe's buffer.
            os.write(self._write_fd, json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            raise self._ended() from error
        while (answer := self._read(method)).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise BrowserError(f"{self._program} refused {method}: {shortened(str(answer['error']), LONGEST_ERROR)}")
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def wait_for(self, event: str) -> None:
        """Wait until the event has happened; at once where it is among `events`."""
        while not any(message.get("method") == event for message in self.events):
            self.events.append(self._read(event))

    def _read(self, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left_s = self.deadline_m - time.monotonic()
            if left_s <= 0 or not select.select([self._read_fd], [], [], left_s)[0]:
                raise BrowserError(f"{self._program} did not answer {what} in time and was killed{self._browser_error()}")
            chunk = os.read(self._read_fd, CHUNK_BYTES)
            if not chunk:
                raise self._ended()
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        return message if isinstance(message, dict) else {}

    def _ended(self) -> BrowserError:
        return BrowserError(f"{self._program} ended too early{self._browser_error()}")

    def _browser_error(self) -> str:
        """The last line of its stderr that is not about a missing desktop."""
        with contextlib.suppress(OSError):
            lines = self._stderr.read_text(encoding="utf-8", errors="replace").splitlines()
            errors = [line for line in lines if line.strip() and "dbus" not in line]
            return f"; its last error: {shortened(errors[-1], LONGEST_ERROR)}" if errors else ""
        return ""


PNG_CHARTS = ("ranking", "heat", "steps", "step_times", "phases", "timeline")
PNG_WIDTH = 800
PNG_SCALE = 2.0
INK, PAPER = "#222222", "white"
VEGALITE = "6.4"


def write_pngs(data: ChartData, folder: Path) -> list[Path]:
    """Write `ID.png` of each main chart with rows, dark on white, as the page shows it initially; returns the files."""
    import vl_convert

    written = []
    for chart in all_charts(data):
        if chart.id in PNG_CHARTS:
            spec = standalone_spec(drawn_spec(chart, data), chart.title)
            path = folder / f"{chart.id}.png"
            with files.atomic_write(path) as part:
                part.write_bytes(vl_convert.vegalite_to_png(json.dumps(spec), vl_version=VEGALITE, scale=PNG_SCALE))
            written.append(path)
    return written


def standalone_spec(spec: dict[str, Any], title: str) -> dict[str, Any]:
    """The document with the width, title and colours that the page sets."""
    sized = {**spec, "width": PNG_WIDTH} if spec.get("width") == "container" else spec
    heading = {"text": title, "fontSize": 15, "fontWeight": "bold", "offset": 12}
    inked: dict[str, Any] = _with_ink({**sized, "background": PAPER, "title": heading, "padding": 12})
    return inked


def _with_ink(part: Any) -> Any:
    if isinstance(part, dict):
        # Rows are user data: a name may be `currentColor`.
        return {name: value if name in ("datasets", "values") else _with_ink(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_with_ink(value) for value in part]
    return INK if part == "currentColor" else part
