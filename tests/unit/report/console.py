"""One section of the terminal's report as lines of text, and a campaign on two hosts."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable

from rich.console import Console, RenderableType

from seatrial.records.launch import NodeRecord, NodesRecord
from seatrial.records.results import CampaignResults
from tests.unit.report import factory


def lines(section: Iterable[RenderableType], width: int = 100) -> list[str]:
    """What it prints at that width, without colour and without blanks at the ends of lines."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    for part in section:
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in str(text).splitlines()]


def on_hosts(*codes: int | None) -> CampaignResults:
    """The factory's campaign, whose first counted run ran on so many hosts, each with its exit code."""
    nodes = tuple(
        NodeRecord(name=f"node{at}", node_rank=at, first_rank=2 * at, ranks=2, returncode=code, ended="exited", clock_offset_s=0.001 * at)
        for at, code in enumerate(codes)
    )
    found = factory.results()
    at = next(place for place, run in enumerate(found.runs) if run.attempt.spec.run == "mb16_nw2_r1")
    attempt = dataclasses.replace(found.runs[at].attempt, nodes=NodesRecord(nodes=nodes, via="ssh"))
    run = dataclasses.replace(found.runs[at], attempt=attempt)
    return dataclasses.replace(found, runs=(*found.runs[:at], run, *found.runs[at + 1 :]))
