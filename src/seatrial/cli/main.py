"""The command `seatrial`: finds the verb, imports only that verb's module, turns errors into one line and an exit code.

Exit codes: 0 PASS or done, 1 wrong use or an error of ours, 2 FAIL or refused, 3 INCONCLUSIVE, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import typer

from seatrial import __version__
from seatrial.cli.machine_trouble import machine_trouble
from seatrial.cli.stop_signals import INTERRUPTED, StopSignals
from seatrial.errors import SeatrialError, printable
from seatrial.machine.patience import is_stuck

# Verb → what `seatrial --help` says of it. A verb's module is seatrial.cli.VERB and has `register(app)`.
VERBS = {
    "run": "Run a plan: every group, every repeat, then rank and judge. The same command again resumes.",
    "sweep": "Sweep a command over settings without writing a plan.",
    "init": "Write a plan from a command that works.",
    "plan": "Look at a plan before running it: matrix, commands, time; or its JSON Schema.",
    "prepare": "Prepare a dataset for training, check a prepared one, or make a small one up.",
    "doctor": "Look at this host, or at what a plan needs of it, for what would spoil a campaign.",
    "report": "Make every table and report of a campaign again from what is on disk.",
    "why": "Show what a statement of a verdict rests on: files, windows, n; and make it again from the raw files.",
    "compare": "Compare groups, campaigns or rows of history: FASTER, SLOWER, SAME or AMBIGUOUS, with interval and loss; or --scaling.",
    "history": "Keep groups of campaigns, and pin those that later ones are compared with.",
    "diff": "Show what differs between two runs: settings, environment, versions, hardware, code.",
    "export": "Export any table of a campaign as CSV or Parquet; without a table, list them.",
    "watch": "Look on, from another terminal, while a campaign runs.",
    "logs": "Print a run's output, of all ranks or of one, also while it runs.",
    "stop": "Ask a running campaign to stop; what is finished stays.",
}
EXAMPLES = "seatrial sweep -P bs=8,16 --repeats 3 -- torchrun --nproc_per_node 2 train.py --bs {bs}\n\nseatrial run plans/tiny-lm-demo.yaml"
WRONG_USE = 1


class Unbreakable:
    """An output that nothing written to it can break: a reader that has gone (`| head`), a full disk or a closed stream silences it, a
    character it cannot show becomes a question mark. A campaign of hours must not end because nobody listens."""

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


def build_app(verbs: Sequence[str]) -> typer.Typer:
    """The command line with `verbs` in full and every other verb as its line of help."""
    app = typer.Typer(
        help="Sea trials for distributed training: sweep a job over settings, watch every rank, get a verdict that can be defended.",
        no_args_is_help=True,
        add_completion=False,
        epilog=EXAMPLES,
    )
    app.callback()(_root)
    for verb, help_text in VERBS.items():
        if verb in verbs:
            importlib.import_module(f"seatrial.cli.{verb}").register(app)
        else:
            app.command(verb, help=help_text)(_not_loaded)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `seatrial` program."""
    words = list(sys.argv[1:] if argv is None else argv)
    sys.stdout, sys.stderr = Unbreakable(sys.stdout), Unbreakable(sys.stderr)
    with StopSignals() as signals:
        try:
            code = run_command(words)
        except Exception:
            if not is_stuck():
                raise
            sys.excepthook(*sys.exc_info())
            code = WRONG_USE
    if signals.raised:
        # A campaign that is interrupted says so itself, with what is left of it.
        code = _fail("interrupted", INTERRUPTED)
    end_process(code, at_once=signals.raised)


def end_process(code: int, *, at_once: bool) -> NoReturn:
    """End with this exit code; `at_once` where a signal broke something off."""
    sys.stdout.flush()
    sys.stderr.flush()
    if is_stuck() or at_once:
        # A driver that hangs holds locks that the usual way out would wait for; and an interpreter that was broken off in the middle of
        # an import may end by a signal of its own instead of with the exit code.
        os._exit(code)
    sys.exit(code)


def run_command(words: Sequence[str]) -> int:
    """Do what the words ask for and return the exit code."""
    verb = next((word for word in words if not word.startswith("-")), "")
    try:
        result = build_app([verb])(args=list(words), prog_name="seatrial", standalone_mode=False)
    except SeatrialError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if _was_interrupted(error):
            return INTERRUPTED
        trouble = machine_trouble(error)
        if trouble:
            return _fail(trouble, WRONG_USE)
        message = _usage_message(error)
        if message is None:
            raise
        # Without words typer has shown the help already and has nothing to add.
        return _fail(f"{message}; see `seatrial {verb} --help`" if verb in VERBS else message, WRONG_USE) if message else WRONG_USE
    return result if isinstance(result, int) else 0


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True, callback=lambda on: _version(on)),
) -> None:
    pass


def _version(asked: bool) -> None:
    if asked:
        print(f"seatrial {__version__}")
        raise typer.Exit


def _not_loaded() -> None:
    raise AssertionError("a verb's stub was called: main chose another verb than typer did")


def _usage_message(error: Exception) -> str | None:
    """What typer says of wrong use; None for anything else. (Its exception classes move between versions: the method does not.)"""
    message: Callable[[], Any] | None = getattr(error, "format_message", None)
    return str(message()).rstrip(".") if message else None


def _was_interrupted(error: Exception) -> bool:
    """typer turns a KeyboardInterrupt into an exception of its own."""
    return isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)


def _fail(message: str, code: int) -> int:
    print(f"seatrial: {printable(message)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
