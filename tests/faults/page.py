"""docs/reliability.md, from the fault table that the tests hold to be true."""

from __future__ import annotations

from tests.faults.table import PARTS

HEAD = """# When things go wrong

Made by `make docs` from the table beside the tests (tests/faults/table.py); each row names the test that does it, to real
processes, or to real files where nothing runs.
`make test-faults` runs them all. Dummy runs unless a row says torch.

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


def markdown() -> str:
    """The whole page."""
    parts = [HEAD]
    for part in PARTS:
        lines = [f"## {part.title}\n", "| fault | what happens | what you see | test |", "|---|---|---|---|"]
        lines += [f"| {row.fault} | {row.happens} | {row.seen} | `{row.test}` |" for row in part.rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts) + TAIL
