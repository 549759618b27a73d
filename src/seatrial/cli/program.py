"""Parts of every command: one-line errors, exit codes, signals, and output that nothing can break.

In: the action, a function that returns an exit code, and how errors are printed. Out: the end of the process. Used by `seatrial` and by
the drivers of runbooks. With `--json` the last line of stdout is one JSON document, and all else goes to stderr.
rich is imported when a console is needed, so that help and errors come at once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from seatrial.core.errors import INTERRUPTED, STOP_SIGNALS, WRONG_USE, SeatrialError, printable
from seatrial.core.timeouts import has_hung_call

if TYPE_CHECKING:
    from rich.console import Console

Action = Callable[[], int]
PrintError = Callable[[str], None]

# Cleaning up takes milliseconds; what takes longer than this hangs.
CLEANUP_S = 2.0
# Longer than it takes Python to leave a callback whose errors it ignores.
RAISED_AGAIN_S = 0.01
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free space on that disk, then run the same command to resume"),
    **dict.fromkeys((errno.EROFS, errno.EIO, errno.ESTALE), "fix that disk, then run the same command to resume"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "fix its permissions, or use another folder"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (`ulimit -n 1024`) and run the same command again"),
    **dict.fromkeys((errno.EAGAIN,), "allow more processes (`ulimit -u`) or end some, then run the same command again"),
    **dict.fromkeys((errno.ENOMEM,), "end other programs or raise the memory limit, then run the same command again"),
    **dict.fromkeys((errno.ENAMETOOLONG,), "choose a shorter path"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "a file is where a folder is needed: choose another path"),
    **dict.fromkeys((errno.ELOOP,), "remove the link or restore its target, then run the same command again"),
    **dict.fromkeys((errno.EFBIG,), "allow larger files (`ulimit -f unlimited`) and run the same command again"),
}
OUT_OF_MEMORY = "out of memory: end other programs or raise the memory limit, then run the same command again"
FOLDER_GONE = "the working directory is gone or not accessible: change to another one and run the same command again"


def describe_system_error(error: Exception) -> str | None:
    """An error of the machine (a full disk, a missing folder, a limit) in one sentence; None for our own errors, best seen whole."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return f"no thread can be started: {REMEDIES[errno.EAGAIN]}"
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if _is_relative(error) and _is_folder_gone():
        return FOLDER_GONE
    nameless = "the disk" if error.errno in DISK else "the system"
    where = _shown_path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else nameless
    return f"{where}: {error.strerror}; {REMEDIES.get(error.errno, 'fix that and run the same command again')}"


def _shown_path(name: str) -> str:
    """The folder, for a file that is written aside under a temporary name."""
    path = Path(name)
    return str(path.parent) if path.suffix == ".part" and path.name.startswith(".") else name


def _is_relative(error: OSError) -> bool:
    """Whether the error names no file, or one relative to the working directory."""
    return error.filename is None or (isinstance(error.filename, (str, bytes)) and not Path(os.fsdecode(error.filename)).is_absolute())


def _is_folder_gone() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False


class StopSignals:
    """INT, TERM and HUP as one request while the block runs: stop, leave whole files, exit 130.

    The first raises KeyboardInterrupt. Those that follow at once are the same request, so that a second Ctrl-C does not break off the
    cleanup; a later one ends the process immediately. A signal that was ignored before, as HUP is
    under nohup, stays so. While a campaign runs it has handlers of its own (`campaign.interrupts`).

    Python ignores what is raised in the callback of a weak reference or in `__del__`, with a traceback on stderr: an interrupt that came
    there is raised again a moment later.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._first_m: float | None = None
        self._number: int = signal.SIGTERM
        self._is_ignored = self._is_in_hook = self._is_over = False
        self._hook_before: Callable[[sys.UnraisableHookArgs], object] = sys.unraisablehook

    def __enter__(self) -> StopSignals:
        self._hook_before, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        return self

    @property
    def raised(self) -> bool:
        """Whether a signal has interrupted what was being done."""
        return self._first_m is not None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ignore signals from here on: only the end of the process follows, and the exit code is known."""
        self._is_over = True
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        sys.unraisablehook = self._hook_before

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_over:
            return
        now_m = self._monotonic()
        if self._first_m is None or self._is_ignored:
            self._first_m, self._number, self._is_ignored = now_m, number, False
            raise KeyboardInterrupt
        if now_m - self._first_m > CLEANUP_S:
            os._exit(INTERRUPTED)

    def _on_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            self._hook_before(unraisable)
            return
        # Raised here it would be ignored as well.
        self._is_in_hook = True
        try:
            threading.Thread(target=self._raise_again, daemon=True).start()
        except RuntimeError:
            # No thread can be started: the next signal interrupts.
            self._is_ignored = True
        self._is_in_hook = False

    def _raise_again(self) -> None:
        """Runs in a thread, repeatedly if need be: a signal just before a blocking call does not end the call."""
        time.sleep(RAISED_AGAIN_S)
        while self._is_in_hook:
            time.sleep(RAISED_AGAIN_S)
        self._is_ignored = True
        while self._is_ignored and not self._is_over:
            signal.pthread_kill(threading.main_thread().ident or 0, self._number)
            time.sleep(RAISED_AGAIN_S)


