"""The ranks on a terminal: of each group the rank that waits least, for whom the others wait, and the work of all as a sparkline.

Ranks  steps 61–299: median work of each, ms; who waits least is waited for
one_slow  ▁▁█▁  20.4 to 30.2  n 716  rank 2 waits 0.21 ms (vm), rank 0 9.86 ms
alike: no rank waits 5 % of a step longer than another
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from seatrial.records.results import CampaignResults
from seatrial.report.digest.ranks import EVEN_SHARE, Ranks, ranks
from seatrial.report.numbers import short
from seatrial.report.sparkline import sparkline
from seatrial.report.terminal.text import MOST_DETAILED, fitted, hanging, heading, more, names_width, spans, text
from seatrial.wording import named

MOST_DRAWN = 24


def waits(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """One line a group whose ranks wait for one another, and one for all the others of two ranks or more."""
    found = ranks(results)
    uneven = [one for one in found if not one.is_even]
    shown = uneven[:MOST_DETAILED]
    if not found:
        return
    alike = f"no rank waits {100 * EVEN_SHARE:.0f} % of a step longer than another"
    work = "median work of each, ms; who waits least is waited for"
    yield heading("Ranks", f"{spans(one.window for one in shown or found)}: {work if shown else alike}")
    names = names_width([one.group.group for one in shown], width)
    for one in shown:
        yield hanging(f"{fitted(one.group.group, names)}  ", _line(one), "")
    if len(uneven) > len(shown):
        yield more(len(uneven) - len(shown), "groups")
    if shown and len(uneven) < len(found):
        yield text(f"{named([one.group.group for one in found if one.is_even])}: {alike}")


def _line(one: Ranks) -> str:
    work = [rank.work_ms for rank in one.ranks]
    drawn = sparkline(work, min(len(work), MOST_DRAWN))
    least, most = one.waits_least, one.waits_most
    where = f" ({least.where})" if least.where else ""
    ends = f"{short(min(work))} to {short(max(work))}"
    return (
        f"{drawn}  {ends}  n {one.n}  rank {least.rank} waits {short(least.wait_ms)} ms{where}, rank {most.rank} {short(most.wait_ms)} ms"
    )
