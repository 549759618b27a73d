"""What was told while a run ran, as cautions of its report. In: alarms.jsonl. Out: one caution for each kind, of its worst alarm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.collect.file_parts import LONGEST_LINE_BYTES, pieces
from seatrial.collect.stored import unusable
from seatrial.files import json_object
from seatrial.records.caution import Caution, Number
from seatrial.units import MIB
from seatrial.wording import were

KINDS = {
    "spike": "Steps became much slower while it ran",
    "silence": "It stood still for a while",
}
MOST_BYTES = 16 * MIB
LONGEST_TEXT = 300


def alarm_cautions(run: str, path: Path) -> Iterator[Caution]:
    """Nothing where the run raised no alarm."""
    try:
        told = [(piece.text, json_object(piece.text)) for piece in pieces(path, MOST_BYTES, LONGEST_LINE_BYTES)]
    except FileNotFoundError:
        return
    except OSError as error:
        yield unusable(path, error.strerror or "it cannot be read", run, "alarms of this run are not known")
        return
    rubbish = sum(alarm is None and not text.isspace() for text, alarm in told)
    if rubbish:
        passed = were(rubbish, "line")
        yield Caution(
            kind="bad_rows", subject=run, numbers={"rows": rubbish}, text=f"In {path.name} {passed} passed over: torn or no alarm."
        )
    for kind, what in KINDS.items():
        own = [alarm for _, alarm in told if alarm is not None and alarm.get("kind") == kind]
        if own:
            worst = max(own, key=_ratio)
            numbers: dict[str, Number] = {"alarms": len(own), "ratio": _ratio(worst)}
            yield Caution(kind=kind, subject=run, numbers=numbers, text=f"{what}: {_text(worst)} ({path.name}).")


def _text(alarm: dict[str, Any]) -> str:
    text = alarm.get("text")
    return " ".join(text[:LONGEST_TEXT].split()) if isinstance(text, str) and text else "no more is known"


def _ratio(alarm: dict[str, Any]) -> float:
    """0 where it is none that can be."""
    ratio = alarm.get("ratio")
    is_number = isinstance(ratio, (int, float)) and not isinstance(ratio, bool) and 0 <= ratio < 1e9
    return float(ratio) if is_number and math.isfinite(float(ratio)) else 0.0  # type: ignore[arg-type]