def console_for(*, as_json: bool = False, plain: bool = False, soft_wrap: bool = False) -> Console:
    """The console for people; `plain` where nothing printed has markup, `soft_wrap` where lines must not be broken."""
    from rich.console import Console

    return Console(stderr=as_json, emoji=False, markup=not plain, highlight=not plain, soft_wrap=soft_wrap)


def print_first_line(console: Console, line: str) -> None:
    """Print the first line of a verb that starts a plan's programs, once the plan is valid; nothing if it is empty."""
    if line:
        console.print(printable(line), style="dim", markup=False, highlight=False, soft_wrap=True)


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Print formatted lines without markup, since names in them come from users."""
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def write_lines(lines: Sequence[str], *, as_json: bool = False) -> None:
    """Write lines unchanged, tabs included."""
    (sys.stderr if as_json else sys.stdout).write("\n".join(lines) + "\n")


def print_json(document: object, *, ensure_ascii: bool = True) -> None:
    """The JSON line at the end of stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=ensure_ascii) + "\n")


def run_reporting_errors(action: Action, print_error: PrintError) -> int:
    """The exit code of `action`. An error that users can act on is printed by `print_error`; others, and an interrupt, are raised."""
    try:
        return action()
    except SeatrialError as error:
        print_error(str(error))
        return error.exit_code
    except Exception as error:
        text = describe_system_error(error)
        if text is None:
            raise
        print_error(text)
        return WRONG_USE


def exit_with(action: Action, print_error: PrintError | None = None) -> NoReturn:
    """Run `action` and end the process with its code; an interrupt is always 130, and is printed where `print_error` is given."""
    sys.stdout, sys.stderr = SafeStream(sys.stdout), SafeStream(sys.stderr)
    signals, code = StopSignals(), INTERRUPTED
    # Around the block too: a signal may come between the end of the action and that of the block.
    with contextlib.suppress(KeyboardInterrupt), signals:
        try:
            code = action()
        except Exception:
            if not has_hung_call():
                raise
            sys.excepthook(*sys.exc_info())
            code = WRONG_USE
    if signals.raised and print_error is not None:
        print_error("interrupted")
    sys.stdout.flush()
    sys.stderr.flush()
    if has_hung_call() or signals.raised:
        # A driver that hangs holds locks that the usual way out would wait for; and an interpreter interrupted in the middle of an import
        # may end by a signal of its own instead of with the exit code.
        os._exit(INTERRUPTED if signals.raised else code)
    sys.exit(code)


class SafeStream:
    """An output that nothing written to it can break: a reader that has gone (`| head`), a full disk or a closed stream silences it, a
    character it cannot show becomes a question mark. A campaign of hours must not end because its output is not read."""

    def __init__(self, stream: Any) -> None:
        # Python has None where the stream was closed before it started.
        self._stream = stream if stream is not None else io.StringIO()
        if isinstance(self._stream, io.TextIOWrapper):
            self._stream.reconfigure(errors="replace")

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except (OSError, ValueError):
            self._silence()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._silence()

    def _silence(self) -> None:
        # The broken stream keeps what it could not write and would try again when Python ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        self._stream = io.StringIO()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
