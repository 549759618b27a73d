"""What the processes of one order print, merged: their pipes and the launcher's rank files go to launcher.log, line by line.

In: the order, and later its started processes. Out: launcher.log, and at the end in words what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from seatrial.agent.merge import MergedLog
from seatrial.agent.processes import Started
from seatrial.agent.rank_files import RankFiles
from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentOrder


class Output:
    """All output of one run on this host."""

    def __init__(self, order: AgentOrder) -> None:
        own = AttemptPaths(Path(order.writes_to))
        self._log = MergedLog(own.launcher_log, own.arrivals)
        self._rank_files = RankFiles(Path(order.rank_logs), self._log.append, first_rank=order.first_rank) if order.rank_logs else None
        self._unmerged_bytes = 0

    @property
    def by_clock(self) -> bool:
        """Whether rank files must be looked at again and again, since no event tells of them."""
        return self._rank_files is not None and self._rank_files.by_clock

    @property
    def events(self) -> int | None:
        """What becomes readable when a rank file has changed; None where nothing does."""
        if self._rank_files is None or self._rank_files.inotify is None:
            return None
        return self._rank_files.inotify.fileno()

    def on_events(self) -> None:
        if self._rank_files:
            self._rank_files.on_change()

    def take(self, started: Started) -> None:
        """What came from one process's pipe."""
        self._log.append(started.take())

    def look(self) -> None:
        """What is done by the clock: the stamp of the last bytes, and rank files that no event spoke of."""
        self._log.stamp()
        if self._rank_files:
            self._rank_files.look()

    def drain(self, processes: Iterable[Started], longest_s: float) -> None:
        """Take in what is there, for a while at most. Rank files first: a rank's last words stand before the launcher's summary of them."""
        if self._rank_files:
            self._rank_files.drain(longest_s)
        for started in processes:
            started.drain(self._log.append, longest_s)

    def finish(self, processes: Iterable[Started]) -> None:
        """Unfinished lines too; nothing can come any more."""
        if self._rank_files:
            self._unmerged_bytes = self._rank_files.finish()
        for started in processes:
            self._log.append(started.close())
        self._log.close()

    def lacks(self) -> list[str]:
        """What launcher.log does not have, in words."""
        words = []
        if self._log.lost_bytes:
            words.append(f"launcher.log lacks {self._log.lost_bytes} bytes that could not be written")
        if self._unmerged_bytes:
            words.append(f"launcher.log lacks the last {self._unmerged_bytes} bytes of the ranks' own files, which have them")
        return words
