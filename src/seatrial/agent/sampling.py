"""Telemetry as the agent has it: started behind the processes, stopped with the launcher, and whatever goes wrong with it costs no run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seatrial.agent.reports import note
from seatrial.records.command import AgentOrder

if TYPE_CHECKING:
    from seatrial.observe.telemetry import Telemetry


class Sampling:
    """Nothing, until it is started."""

    def __init__(self) -> None:
        self._telemetry: Telemetry | None = None

    @property
    def stuck(self) -> bool:
        """Whether a thread hangs in a call that may never return."""
        return self._telemetry is not None and self._telemetry.stuck

    def start(self, order: AgentOrder, caller: Mapping[str, str]) -> None:
        try:
            # Imported here, so that the processes do not wait for what they do not need.
            from seatrial.observe.telemetry import start_telemetry

            self._telemetry = start_telemetry(order, caller)
        except Exception as error:
            note(f"telemetry did not start ({type(error).__name__}: {error}); the run goes on without it")

    def stop(self) -> None:
        if self._telemetry:
            self._telemetry.stop()

    def finish(self) -> None:
        """Whatever goes wrong here must not cost the last report."""
        if self._telemetry is None:
            return
        try:
            self._telemetry.finish()
        except Exception as error:
            note(f"telemetry.json was not written ({type(error).__name__}: {error}); the run's figures stand without it")
