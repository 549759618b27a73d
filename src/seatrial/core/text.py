"""Text for people: durations, sizes, numbers and lists of names as text, and durations and units back.

'2h' ↔ 7200.0, 1536 → '1.5 KiB', 3 → '3 runs', ['a', …] → 'a, b and 3 more'.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from seatrial.core.errors import UsageError

# Sentences name this many runs, groups or hosts; tables and JSON have them all.
MAX_NAMED = 4
# And this many in the middle of a sentence.
MAX_IN_PASSING = 3
# Digits that suffice to distinguish two hashes.
SHORT_HASH_DIGITS = 12


def count(number: int, noun: str) -> str:
    """'1 run', '3 runs'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count_were(number: int, noun: str) -> str:
    """'1 run was', '3 runs were'."""
    return f"{count(number, noun)} {'was' if number == 1 else 'were'}"


def join_names(names: Sequence[str], most: int = MAX_NAMED, separator: str = ", ") -> str:
    """'a, b and 3 more'."""
    more = len(names) - most
    return f"{separator.join(names[:most])} and {more} more" if more > 0 else separator.join(names)


def shortened(text: str, most: int) -> str:
    """At most `most` characters; `…` is the last of a text that is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
KIB_PER_MIB = 1024
MIB = 1 << 20
GIB = 1 << 30
"""In bytes."""
LONGEST_S = 100 * 366 * 86400.0
UNIT_KINDS: tuple[dict[str, int], ...] = (
    {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000},
    {"MiB": 1, "GiB": 1_024},
    {"MiB/h": 1, "MiB/min": 60, "GiB/h": 1_024},
    # `pct`, since a YAML value cannot begin with a bare %.
    {"%": 1, "pct": 1, "ratio": 100},
)
"""Per kind: unit → multiple of the smallest unit, in whole numbers, so that nothing is rounded before the end."""
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d)")


def parse_duration_s(text: str) -> float:
    """Seconds in '90', '90s', '1.5h', '1h30m'."""
    compact = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", compact):
        seconds = float(compact)
    elif not compact or _DURATION_PART.sub("", compact).strip():
        raise UsageError(f"'{text}' is not a duration: write for example 90s, 15m, 2h or 1h30m")
    else:
        seconds = sum(float(number) * SECONDS_PER_UNIT[unit] for number, unit in _DURATION_PART.findall(compact))
    if seconds > LONGEST_S:
        raise UsageError(f"'{text[:40]}' is longer than a hundred years: write for example 90s, 15m, 2h or 1h30m")
    return seconds


def parse_limit_s(text: str, option: str) -> float:
    """Seconds of a limit, which must be positive; an error names the option."""
    try:
        seconds = parse_duration_s(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{option} {text}: a limit must be positive; give for example 15m, or leave it out")
    return seconds


def format_duration(seconds: float | None) -> str:
    """'850 ms', '12.3 s', '4m 05s', '2h 03m'; '–' for no number."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest_s:02d}s"
    hours, rest_m = divmod(minutes, 60)
    return f"{hours}h {rest_m:02d}m"


def format_estimate(estimate_s: float | None, low_s: float | None, high_s: float | None) -> str:
    """'3m 05s (2m 50s–3m 30s)'; without the interval where it is not known or its ends read the same."""
    low, high = format_duration(low_s), format_duration(high_s)
    has_interval = low_s is not None and high_s is not None and low != high
    return f"{format_duration(estimate_s)} ({low}–{high})" if has_interval else format_duration(estimate_s)


def format_hms(seconds: float) -> str:
    """HH:MM:SS with seconds rounded up, as stage 1's trainer prints an ETA."""
    whole = math.ceil(max(seconds, 0.0))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def format_bytes(count: float) -> str:
    """Binary units: '512 B', '1.5 KiB', '3.0 GiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_number(value: float) -> str:
    """Four significant digits, thousands separated, no trailing zeros: '12,346', '84.21', '0.41'."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = min(max(0, 3 - math.floor(math.log10(abs(value)))), 9)
    shown = f"{value:,.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def convert_unit(value: float, written: str, unit: str) -> float | None:
    """A value in another unit; None where the two are not of one kind."""
    if written == unit:
        return value
    kind = next((kind for kind in UNIT_KINDS if written in kind and unit in kind), None)
    return None if kind is None else value * kind[written] / kind[unit]
