"""The campaign that a plan `needs`: has it passed, on this machine and with this software?

In: a `Need` with the folder of that campaign. Out: one check. The verdict is read from its verdict.json, which must be newer than every
attempt: a harness that was killed while it repeated the campaign leaves the previous verdict. Machine and software in the provenance.json
of its runs are compared, as fingerprints without the code, with every run of the plan: whether a platform is steady does not depend on a
commit. With many hosts their facts from before the start count; the nodes of a Slurm job are not known yet, and the check reports that.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.core.text import count, join_names
from seatrial.machine.provenance import (
    NOT_OF_NODE_0,
    fingerprint_differences,
    gather_provenance,
    host_hardware,
    tuning_of,
    with_host_facts,
)
from seatrial.preflight.check_definition import NOT_ASKED, Need, refusal
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Check
from seatrial.records.plan import NeededCampaign, RunSpec
from seatrial.records.stored import accepted_outcome, read_record
from seatrial.records.verdict import CampaignVerdict, Verdict

OVERRIDE = "--ignore-needs"
CODE_FACTS = frozenset({"git_commit_hash", "git_diff_sha256"})
HOSTS = "hosts"
MAX_NAMED = 3
NEEDED = refusal(
    name="needed campaign {campaign}",
    what="that the campaign which the plan `needs` has passed, on this machine and software (GPUs, driver, packages, tuning variables)",
    prevents="a small gain that is platform noise",
    fix="{fix}, or start anyway with " + OVERRIDE,
    in_docs={"fix": "run the plan that `needs` names first"},
)
NEEDED_CHECKS = (NEEDED,)


def check_needed(need: Need) -> Iterator[Check]:
    """No check where the plan needs no other campaign."""
    needs = need.needs
    if needs is None:
        return
    problem = _verdict_problem(needs)
    unjudged = "" if problem else _unjudged_attempt(CampaignPaths(Path(needs.campaign)))
    problem = problem or unjudged
    if not problem and not need.starts_programs:
        # Only git and the run's own Python know what would run here.
        yield NEEDED.result(True, NOT_ASKED, campaign=needs.campaign, fix="run it first")
        return
    not_compared = _why_not_compared(need)
    problem = problem or ("" if not_compared else _elsewhere(needs, need))
    run_it = f"run it first (`seatrial run {shlex.quote(needs.plan)}`)" if needs.plan else "run it first"
    if unjudged:
        run_it = f"report it again: `seatrial report {shlex.quote(needs.campaign)}`"
    where = f"; {not_compared}" if not_compared else ", on this machine with this software"
    found = problem or f"{Verdict.PASS.value}{f' by {needs.ready}' if needs.ready else ''}{where}"
    yield NEEDED.result(not problem, found, refuses=needs.enforced, campaign=needs.campaign, fix=run_it)


def _verdict_problem(needs: NeededCampaign) -> str:
    paths = CampaignPaths(Path(needs.campaign))
    if not paths.folder.is_dir():
        return "there is no such campaign"
    verdict = read_record(CampaignVerdict, paths.verdict)[0]
    if verdict is None:
        return f"its {paths.verdict.name} is missing or unreadable: it is not over, or was not reported"
    judged = [finding for finding in verdict.findings if finding.criterion is not None]
    if needs.ready and not any(finding.criterion and finding.criterion.ready == needs.ready for finding in judged):
        return f"it was not judged by {needs.ready}"
    if verdict.partial:
        return f"{verdict.verdict.value} so far, and runs of it are still to be run"
    if verdict.verdict is Verdict.PASS and verdict.confounded:
        compared = f"it is {Verdict.PASS.value} with confounded groups compared anyway ({verdict.confounded[0]})"
        return f"{compared}: report it without --allow-confounded"
    if verdict.verdict is Verdict.PASS:
        return ""
    reasons = [finding.text.rstrip(".") for finding in judged if finding.verdict is not Verdict.PASS]
    return f"its verdict is {verdict.verdict.value}{f': {reasons[0]}' if reasons else ''}"


def _unjudged_attempt(paths: CampaignPaths) -> str:
    """An attempt newer than the verdict, in words; empty without one."""
    judged_t = paths.verdict.stat().st_mtime
    for run in paths.runs():
        for attempt in run.attempts():
            if _is_newer(attempt, judged_t):
                how = "ended after" if attempt.outcome.exists() else "has not ended, and is newer than"
                return f"attempt {attempt.number} of {attempt.run} {how} its {paths.verdict.name}"
    return ""


def _is_newer(attempt: AttemptPaths, judged_t: float) -> bool:
    """Whether it ended after the verdict or, without an end, wrote anything since. Its own clock and the file system's both count: a copy
    has new file times, and another host's clock may be fast."""
    outcome = accepted_outcome(attempt)
    if outcome is not None and 0 < outcome.ended_t <= judged_t:
        return False
    try:
        return any(path.stat().st_mtime > judged_t for path in ([attempt.outcome] if outcome else [*attempt.folder.iterdir()]))
    except OSError:
        # A file that has vanished belongs to a run that is under way.
        return True


