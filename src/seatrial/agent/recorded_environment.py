"""What of a node's environment reached its ranks, written down by its own agent: nodes/<name>/environment.json.

The harness knows what it sent and set; what the host itself has beneath (a login shell's exports, a command typed there) only its agent
knows. In: the variables of the ranks, but for those a launcher adds. Out: the file, secrets masked, of what can change how a job runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from seatrial.agent.reports import note
from seatrial.files import write_json
from seatrial.machine.recorded_variables import is_recorded
from seatrial.machine.secrets import mask
from seatrial.paths import AttemptPaths


def write_environment(own: AttemptPaths, beneath: Mapping[str, str], added: Mapping[str, str]) -> None:
    """`beneath` is what the agent has or was sent, `added` what the order puts over it. A bad disk costs the file, never the run."""
    final = {**beneath, **added}
    recorded = [
        {"name": name, "value": mask(name, final[name]), "set_by": "seatrial" if name in added else "host"}
        for name in sorted(final)
        if is_recorded(name)
    ]
    with contextlib.suppress(OSError):
        write_json(own.environment, {"variables": recorded})
        return
    note(f"{own.environment} could not be written; the run goes on without it")
