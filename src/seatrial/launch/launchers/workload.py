"""The words that stand after the launcher's own: what is run, and with which arguments."""

from __future__ import annotations

from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import RunSpec


def workload_words(spec: RunSpec, attempt: AttemptPaths) -> tuple[str, ...]:
    """`-m MODULE --settings FILE` for a bundled workload, else the user's script and its arguments as typed."""
    workload = spec.workload
    if workload.module:
        return ("-m", workload.module, "--settings", str(attempt.settings), *workload.args)
    script = (workload.script,) if workload.script else ()
    return (*script, *workload.args)
