"""What was told while a run ran, as cautions of its report. In: alarms.jsonl. Out: one caution for each kind, of its worst alarm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.records.caution import Caution, Number

KINDS = {
    "spike": "Steps became much slower while it ran",
    "silence": "It stood still for a while",
}


def alarm_cautions(run: str, path: Path) -> Iterator[Caution]:
    """Nothing where the run raised no alarm."""
    alarms = list(files.read_json_lines(path))
    for kind, what in KINDS.items():
        own = [alarm for alarm in alarms if alarm.get("kind") == kind]
        if own:
            worst = max(own, key=_ratio)
            numbers: dict[str, Number] = {"alarms": len(own), "ratio": _ratio(worst)}
            yield Caution(kind=kind, subject=run, numbers=numbers, text=f"{what}: {worst.get('text', 'no more is known')} ({path.name}).")


def _ratio(alarm: dict[str, Any]) -> float:
    ratio = alarm.get("ratio")
    return float(ratio) if isinstance(ratio, (int, float)) else 0.0
