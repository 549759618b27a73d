"""Numbers, names and small charts as text: four significant digits, single lines, sparklines, interval bars and stacked bars of
characters."""

from __future__ import annotations

import math
import re
import string
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seatrial.records.measure import Estimate

NONE = "–"


def figure(value: float | None) -> str:
    """'1,270', '84.21', '0.04211': four significant digits, thousands separated."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 9)}f}"


def short_figure(value: float | None) -> str:
    """'1,270', '84.2', '0.42', '<0.01': fewer digits, for charts and narrow tables."""
    if value is None or not math.isfinite(value):
        return NONE
    if 0 < abs(value) < 0.01:
        return "<0.01" if value > 0 else ">-0.01"
    decimals = 0 if abs(value) >= 100 or value == 0 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{decimals}f}"


def ratio(value: float | None) -> str:
    return NONE if value is None or not math.isfinite(value) else f"{value:.3f}"


def margin(estimate: Estimate | None) -> str:
    """Half the width of the interval on the log scale: '±2.1 %', '± over 100 %'; '' without an interval."""
    if estimate is None or not estimate.low or not estimate.high:
        return ""
    per_cent = 100 * (math.sqrt(estimate.high / estimate.low) - 1)
    if per_cent >= 100:
        # Two repeats that disagree: the exact width of such an interval is of no use.
        return "± over 100 %"
    return f"±{per_cent:.1f} %" if per_cent < 10 else f"±{per_cent:,.0f} %"


def interval(estimate: Estimate | None) -> str:
    """'1,257 to 1,283'; '–' without an interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return NONE
    return f"{figure(estimate.low)} to {figure(estimate.high)}"


def utc_time(seconds: float) -> str:
    """UTC in ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def finite_number(value: object) -> float | None:
    """The value where it is a finite number; None for text, booleans, NaN and infinities."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def axis_level(value: object) -> str:
    """A value of an axis; booleans as plans and charts write them."""
    return NONE if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# U+009B begins an escape sequence, too. Bidirectional marks would reverse what follows: names read backwards, figures move to another
# column.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LINE_END = re.compile(r"[\r\n\t\u2028\u2029]")


def strip_ansi(text: str) -> str:
    """`text` without ANSI escape sequences."""
    return _COLOUR.sub("", text)


def one_line(text: str) -> str:
    """`text` without ANSI escapes, control characters and bidirectional marks; line breaks become spaces."""
    return _LINE_END.sub(" ", _CONTROL.sub("", strip_ansi(text)))


def plain_line(text: str) -> str:
    """`text` in one line for any file: what UTF-8 cannot encode is escaped."""
    return text if text.isascii() and text.isprintable() else one_line(text).encode("utf-8", "backslashreplace").decode()


def can_encode(text: str, encoding: str) -> bool:
    """Whether the encoding has every character of the text."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "
# One of the eight levels is then about half a per cent; smaller differences do not matter.
MIN_SPAN_RATIO = 0.05


def sparkline(values: Sequence[float | None], columns: int, *, low: float | None = None, high: float | None = None) -> str:
    """The values in `columns` characters; `low` and `high` are the ends of the scale, by default those of the values."""
    shown = thinned(values, columns)
    known = [value for value in shown if value is not None]
    if not known:
        return GAP * columns
    bottom, top = _scale(min(known) if low is None else low, max(known) if high is None else high)
    return "".join(GAP if value is None else _block(value, bottom, top) for value in shown).ljust(columns, GAP)


def thinned(values: Sequence[float | None], columns: int) -> list[float | None]:
    """At most `columns` values: the lowest and the highest of each share, None where it has no number."""
    known = [value if value is not None and math.isfinite(value) else None for value in values]
    if len(known) <= columns or columns < 2:
        return known[: max(columns, 0)]
    shares = columns // 2
    edges = [share * len(known) // shares for share in range(shares + 1)]
    return [value for first, end in pairwise(edges) for value in extremes(known[first:end])]


def extremes(values: Sequence[float | None]) -> tuple[float, float] | tuple[None, None]:
    """The lowest and the highest, in the order of their first occurrence."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    low, high = min(known), max(known)
    return (low, high) if known.index(low) <= known.index(high) else (high, low)


