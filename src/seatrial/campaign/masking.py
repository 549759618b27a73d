"""An outcome as the team may read it.

What a run printed is its user's own and stays as it is in launcher.log. The last lines of it and the sentence made of them go into
outcome.json, the summary and the tables, which are sent around: there, what looks like a secret and what is known to be one (values of
secret variables, options, settings and axes of this run) is masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from seatrial.machine.secrets import known_secrets, mask_lines, mask_text
from seatrial.records.outcome import RunOutcome
from seatrial.records.run_spec import RunSpec


def masked_outcome(outcome: RunOutcome, spec: RunSpec, caller: Mapping[str, str]) -> RunOutcome:
    """`outcome` of the run that `spec`, unmasked, asked for; `caller` is the environment it was started from."""
    words = (*spec.launcher.program, *spec.launcher.args, *spec.workload.args)
    settings, axes = ({name: value for name, value in values.items() if isinstance(value, str)} for values in (spec.settings, spec.axes))
    # One by one: the same name may have another value in each.
    known = {secret for named in (caller, spec.env, settings, axes) for secret in known_secrets(named, words)}
    log_tail, telling = mask_lines(outcome.log_tail, known), mask_lines(outcome.telling, known)
    return replace(outcome, detail=mask_text(outcome.detail, known), log_tail=log_tail, telling=telling)
