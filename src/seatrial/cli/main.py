"""The command `seatrial`: finds the verb, imports only that verb's module, does it, prints what went wrong in one line.

Exit codes: 0 PASS or done, 1 wrong use or an error of ours, 2 FAIL or refused, 3 INCONCLUSIVE, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from seatrial import __version__
from seatrial.cli.program import answered, exit_with
from seatrial.errors import SeatrialError, UsageError, printable
from seatrial.records.exit_codes import INTERRUPTED, WRONG_USE

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
    # A campaign that is interrupted says so itself, with what is left of it; anything else is said to be.
    exit_with(lambda: run_command(words), _say_error)


def run_command(words: Sequence[str]) -> int:
    """Do what the words ask for and return the exit code."""
    try:
        return answered(lambda: _obeyed(words), _say_error)
    except KeyboardInterrupt:
        return INTERRUPTED


def _obeyed(words: Sequence[str]) -> int:
    """The exit code of the verb; a UsageError for words that are none of its own, a KeyboardInterrupt for typer's name for one."""
    verb = next((word for word in words if not word.startswith("-")), "")
    try:
        result = build_app([verb])(args=list(words), prog_name="seatrial", standalone_mode=False)
    except SeatrialError:
        raise
    except Exception as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from error
        message = _usage_message(error)
        if message is None:
            raise
        if not message:
            # Without words typer has shown the help already and has nothing to add.
            return WRONG_USE
        raise UsageError(f"{message}; see `seatrial {verb} --help`" if verb in VERBS else message) from error
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


def _say_error(message: str) -> None:
    print(f"seatrial: {printable(message)}", file=sys.stderr)


if __name__ == "__main__":
    main()
