"""The hosts of runs on many, as every report tells them.

In: CampaignResults. Out: one `RunHosts` for every current run on more than one host, a sentence for each, and rows of a table. Of a run on
many hosts the table has the odd ones only (not ended well, a clock that was off, something to say), and the sentence counts the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.records.measure import HostMeasure
from seatrial.records.nodes import SKEW_S, NodeRecord
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.labels import labels_of
from seatrial.report.numbers import NONE, short
from seatrial.units import format_duration
from seatrial.wording import named

ALL_SHOWN = 8
"""Hosts of a run that are all shown; of more, the odd ones."""
MOST_RUNS = 12
COLUMNS = ("run", "host", "ranks", "clock offset", "exit code", "ended", "CPU %", "GPU %", "tree peak MiB", "net in MiB/s", "net out MiB/s")
RIGHT = (4, 6, 7, 8, 9, 10)
EXPLAINED = (
    "Ranks are those of the whole run. A clock offset is how far the host's clock was ahead of the harness's, within half a round trip; "
    "times in this report are corrected by it. Network is all that the host received and sent in the measured window. Ranks end an "
    "exchange together, so a slow link shows as a long phase in which all of them meet, with few bytes for its time, and not as one late "
    "rank."
)


@dataclass(frozen=True, kw_only=True)
class HostRow:
    """One host of one run, as summary.json has it."""

    run: str
    host: str
    node_rank: int
    first_rank: int
    ranks: int
    returncode: int | None
    ended: str
    detail: str
    clock_offset_s: float | None
    clock_within_s: float | None
    """Half the round trip it was measured with."""
    odd: bool
    did: HostMeasure | None = None


@dataclass(frozen=True, kw_only=True)
class RunHosts:
    """The hosts of one run."""

    run: str
    via: str
    master: str
    hosts: tuple[HostRow, ...]

    @property
    def shown(self) -> tuple[HostRow, ...]:
        """All of a few, else the odd ones."""
        return self.hosts if len(self.hosts) <= ALL_SHOWN else tuple(row for row in self.hosts if row.odd)


def hosts_of(results: CampaignResults) -> list[RunHosts]:
    """Every current run on more than one host, by name."""
    labels = labels_of(results)
    found = []
    for run in results.runs:
        nodes = run.attempt.nodes
        if run.attempt.current and nodes is not None and len(nodes.nodes) > 1:
            rows = tuple(_row(node, labels.run(run.attempt.spec), run) for node in sorted(nodes.nodes, key=lambda node: node.node_rank))
            master = f"{nodes.master_addr}:{nodes.master_port}" if nodes.master_addr else ""
            found.append(RunHosts(run=rows[0].run, via=nodes.via, master=master, hosts=rows))
    return found


def _row(node: NodeRecord, run: str, measured: MeasuredRun) -> HostRow:
    offset_s, trip_s = node.clock_offset_s, node.clock_round_trip_s
    did = {one.host: one for one in measured.measure.by_host} if measured.measure else {}
    is_off = offset_s is not None and abs(offset_s) > SKEW_S
    return HostRow(
        run=run,
        host=_name_of(node),
        node_rank=node.node_rank,
        first_rank=node.first_rank,
        ranks=node.ranks,
        returncode=node.returncode,
        ended=node.ended,
        detail=node.detail,
        clock_offset_s=offset_s,
        clock_within_s=None if trip_s is None else trip_s / 2,
        odd=is_off or node.returncode != 0 or node.ended not in ("", "exited") or bool(node.detail or node.oom_kills),
        did=did.get(node.name),
    )


def _name_of(node: NodeRecord) -> str:
    """As the run calls it, with the host's own name beside it where that is another: of place `pernode`, or an address in a hostfile."""
    return node.name if not node.host or node.host.partition(".")[0] == node.name.partition(".")[0] else f"{node.name} ({node.host})"


def sentence(one: RunHosts) -> str:
    """'mb8_r1: 2 hosts started by ssh, 4 ranks, all ended with exit code 0; clocks within 0.2 ms.'"""
    ranks = sum(row.ranks for row in one.hosts)
    via = f" started by {one.via}" if one.via else ""
    odd = [row for row in one.hosts if row.returncode != 0 or row.ended not in ("", "exited")]
    ended = (
        "all ended with exit code 0" if not odd else f"{len(one.hosts) - len(odd)} ended with exit code 0, not so {named(_odd_words(odd))}"
    )
    return f"{one.run}: {len(one.hosts)} hosts{via}, {ranks} ranks, {ended}{_clocks(one.hosts)}."


def _odd_words(odd: Sequence[HostRow]) -> list[str]:
    return [f"{row.host} ({_ending(row)})" for row in odd]


def _ending(row: HostRow) -> str:
    if row.ended and row.ended != "exited":
        return row.ended.replace("_", " ")
    return "no exit code" if row.returncode is None else f"exit code {row.returncode}"


def _clocks(hosts: Sequence[HostRow]) -> str:
    known = [row for row in hosts if row.clock_offset_s is not None]
    if not known:
        return ""
    farthest = max(known, key=lambda row: abs(row.clock_offset_s or 0.0))
    off_s = abs(farthest.clock_offset_s or 0.0)
    if off_s > SKEW_S:
        return f"; the clock of {farthest.host} was {format_duration(off_s)} {'ahead' if (farthest.clock_offset_s or 0) > 0 else 'behind'}"
    return f"; clocks within {_small(off_s)}"


def cells(row: HostRow) -> list[object]:
    """One row of COLUMNS."""
    did = row.did or HostMeasure(host=row.host)
    figures = (did.cpu_busy_mean_pct, did.gpu_util_mean_pct, did.rss_peak_mib, did.net_rx_mean_mib_per_s, did.net_tx_mean_mib_per_s)
    code = NONE if row.returncode is None else row.returncode
    ended = row.ended.replace("_", " ") + (f": {row.detail}" if row.detail else "")
    return [row.run, row.host, ranks_text(row), clock_text(row), code, ended or NONE, *map(short, figures)]


def ranks_text(row: HostRow) -> str:
    last = row.first_rank + row.ranks - 1
    return str(row.first_rank) if row.ranks == 1 else f"{row.first_rank}–{last}"


def clock_text(row: HostRow) -> str:
    """'+3,600.001 s ± 0.2 ms'."""
    if row.clock_offset_s is None:
        return NONE
    within = "" if row.clock_within_s is None else f" ± {_small(row.clock_within_s)}"
    sign = "+" if row.clock_offset_s >= 0 else "-"
    return f"{sign}{_small(abs(row.clock_offset_s))}{within}"


def _small(seconds: float) -> str:
    return f"{seconds:,.3f} s" if seconds >= SKEW_S else f"{seconds * 1000:.1f} ms"
