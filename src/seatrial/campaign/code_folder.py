"""Where a run's code lies: the folder of its script, which need not be the one it is started in. In: a RunSpec. Out: a folder."""

from __future__ import annotations

from pathlib import Path

from seatrial.records.run_spec import RunSpec

SCRIPT_ENDINGS = (".py", ".sh")


def code_folder(spec: RunSpec) -> Path:
    """The folder of the first script that its command names and that is there, else the one it is started in."""
    cwd = Path(spec.cwd)
    words = [word for word in (spec.workload.script or "", *spec.workload.args) if word.endswith(SCRIPT_ENDINGS)]
    return next((path.parent for word in words if (path := cwd / word).is_file()), cwd)
