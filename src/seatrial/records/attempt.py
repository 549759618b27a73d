"""One attempt as it lies on disk: what it was to do, how it ended, on what machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.caution import Caution
from seatrial.records.command import Provenance
from seatrial.records.nodes import NodesRecord
from seatrial.records.outcome import RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.records.telemetry import TelemetryAccount


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Read back by collect/ from attempt-N/."""

    folder: str
    number: int
    spec: RunSpec
    outcome: RunOutcome | None
    """None while it runs, or when the harness died before it could write the outcome."""
    provenance: Provenance
    telemetry: TelemetryAccount | None = None
    """What the samplers say of themselves; None where none ran."""
    current: bool = True
    """The newest attempt with the hash that a plan of this folder asks for; others stay in the manifest and out of statistics."""
    cautions: tuple[Caution, ...] = ()
    nodes: NodesRecord | None = None
    """Its hosts; None for a run on one, and where nodes.json was not written."""
    node_telemetry: dict[str, TelemetryAccount] = field(default_factory=dict)
    """By host, what the samplers of the others say of themselves: `telemetry` is that of node 0."""
