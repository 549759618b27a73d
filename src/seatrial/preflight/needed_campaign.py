"""The campaign that a plan `needs`: has it passed, on this machine and with this software?

In: a `Need` with the folder of that campaign. Out: one check. The verdict is read from its verdict.json, machine and software from the
provenance.json of its runs and compared as fingerprints are, the code left out: whether a platform is steady does not depend on a commit,
and editing a plan of the checkout would be one. Of a campaign on many hosts only the verdict is looked at.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from seatrial.core import files
from seatrial.core.paths import CampaignPaths
from seatrial.core.text import join_names
from seatrial.machine.provenance import fingerprint_differences, gather_provenance, tuning_of
from seatrial.preflight.definitions import NOT_ASKED, Need, refusal
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Check
from seatrial.records.codec import from_json_or_none
from seatrial.records.plan import NeededCampaign, RunSpec
from seatrial.records.verdict import CampaignVerdict, Verdict

OVERRIDE = "--ignore-needs"
CODE_FACTS = frozenset({"git_commit_hash", "git_diff_sha256"})
MOST_NAMED = 3
NEEDED = refusal(
    name="needed campaign {campaign}",
    what="that the campaign which the plan `needs` has passed, on this machine and software (GPUs, driver, packages, tuning variables)",
    prevents="a gain of a few per cent that is the noise of a platform nobody accepted",
    fix="{fix}, or start all the same with " + OVERRIDE,
    in_docs={"fix": "run the plan that `needs` names first"},
)
NEEDED_CHECKS = (NEEDED,)


def check_needed(need: Need) -> Iterator[Check]:
    """Nothing where the plan needs no other campaign."""
    needs = need.needs
    if needs is None:
        return
    problem = _verdict_problem(needs)
    if not problem and not need.starts_programs:
        # What would run here now is known only to git and the run's own Python.
        yield NEEDED.result(True, NOT_ASKED, campaign=needs.campaign, fix="run it first")
        return
    problem = problem or _elsewhere(needs, need)
    run_it = f"run it first (`seatrial run {shlex.quote(needs.plan)}`)" if needs.plan else "run it first"
    found = problem or f"{Verdict.PASS.value}{f' by {needs.ready}' if needs.ready else ''}, on this machine with this software"
    yield NEEDED.result(not problem, found, refuses=needs.enforced, campaign=needs.campaign, fix=run_it)


def _verdict_problem(needs: NeededCampaign) -> str:
    paths = CampaignPaths(Path(needs.campaign))
    if not paths.folder.is_dir():
        return "there is no such campaign"
    verdict = from_json_or_none(CampaignVerdict, files.read_json(paths.verdict))
    if verdict is None:
        return f"it has no {paths.verdict.name} that can be read: it is not over, or was not reported"
    judged = [finding for finding in verdict.findings if finding.criterion is not None]
    if needs.ready and not any(finding.criterion and finding.criterion.ready == needs.ready for finding in judged):
        return f"it was not judged by {needs.ready}"
    if verdict.partial:
        return f"{verdict.verdict.value} so far, and runs of it are still to be run"
    if verdict.verdict is Verdict.PASS:
        return ""
    reasons = [finding.text.rstrip(".") for finding in judged if finding.verdict is not Verdict.PASS]
    return f"its verdict is {verdict.verdict.value}{f': {reasons[0]}' if reasons else ''}"


def _elsewhere(needs: NeededCampaign, need: Need) -> str:
    """In which facts its runs differ from what would run here now."""
    before = list(_provenances(CampaignPaths(Path(needs.campaign))))
    if not before:
        return "none of its runs has a provenance.json: what it ran on is unknown"
    if not need.runs or any(one.hosts for one in before):
        return ""
    now = _here(need.runs[0], need)
    for one in before:
        differing = {name: both for name, both in fingerprint_differences(one, now).items() if name not in CODE_FACTS}
        if differing:
            texts = [f"{name} {there or 'none'} there, {here or 'none'} here" for name, (there, here) in differing.items()]
            return f"it passed on another machine or with other software: {join_names(texts, MOST_NAMED, '; ')}"
    return ""


def _provenances(paths: CampaignPaths) -> Iterator[Provenance]:
    """Of the newest attempt of each run."""
    for run in paths.runs():
        found = from_json_or_none(Provenance, files.read_json(run.attempts()[-1].provenance))
        if found is not None and found.fingerprint:
            yield found


def _here(spec: RunSpec, need: Need) -> Provenance:
    program = spec.launcher.program
    if not program and spec.launcher.kind == "command" and spec.workload.script:
        program = (spec.workload.script, *spec.workload.args)
    return gather_provenance(
        Path(spec.cwd),
        spec.place.devices,
        program=program,
        env=need.environment(spec),
        tuning=tuning_of(need.caller, spec.env),
    )
