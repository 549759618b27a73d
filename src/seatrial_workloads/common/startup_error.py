"""What the user can mend: told in one line, without a traceback."""

from __future__ import annotations


class StartupError(ValueError):
    """A training that cannot start, or go on, as it was asked to: what happened, what was expected, what to do."""
