"""The command `seatrial`: finds the verb, imports only that verb's module, runs it, prints an error in one line.

Exit codes: 0 PASS or done, 1 wrong use or our own error, 2 FAIL or refused, 3 INCONCLUSIVE, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from seatrial import __version__
from seatrial.cli.program import exit_with, run_reporting_errors
from seatrial.core.errors import INTERRUPTED, WRONG_USE, SeatrialError, UsageError, printable

# Verb → its line in `seatrial --help`.
VERBS = {
    "run": "Run a plan: every group, every repeat, then rank and judge. The same command again resumes.",
    "sweep": "Sweep a command over settings without writing a plan.",
    "init": "Write a plan from a command that works.",
    "plan": "Look at a plan before running it: matrix, commands, time; or its JSON Schema. List and copy the bundled plans.",
    "runbook": "Write a procedure's folder with its entry points and plans.",
    "prepare": "Prepare a dataset for training, check a prepared one, or generate a small synthetic one.",
    "diagnose": "Read the logs of any job, no campaign needed: how it ended, the first cause with its rank, what to do, steps and losses.",
    "doctor": "Check this host, and what a plan needs of it, for what would break a campaign.",
    "report": "Recompute every table and report of a campaign from what is on disk.",
    "why": "Show what a finding of a verdict rests on: files, windows, n; and recompute it from the raw files.",
    "compare": "Compare groups, campaigns or rows of history: FASTER, SLOWER, SAME or AMBIGUOUS, with interval and loss; or --scaling.",
    "history": "Keep groups of campaigns, and pin baselines for later comparisons.",
    "diff": "Show what differs between two runs: settings, environment, versions, hardware, code.",
    "export": "Export any table of a campaign as CSV or Parquet; without a table, list them.",
    "watch": "Watch a running campaign from another terminal or a browser.",
    "logs": "Print a run's output, of all ranks or of one, also while it runs.",
    "stop": "Ask a running campaign to stop; what is finished stays.",
}
# Verb → module of seatrial.cli that holds it, if not its own. The module has a function or a typer.Typer of the verb's name,
# and its examples in EXAMPLES.
MODULES = {"init": "sweep", "diff": "compare", "history": "compare", "why": "report", "logs": "watch", "stop": "watch"}
EXAMPLES = "seatrial sweep -P bs=8,16 --repeats 3 -- torchrun --nproc_per_node 2 train.py --bs {bs}\n\nseatrial run plans/tiny-lm-demo.yaml"


def build_app(verbs: Sequence[str]) -> typer.Typer:
    """The command line with `verbs` in full and every other verb as a line of help."""
    app = typer.Typer(
        help="Sea trials for distributed training: sweep a job over settings, watch every rank, get a verdict that can be defended.",
        no_args_is_help=True,
        add_completion=False,
        epilog=EXAMPLES,
    )
    app.callback()(_root)
    for verb, help_text in VERBS.items():
        if verb in verbs:
            _add(app, verb)
        else:
            app.command(verb, help=help_text)(_not_loaded)
    return app


def _add(app: typer.Typer, verb: str) -> None:
    module = importlib.import_module(f"seatrial.cli.{MODULES.get(verb, verb)}")
    command, examples = getattr(module, verb), module.EXAMPLES[verb]
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=verb, help=VERBS[verb], epilog=examples)
    else:
        app.command(verb, epilog=examples)(command)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `seatrial` program."""
    args = list(sys.argv[1:] if argv is None else argv)
    exit_with(lambda: run_command(args), _print_error)


def run_command(args: Sequence[str]) -> int:
    """Run the verb and return the exit code."""
    try:
        return run_reporting_errors(lambda: _run_verb(args), _print_error)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run_verb(args: Sequence[str]) -> int:
    """The exit code of the verb; typer's errors and its name for an interrupt become a UsageError and a KeyboardInterrupt."""
    verb = next((arg for arg in args if not arg.startswith("-")), "")
    try:
        result = build_app([verb])(args=list(args), prog_name="seatrial", standalone_mode=False)
    except SeatrialError:
        raise
    except Exception as error:
        # typer turns a KeyboardInterrupt into an exception of its own.
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        message = _usage_message(error)
        if message is None:
            raise
        if not message:
            # Without arguments typer has shown the help already and has nothing to add.
            return WRONG_USE
        raise UsageError(f"{message}; see `seatrial {verb} --help`" if verb in VERBS else message) from error
    return result if isinstance(result, int) else 0


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True, callback=lambda on: _version(on)),
) -> None:
    pass


def _version(is_set: bool) -> None:
    if is_set:
        print(f"seatrial {__version__}")
        raise typer.Exit


def _not_loaded() -> None:
    raise AssertionError("a verb's stub was called: main chose another verb than typer did")


def _usage_message(error: Exception) -> str | None:
    """typer's message about wrong use; None for anything else. (Its exception classes move between versions: the method does not.)"""
    message: Callable[[], Any] | None = getattr(error, "format_message", None)
    return str(message()).rstrip(".") if message else None


def _print_error(message: str) -> None:
    print(f"seatrial: {printable(message)}", file=sys.stderr)


if __name__ == "__main__":
    main()
