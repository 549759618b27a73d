"""What was amiss on the hosts of a campaign before it began, and no reason not to begin: it explains figures that come after.

In: preflight.json. Out: a caution for each check of hosts that was not in order; those of this machine alone were said at the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seatrial import files
from seatrial.records.caution import Caution
from seatrial.records.check import Check
from seatrial.records.codec import described

KIND = "host_warning"
MOST = 20
"""Of a campaign on hundreds of hosts; preflight.json has them all."""


def host_warnings(preflight: Path) -> Iterator[Caution]:
    """In the order in which they were found."""
    written = files.read_json(preflight)
    found = [check for one in (written if isinstance(written, list) else []) if (check := described(Check, one))]
    amiss = [check for check in found if check.hosts and not check.ok]
    for check in amiss[:MOST]:
        text = f"Before the campaign, {check.name}: {check.found}. It may show in the figures ({check.prevents}). {check.fix}."
        yield Caution(kind=KIND, subject=", ".join(check.hosts[:4]), numbers={"hosts": len(check.hosts)}, text=text)