def _why_not_compared(need: Need) -> str:
    """Why machine and software of the plan's runs are not known yet; empty if they are."""
    kinds = {spec.place.traits for spec in need.whole_runs or need.runs}
    if any(traits.runs_in_jobs for traits in kinds):
        return "on which nodes the jobs will run is not known yet, so machine and software were not compared"
    if any(not traits.is_this_machine for traits in kinds) and not need.host_facts:
        return "the hosts are compared when the campaign starts"
    return ""


def _elsewhere(needs: NeededCampaign, need: Need) -> str:
    """Facts in which its runs differ from what would run now."""
    before = list(_provenances(CampaignPaths(Path(needs.campaign))))
    if not before:
        return "none of its runs has a provenance.json: what it ran on is unknown"
    for now in _planned(need):
        for one in before:
            texts = list(_differences(one, now))
            if texts:
                return f"it passed on another machine or with other software: {join_names(texts, MAX_NAMED, '; ')}"
    return ""


def _differences(one: Provenance, now: Provenance) -> Iterator[str]:
    if bool(one.hosts) != bool(now.hosts):
        there, here = (count(len(side.hosts), "host") if side.hosts else "one machine" for side in (one, now))
        yield f"{there} there, {here} here"
        return
    for name, (there, here) in fingerprint_differences(one, now).items():
        is_unknown = name in NOT_OF_NODE_0 and bool(one.hosts) and not (there and here)
        if name == HOSTS:
            yield from _host_differences(one, now)
        elif name not in CODE_FACTS and not is_unknown:
            yield f"{name} {there or 'none'} there, {here or 'none'} here"


def _host_differences(one: Provenance, now: Provenance) -> Iterator[str]:
    """Facts whose values are not the same in both sets of hosts; their names do not count, as in a fingerprint."""
    there, here = ([host_hardware(host) for host in side.hosts.values()] for side in (one, now))
    for name in dict.fromkeys(name for host in (*there, *here) for name in host):
        values = [sorted({host.get(name, "") for host in side}) for side in (there, here)]
        if values[0] != values[1]:
            yield f"{name} of the hosts {', '.join(values[0]) or 'none'} there, {', '.join(values[1]) or 'none'} here"


def _planned(need: Need) -> Iterator[Provenance]:
    """Provenance of every run of the plan, equal ones once."""
    seen = set()
    for spec in need.whole_runs or need.runs:
        key = spec.cwd, spec.place.devices, spec.place.hosts, _program(spec), tuple(sorted(spec.env.items()))
        if key not in seen:
            seen.add(key)
            yield _here(spec, need)


def _provenances(paths: CampaignPaths) -> Iterator[Provenance]:
    """Provenance of the newest attempt of each run."""
    for run in paths.runs():
        found = read_record(Provenance, run.attempts()[-1].provenance)[0]
        if found is not None and found.fingerprint:
            yield found


def _program(spec: RunSpec) -> tuple[str, ...]:
    if not spec.launcher.program and spec.launcher.kind == "command" and spec.workload.script:
        return (spec.workload.script, *spec.workload.args)
    return spec.launcher.program


def _here(spec: RunSpec, need: Need) -> Provenance:
    hosts = spec.place.hosts
    gathered = gather_provenance(
        Path(spec.cwd),
        hosts[0].devices if hosts else spec.place.devices,
        program=_program(spec),
        env=need.environment(spec),
        tuning=tuning_of(need.base_env, spec.env),
    )
    # On this machine alone, no name has facts.
    names = [host.name for host in hosts] or ([*need.host_facts] if spec.place.traits.typed_on_each_node else [])
    return with_host_facts(gathered, names, need.host_facts)
