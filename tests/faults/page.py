"""docs/reliability.md, from the fault table that the tests hold to be true."""

from __future__ import annotations

from tests.faults.table import PARTS, Row

HEAD = """# When things go wrong

For whoever relies on a campaign overnight: what can go wrong with it, what then happens, and what you see. Each row names the test that
does it, to real processes, or to real files where nothing runs: `make test-faults` and, on many hosts, `make test-cluster` run them. Dummy
runs unless a row says torch. Made by `make docs` from the table beside the tests (`tests/faults/table.py`).

How a run is ended: its stacks are taken (from inside by a handler in C, from outside by py-spy), `halt.json` asks all ranks to end at
the same step (`limits.soft_s`), then TERM (`limits.term_s`), then KILL. The user's first Ctrl-C begins at `halt.json`, the second is KILL.
The agent, parent and subreaper of everything a run starts, is tied to the harness by a pipe: when that closes, it kills what is left.
On many hosts there is one agent on each, tied to the harness by a TCP connection with a beat every 2 s: when it closes, or nothing is
heard for 20 s, the agent kills what is left, and the harness takes the host for lost.
"""
TAIL = """
## Not shown on hardware here

NVML that hangs is shown with a stub of the library; file systems without locks, and a campaign folder shared by two hosts, with a file
that beats. ECC errors, a GPU that falls off the bus and InfiniBand are not shown. Without root under `ptrace_scope` 1, py-spy may be
refused for ranks below a launcher: then ABRT is the way to their stacks.
"""


def path_of(row: Row) -> str:
    """The row's test from the root: tables name it from tests/faults, or from tests where it is another lane's."""
    return f"tests/{row.test}" if "/" in row.test else f"tests/faults/{row.test}"


def markdown() -> str:
    """The whole page."""
    parts = [HEAD]
    for part in PARTS:
        lines = [f"## {part.title}\n", "| fault | what happens | what you see | test |", "|---|---|---|---|"]
        lines += [f"| {row.fault} | {row.happens} | {row.seen} | `{path_of(row)}` |" for row in part.rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts) + TAIL
