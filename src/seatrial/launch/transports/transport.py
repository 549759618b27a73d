"""What all transports have in common.

In: `Start`s, one a host: the words to run there and where to write what came of it. Out: `Ended`s, the hosts whose starting is over
already, with how it ended in words. An agent stays in front as long as it lives, so before it has called that is bad news.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Start:
    """One agent that is to be started."""

    host: str
    words: tuple[str, ...]
    log: Path
    """Gets what the transport and the agent say: nodes/<host>/start.log."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the starting on one host came to its end."""

    words: str
    """`ssh ended with exit code 255`."""
    returncode: int | None = None


class Errand(Protocol):
    """Something that was started on a host beside its agent, and ends by itself."""

    def ended(self) -> Ended | None:
        """None while it may still be under way; who cannot know says so for ever."""

    def drop(self) -> None:
        """Nobody waits for it any more."""


class Transport(Protocol):
    """One way of starting agents."""

    @property
    def kind(self) -> str: ...

    def start(self, starts: Sequence[Start]) -> None:
        """Start them all, without waiting for any."""

    def ended(self) -> dict[str, Ended]:
        """Hosts whose starting is over."""

    def errand(self, start: Start) -> Errand:
        """Run these words on a host too, whose agent is lost. LaunchError where that cannot even be tried."""

    def close(self, after_run: bool = True) -> None:
        """End what is still there of the starting itself; agents end by their lines. `after_run`: some may have processes to end."""


def ending(program: str, returncode: int) -> Ended:
    """In words."""
    if returncode >= 0:
        return Ended(words=f"{program} ended with exit code {returncode}", returncode=returncode)
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = str(-returncode)
    return Ended(words=f"{program} was killed by signal {-returncode} ({name})", returncode=returncode)
