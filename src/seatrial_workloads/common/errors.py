"""Errors the user can fix, printed in one line without a traceback; and other errors in one line."""

from __future__ import annotations


class StartupError(ValueError):
    """The training cannot start or resume as requested: what happened, what was expected, what to do."""


class NotFinite(RuntimeError):
    """The loss of a step is not a number: the run has failed."""


def first_line(error: BaseException) -> str:
    """First line of the message, or the type of an error without one."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def summarize_error(error: BaseException) -> str:
    """Type of an error and its first informative line: torch's compiler begins with lines that end in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = next((line for line in lines if not line.endswith(":")), "".join(lines[:1]))
    return f"{type(error).__name__}: {message}".removesuffix(": ")
