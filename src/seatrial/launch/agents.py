"""What watches over a run, as the campaign sees it: one agent on this machine (AgentProcess), or one on every host (AgentGroup)."""

from __future__ import annotations

from typing import Protocol

from seatrial.records.command import AgentReport
from seatrial.records.nodes import NodeRecord


class Agents(Protocol):
    """From the start to the last report, `gone` or `lost`."""

    @property
    def alive(self) -> bool:
        """Whether more reports may come."""

    def poll(self) -> list[AgentReport]:
        """Reports that have come, without waiting."""

    def wait(self, timeout_s: float) -> list[AgentReport]:
        """Reports as soon as there are any; [] when the time is over, or at once when no more can come."""

    def stacks(self) -> None:
        """Ask for the stacks of every Python process of the run; one `stacks` report says when they are there."""

    def stop(self) -> None:
        """Ask for TERM now and KILL when the order's `term_s` are over."""

    def kill(self) -> None:
        """Ask for KILL at once."""

    def close(self) -> list[AgentReport]:
        """Let go: what still runs is killed. The reports that came meanwhile."""

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every host as it was seen; () for a run on this machine alone."""
