"""How long `seatrial doctor` takes for many hosts: as long as for the slowest one, whatever their number.

    python benchmarks/doctor_scale.py

    {"benchmark": "doctor_scale", "figures": {"hosts_4_s": 7.0, "hosts_64_s": 7.2, "slowest_host_s": 6.0, …}, "bounds": {…}, "holds": true}

4 and 64 simulated hosts, one of which takes a second to start and a second to answer each exchange. A host is a process behind two pipes,
as ssh would be, that replays the answers of a real query handler on this machine: the hosts' CPU time is left out, since real hosts each
have their own processors. `slowest_host_s` is the time the slow one needs on its own.
"""

from __future__ import annotations

import json
import shlex
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outcome import parser, report
from seatrial.agent.query_handler import QueryHandler
from seatrial.core.hostfile import HostSpec
from seatrial.launch.host_queries import HostSessions
from seatrial.preflight.check_definition import Need
from seatrial.preflight.hosts import queries
from seatrial.preflight.hosts.queries import hosts_need_of
from seatrial.preflight.hosts.run_checks import examine_hosts
from seatrial.records.launch import Reply

SLOW_S = 1.0
FEW, MANY = 4, 64
TIMES = 3
# Per host: its facts, the hosts that it reaches, link speed (two rounds of pairs), its view of the others, close.
MAX_EXCHANGES = 8
# What the harness may add to the slowest host's own time for 64 hosts.
MAX_ADDED_S = 3.0


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    times, slow_s = (1, 0.05) if quick else (TIMES, SLOW_S)
    with tempfile.TemporaryDirectory() as scratch:
        answers = answer_files(Path(scratch))
        few, exchanges_few = zip(*(measure(FEW, answers, Path(scratch), slow_s) for _ in range(times)), strict=True)
        many, exchanges_many = zip(*(measure(MANY, answers, Path(scratch), slow_s) for _ in range(times)), strict=True)
    slowest_s = slow_s * (1 + max(exchanges_many))
    figures = {
        "hosts_4_s": round(statistics.median(few), 3),
        "hosts_64_s": round(statistics.median(many), 3),
        "exchanges_4": max(exchanges_few),
        "exchanges_64": max(exchanges_many),
        "slowest_host_s": slowest_s,
        "added_by_60_more_s": round(statistics.median(many) - statistics.median(few), 3),
    }
    bounds = {"hosts_64_s": slowest_s + MAX_ADDED_S, "added_by_60_more_s": MAX_ADDED_S}
    report("doctor_scale", figures, bounds, quick=quick, n=times, slow_s=slow_s)


def answer_files(folder: Path) -> list[Path]:
    """One file per exchange, with what this machine answers, numbered by `n`."""
    need = hosts_need_of(Need(output=folder), (HostSpec(name="node0"),), "node0")
    first, handler = queries.first_requests(need, "0" * 16, fast=True)["node0"], QueryHandler()
    parts = handler.answer(first)["parts"]
    handler.close()
    second = {"reach": {"troubles": {}}, "look": {"troubles": {}}, "is_held": {"held": True}}
    later = {"speed": {"to": 1e9, "from": 1e9}}
    replies = [{"parts": parts}, {"parts": second}, *([{"parts": later}] * (MAX_EXCHANGES - 2))]
    files = [folder / f"answer-{number}.json" for number in range(MAX_EXCHANGES)]
    for number, (file, reply) in enumerate(zip(files, replies, strict=True), 1):
        file.write_text(json.dumps({"n": number, **reply}) + "\n")
    return files


def measure(count: int, answers: list[Path], folder: Path, slow_s: float) -> tuple[float, int]:
    """Time taken, and number of exchanges with each host."""
    hosts = tuple(HostSpec(name=f"node{number}") for number in range(count))
    commands = {host.name: host_command(answers, slow_s if host is hosts[-1] else 0.0) for host in hosts}
    began_m = time.monotonic()
    exchanges = 0
    with HostSessions(commands) as sessions:

        def ask(queries: Mapping[str, Any], timeout_s: float, /) -> Mapping[str, Reply]:
            nonlocal exchanges
            exchanges += 1
            return sessions.ask(queries, timeout_s)

        found = examine_hosts(ask, Need(output=folder), hosts, head="node0", fast=True)
    took_s = time.monotonic() - began_m
    assert len(found.facts) == count, "a host did not answer"
    return took_s, exchanges


def host_command(answers: list[Path], slow_s: float) -> tuple[str, ...]:
    wait = f"sleep {slow_s:g}; " if slow_s else ""
    each = "".join(f"read line; {wait}cat {shlex.quote(str(file))}; " for file in answers)
    return ("sh", "-c", f"""{wait}echo '{{"ready": true}}'; {each}cat > /dev/null""")


if __name__ == "__main__":
    main()