def _scale(low: float, high: float) -> tuple[float, float]:
    """Ends of a scale at least MIN_SPAN_RATIO wide, so that values that hardly differ have one height."""
    centre = (low + high) / 2
    reach = max(high - low, abs(centre) * MIN_SPAN_RATIO) / 2
    return (centre - reach, centre + reach) if reach else (low - 1.0, high + 1.0)


def _block(value: float, bottom: float, top: float) -> str:
    level = round((value - bottom) / (top - bottom) * (len(BLOCKS) - 1))
    return BLOCKS[min(max(level, 0), len(BLOCKS) - 1)]


# The interval of two runs that disagree may be many times as wide as the difference of the means, and would hide it.
MAX_MARGIN_RATIO = 1.0
SMALLEST_SPAN_RATIO = 0.02


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The values at the left and the right end of a line."""

    low: float
    high: float

    def column(self, value: float, columns: int) -> int:
        """The column of `value` in a line of `columns`."""
        share = (value - self.low) / (self.high - self.low)
        return min(max(round(share * (columns - 1)), 0), columns - 1)


def common_scale(estimates: Sequence[Estimate | None]) -> Scale | None:
    """A scale with every mean, and with every interval as far as the means stay distinguishable; None without estimates."""
    known = [estimate for estimate in estimates if estimate]
    if not known:
        return None
    means = [estimate.mean for estimate in known]
    reach = max(max(means) - min(means), max(means) * SMALLEST_SPAN_RATIO) * MAX_MARGIN_RATIO
    low = max(min(estimate.low or estimate.mean for estimate in known), min(means) - reach)
    high = min(max(estimate.high or estimate.mean for estimate in known), max(means) + reach)
    if high <= low:
        low, high = low - reach / 2, high + reach / 2
    return Scale(low=low, high=high)


def interval_bar(estimate: Estimate | None, scale: Scale, columns: int) -> str:
    """The interval as a line of exactly `columns` characters."""
    line = [" "] * columns
    if estimate is None:
        return "".join(line)
    if estimate.low is not None and estimate.high is not None:
        first, last = scale.column(estimate.low, columns), scale.column(estimate.high, columns)
        line[first : last + 1] = "─" * (last - first + 1)
        line[first] = "├" if estimate.low >= scale.low else "◂"
        line[last] = "┤" if estimate.high <= scale.high else "▸"
    line[scale.column(estimate.mean, columns)] = "●"
    return "".join(line)


OTHER = "other"
OTHER_LETTER = "."


def bar_letters(names: Iterable[str]) -> dict[str, str]:
    """A letter per name: its first free one, else the next of the alphabet, else a digit, else a question mark."""
    taken: dict[str, str] = {}
    for name in dict.fromkeys(names):
        own = (letter for letter in name.lower() if letter in string.ascii_lowercase)
        free = (letter for letter in (*own, *string.ascii_letters, *string.digits) if letter not in taken.values())
        taken[name] = OTHER_LETTER if name == OTHER else next(free, "?")
    return taken


def stacked_bar(parts: Mapping[str, float], letters: Mapping[str, str], columns: int) -> str:
    """The parts as `columns` characters, in the order of `letters`; blank without parts."""
    known = {name: parts[name] for name in letters if name in parts and math.isfinite(parts[name]) and parts[name] > 0}
    if not known or columns < 1:
        return " " * max(columns, 0)
    return "".join(letters[name] * length for name, length in _lengths(known, columns).items())


def bar_legend(letters: Mapping[str, str]) -> dict[str, str]:
    """Name → its entry: `d data wait`, `f fwd`, …"""
    return {name: f"{letter} {name.replace('_', ' ')}" for name, letter in letters.items()}


def _lengths(parts: Mapping[str, float], columns: int) -> dict[str, int]:
    """Numbers of characters that add up to `columns`: the rest of rounding goes to the parts that lost most, and each has at least one."""
    total = sum(parts.values())
    exact = {name: value / total * columns for name, value in parts.items()}
    whole = {name: max(math.floor(value), 1) for name, value in exact.items()}
    while sum(whole.values()) < columns:
        whole[max(whole, key=lambda name: exact[name] - whole[name])] += 1
    while sum(whole.values()) > columns:
        # With more parts than columns some get none; otherwise the largest shrinks.
        whole[max(whole, key=lambda name: (whole[name], whole[name] - exact[name]))] -= 1
    return whole
