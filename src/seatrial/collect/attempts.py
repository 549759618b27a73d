"""Attempts and plans of a campaign folder.

In: a campaign's folder. Out: one `Attempt` for every attempt-N/ whose spec is known, which of them are current (the newest one that
was not cut short, for every run and hash in a plan of the folder), and cautions: files that cannot be used, alarms, processes left
behind, clock skew, hosts that differ.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial.collect.attempt_files import have_same_content, read_environment, recovered_cautions, unusable_file
from seatrial.collect.logs.bounded_lines import LONGEST_LINE_BYTES, bounded_lines
from seatrial.core import files
from seatrial.core.files import json_object, open_file
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.core.text import MAX_NAMED, MIB, count, count_were, format_duration, join_names
from seatrial.machine.provenance import NOT_TUNING, TUNING_PREFIXES, host_hardware
from seatrial.machine.secrets import mask
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.caution import MAY_HAVE_FAILED, Caution, Check, Number
from seatrial.records.codec import from_json_or_none
from seatrial.records.launch import SKEW_S, NodesRecord
from seatrial.records.measure import PREFLIGHT, JitterCause
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec, TelemetrySpec
from seatrial.records.stored import (
    MISSING,
    counting_attempt,
    earlier_attempts,
    host_folders,
    node_names,
    read_nodes,
    read_outcome,
    read_plan,
    read_record,
    read_resumption,
    read_spec,
    read_telemetry_account,
)
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount

Requested = Mapping[tuple[str, str], RunSpec]
"""Specs of the folder's plans, by run and hash."""
RESUMED = "resumed"
FILE_CAUTIONS = ("unreadable_file", "kept_elsewhere")
"""Also reported for attempts that are not current: with an intact file they might be."""


@dataclass(frozen=True, kw_only=True)
class StoredCampaign:
    """What could be read from a folder."""

    attempts: list[Attempt]
    """Sorted by run name, then number."""
    cautions: tuple[Caution, ...] = ()
    """For files that no current attempt reports itself."""


@dataclass(frozen=True, kw_only=True)
class StoredPlans:
    """The plans that were run into a folder."""

    plans: list[CampaignPlan]
    """The readable ones, the latest last."""
    cautions: tuple[Caution, ...] = ()


def read_campaign(paths: CampaignPaths, plans: Sequence[CampaignPlan] | None = None) -> list[Attempt]:
    """Every attempt of every run, sorted by run name, then number; `plans` are the folder's if already read."""
    return read_stored(paths, plans).attempts


def read_stored(paths: CampaignPaths, plans: Sequence[CampaignPlan] | None = None) -> StoredCampaign:
    """Every attempt, and cautions about files that could not be used."""
    plans = read_plans(paths) if plans is None else plans
    requested = {(spec.run, spec.hash): spec for plan in plans for spec in plan.runs}
    found: list[Attempt] = []
    cautions = [*recovered_cautions(paths.folder)]
    for own in (own for run in paths.runs() for own in run.attempts()):
        attempt, why = _read_attempt(own, requested)
        if attempt is None:
            cautions.append(unusable_file(own.spec, why, own.run, "nothing is known about this attempt: run the run again"))
        else:
            found.append(attempt)
    found.sort(key=lambda attempt: (attempt.spec.run, attempt.number))
    current = _current_folders(found, set(requested) if plans or paths.plans.is_dir() else None)
    replaced = (attempt for attempt in found if attempt.folder not in current)
    cautions += [caution for attempt in replaced for caution in attempt.cautions if caution.kind in FILE_CAUTIONS]
    if plans and (uncounted := uncounted_text(found, plans)):
        cautions.append(Caution(kind="uncounted_runs", text=f"Earlier runs in this folder that no longer count: {uncounted}."))
    return StoredCampaign(
        attempts=[replace(attempt, current=attempt.folder in current) for attempt in found],
        cautions=tuple(cautions),
    )


def read_plans(paths: CampaignPaths) -> list[CampaignPlan]:
    """Every readable plan that was run into this folder, the latest last."""
    return read_stored_plans(paths).plans


def read_stored_plans(paths: CampaignPaths) -> StoredPlans:
    latest, no_latest = read_plan(paths.plan)
    read = {path: _read_unless_same(path, paths.plan, latest) for path in sorted(paths.plans.glob("*.json"))}
    plans = [plan for plan, _ in read.values() if plan is not None]
    if latest is not None and all(plan.name != latest.name for plan in plans):
        plans.append(latest)
    plans.sort(key=lambda plan: latest is not None and plan.name == latest.name)
    cautions = [unusable_file(path, why, then=_used_instead(path, latest)) for path, (_, why) in read.items() if why]
    if latest is None:
        then = "the plans in plans/ were read; run the latest plan again to restore the file"
        cautions.insert(0, unusable_file(paths.plan, no_latest or MISSING, then=then))
    return StoredPlans(plans=plans, cautions=tuple(cautions))


def _read_unless_same(path: Path, latest_path: Path, latest: CampaignPlan | None) -> tuple[CampaignPlan | None, str]:
    """The latest plan is stored in both places, and reading one of a thousand runs takes a tenth of a second."""
    is_latest = latest is not None and path.stem == latest.name and have_same_content(path, latest_path)
    return (latest, "") if is_latest else read_plan(path)


def _used_instead(path: Path, latest: CampaignPlan | None) -> str:
    if latest is not None and path.stem == latest.name:
        return "plan.json holds the same plan and was read instead; run it again to restore both files"
    return "runs that only this plan requests do not count; run it again, which keeps finished runs"


def read_attempt(paths: AttemptPaths) -> Attempt | None:
    """One attempt; None where its spec.json is missing or unreadable."""
    return _read_attempt(paths, {})[0]


def _read_attempt(paths: AttemptPaths, requested: Requested) -> tuple[Attempt | None, str]:
    spec, no_spec = read_spec(paths)
    outcome, no_outcome = read_outcome(paths, spec.hash if spec else None)
    if spec is None:
        # The outcome holds the hash of what was run, and a plan may have that very spec.
        spec = requested.get((paths.run, outcome.hash)) if outcome else None
    if spec is None:
        return None, no_spec
    provenance, no_provenance = read_record(Provenance, paths.provenance)
    if provenance is None and outcome is not None and outcome.outcome is Outcome.OK:
        no_provenance = no_provenance or MISSING
    telemetry, no_telemetry = read_telemetry_account(paths)
    nodes, no_nodes = read_nodes(paths)
    unread = {
        paths.outcome: no_outcome,
        paths.provenance: no_provenance,
        paths.telemetry: no_telemetry,
        paths.nodes_record: no_nodes,
    }
    cautions = [unusable_file(path, why, spec.run) for path, why in unread.items() if why]
    if no_spec:
        cautions.append(unusable_file(paths.spec, no_spec, spec.run, "the plan's spec with the same hash was used instead"))
    attempt = Attempt(
        folder=str(paths.folder),
        number=paths.number,
        spec=spec,
        outcome=outcome,
        provenance=provenance or Provenance(),
        telemetry=telemetry or (count_samples(paths, spec.telemetry) if outcome else None),
        cautions=(
            *cautions,
            *recovered_cautions(paths.folder),
            *alarm_cautions(spec.run, paths.alarms),
            *leftover_process_cautions(spec.run, outcome),
            *may_have_failed_cautions(spec.run, outcome),
            *resumption_cautions(paths, spec, outcome),
            *binary_log_cautions(spec.run, paths.launcher_log),
            *clock_skew_cautions(spec.run, nodes),
            *host_difference_cautions(spec.run, provenance.hosts if provenance else {}),
            *(environment_cautions(spec.run, paths) if nodes else ()),
        ),
        nodes=nodes,
        node_telemetry=_node_accounts(paths, nodes, spec) if outcome and nodes else {},
    )
    return attempt, ""


def _node_accounts(paths: AttemptPaths, nodes: NodesRecord, spec: RunSpec) -> dict[str, TelemetryAccount]:
    """Accounts of all hosts but node 0, whose account is in the attempt's own folder."""
    others = {folder.name: folder.paths for folder in host_folders(paths, nodes)[1:]}
    found = {name: read_telemetry_account(own)[0] or count_samples(own, spec.telemetry) for name, own in others.items()}
    return {name: account for name, account in found.items() if account is not None}


def _current_folders(attempts: Iterable[Attempt], requested: set[tuple[str, str]] | None) -> set[str]:
    """Folders of the current attempts; `requested` is None where the folder keeps no plans."""
    by_run: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        key = (attempt.spec.run, attempt.spec.hash if requested is not None else "")
        if requested is None or key in requested:
            by_run.setdefault(key, []).append(attempt)
    # Without plans nobody knows which of a run's specs is meant: the newest.
    return {(same[-1] if requested is None else counting_attempt(same, lambda one: one.outcome)).folder for same in by_run.values()}


NOT_IN_PLAN, PLACE_CHANGED = "no longer in the plan", "place changed"
SETTINGS = "settings"


def uncounted_text(attempts: Iterable[Attempt], plans: Sequence[CampaignPlan]) -> str:
    """Which finished attempts no longer count because no plan requests what they ran, and what changed; empty where all count."""
    specs = {spec.run: spec for plan in plans for spec in plan.runs}
    requested = {(spec.run, spec.hash) for plan in plans for spec in plan.runs}
    by_change: dict[str, list[str]] = {}
    for attempt in attempts:
        is_finished = attempt.outcome is not None and attempt.outcome.outcome is Outcome.OK
        if is_finished and (attempt.spec.run, attempt.spec.hash) not in requested:
            change = changed_parts(attempt.spec, specs.get(attempt.spec.run))
            by_change.setdefault(change, []).append(f"{attempt.spec.run} (attempt {attempt.number})")
    return "; ".join(f"{change}: {join_names(names)}" for change, names in by_change.items())


def changed_parts(before: RunSpec, now: RunSpec | None) -> str:
    """What of a run's hash changed."""
    if now is None:
        return NOT_IN_PLAN
    then, today = _parts(before), _parts(now)
    changed = [name for name in today if then[name] != today[name]]
    named = [f"{name} ({_changed_settings(before, now)})" if name == SETTINGS else name for name in changed]
    return f"{' and '.join(named) or 'configuration'} changed"


def _changed_settings(before: RunSpec, now: RunSpec) -> str:
    then, today = {**before.settings, **before.axes}, {**now.settings, **now.axes}
    names = sorted(name for name in {*then, *today} if then.get(name) != today.get(name))
    return join_names([f"{name} {_shown(then, name)} → {_shown(today, name)}" for name in names])


def _shown(settings: Mapping[str, object], name: str) -> str:
    return mask(name, str(settings[name])) if name in settings else "not set"


def _parts(spec: RunSpec) -> dict[str, object]:
    workload, launcher, place = spec.workload, spec.launcher, spec.place
    return {
        "command": (workload.module, workload.script, workload.args, launcher.kind, launcher.program, launcher.args),
        "script": spec.script_sha256,
        SETTINGS: (spec.settings, spec.axes),
        "variables": spec.env,
        "place": (place.kind, place.ranks, place.devices),
        "steps": spec.steps,
    }


SAMPLER_KILLED = "there is no readable telemetry.json: the sampler was killed before it could write it"


def count_samples(paths: AttemptPaths, requested: TelemetrySpec) -> TelemetryAccount | None:
    """An account from the rows on disk, for a killed agent that left none; None without samples."""
    gpu, host = _count_rows(paths.gpu_telemetry, requested.gpu_s), _count_rows(paths.host_telemetry, requested.host_s)
    return TelemetryAccount(gpu=gpu, host=host) if gpu or host else None


def _count_rows(path: Path, interval_s: float | None) -> SamplerAccount | None:
    try:
        with open_file(path) as source:
            newlines = sum(block.count(b"\n") for block in iter(lambda: source.read(MIB), b""))
    except FileNotFoundError:
        return None
    except OSError:
        newlines = 0
    # Neither the header nor an unfinished line is a row. A file without a header is reported by its reader.
    rows = max(newlines - 1, 0)
    return SamplerAccount(interval_s=interval_s or 0.0, rows=rows, samples=rows, empty=newlines == 1, note=SAMPLER_KILLED)


ALARM_KINDS = {
    "spike": "Steps became much slower during the run",
    "silence": "The run made no progress for a while",
}
MAX_ALARM_BYTES = 16 * MIB
LONGEST_ALARM_TEXT = 300


def alarm_cautions(run: str, path: Path) -> Iterator[Caution]:
    """One caution for each kind of alarm in alarms.jsonl, about its worst one."""
    try:
        lines = [piece.text for piece in bounded_lines(path, MAX_ALARM_BYTES, LONGEST_LINE_BYTES)]
    except FileNotFoundError:
        return
    except OSError as error:
        yield unusable_file(path, error.strerror or "it cannot be read", run, "alarms of this run are unknown")
        return
    parsed = [(line, json_object(line)) for line in lines]
    malformed = sum(alarm is None and not line.isspace() for line, alarm in parsed)
    if malformed:
        text = f"In {path.name} {count_were(malformed, 'line')} skipped: truncated or not alarms."
        yield Caution(kind="bad_rows", subject=run, numbers={"rows": malformed}, text=text)
    for kind, what in ALARM_KINDS.items():
        own = [alarm for _, alarm in parsed if alarm is not None and alarm.get("kind") == kind]
        if own:
            worst = max(own, key=_alarm_ratio)
            numbers: dict[str, Number] = {"alarms": len(own), "ratio": _alarm_ratio(worst)}
            written = worst.get("text")
            details = " ".join(written[:LONGEST_ALARM_TEXT].split()) if isinstance(written, str) and written else "no details"
            yield Caution(kind=kind, subject=run, numbers=numbers, text=f"{what}: {details} ({path.name}).")


def _alarm_ratio(alarm: dict[str, Any]) -> float:
    """The alarm's ratio; 0 without a valid one."""
    ratio = alarm.get("ratio")
    return float(ratio) if isinstance(ratio, (int, float)) and not isinstance(ratio, bool) and 0 <= ratio < 1e9 else 0.0


def leftover_process_cautions(run: str, outcome: RunOutcome | None) -> Iterator[Caution]:
    """Processes that outlived a run that ended well."""
    if outcome is not None and outcome.outcome is Outcome.OK and outcome.killed:
        processes = "1 process" if outcome.killed == 1 else f"{outcome.killed} processes"
        text = f"{processes} outlived this run and had to be killed: they would have held memory, GPU or ports of the next one."
        yield Caution(kind="left_behind", subject=run, numbers={"killed": outcome.killed}, text=text)


def resumption_cautions(paths: AttemptPaths, spec: RunSpec, outcome: RunOutcome | None) -> Iterator[Caution]:
    """What a training of several attempts lost between them, and which part its figures cover."""
    resumption = read_resumption(paths)
    if resumption is None or resumption.from_start:
        return
    skipped = f" Damaged and skipped: {'; '.join(resumption.skipped)}." if resumption.skipped else ""
    if resumption.from_attempt is None:
        text = f"Attempt {paths.number} started at step 0: no earlier attempt has a complete checkpoint."
        yield Caution(kind=RESUMED, subject=spec.run, text=f"{text}{skipped}")
    elif outcome is not None and outcome.resumed_from is not None:
        attempts = count(len(earlier_attempts(paths)) + 1, "attempt")
        lost = "an unknown number of steps was" if outcome.lost_steps is None else count_were(outcome.lost_steps, "step")
        downtime = "an unknown time" if outcome.downtime_s is None else format_duration(outcome.downtime_s)
        at = "an unknown step" if outcome.resumed_at is None else f"step {outcome.resumed_at:,}"
        numbers: dict[str, Number] = {"from_attempt": outcome.resumed_from, "attempts": len(earlier_attempts(paths)) + 1}
        numbers |= {"lost_steps": outcome.lost_steps} if outcome.lost_steps is not None else {}
        numbers |= {"downtime_s": round(outcome.downtime_s, 3)} if outcome.downtime_s is not None else {}
        yield Caution(
            kind=RESUMED,
            subject=spec.run,
            numbers=numbers,
            text=f"Trained in {attempts}: attempt {paths.number} resumed at {at} from a checkpoint of attempt {outcome.resumed_from}. "
            f"{lost[:1].upper()}{lost[1:]} repeated, and {downtime} passed between attempts; losses are of all of them, step times and "
            f"throughput of attempt {paths.number} alone.{skipped}",
        )


def may_have_failed_cautions(run: str, outcome: RunOutcome | None) -> Iterator[Caution]:
    """A run that is `ok` by its exit code but may have failed."""
    if outcome is not None and outcome.may_have_failed:
        yield Caution(kind=MAY_HAVE_FAILED, subject=run, text=f"{run} {outcome.may_have_failed}.")


# Read at either end of the log; what is binary throughout shows there.
INSPECTED_BYTES = 256 * 1024
# A character cut in two at a border is not binary data.
MIN_BINARY_BYTES = 16


def binary_log_cautions(run: str, log: Path) -> Iterator[Caution]:
    """Binary data in the log, which may have torn lines apart."""
    inspected = _head_and_end(log)
    binary = sum(part.decode("utf-8", errors="replace").count("\N{REPLACEMENT CHARACTER}") + part.count(b"\0") for part in inspected)
    if binary < MIN_BINARY_BYTES:
        return
    total = sum(map(len, inspected))
    text = f"{log.name} holds binary data ({binary} of {total} bytes inspected); lines with such bytes may not have been read."
    yield Caution(kind="not_text", subject=run, numbers={"bytes": binary, "of": total}, text=text)


def _head_and_end(path: Path) -> list[bytes]:
    try:
        with open_file(path) as source:
            head = source.read(INSPECTED_BYTES)
            size = source.seek(0, os.SEEK_END)
            source.seek(max(len(head), size - INSPECTED_BYTES))
            return [head, source.read(INSPECTED_BYTES)]
    except OSError:
        return []


def clock_skew_cautions(run: str, nodes: NodesRecord | None) -> Iterator[Caution]:
    """One caution about all clocks that were off by more than SKEW_S when the attempt began."""
    skews = {node.name: node.clock_offset_s for node in (nodes.nodes if nodes else ()) if node.clock_offset_s is not None}
    off = sorted(((name, skew_s) for name, skew_s in skews.items() if abs(skew_s) > SKEW_S), key=lambda item: -abs(item[1]))
    if not off:
        return
    name, skew_s = off[0]
    skewed = [f"{host} {format_duration(abs(each_s))} {'ahead' if each_s > 0 else 'behind'}" for host, each_s in off]
    yield Caution(
        kind="clock_skew",
        subject=run,
        numbers={"host": name, "seconds": round(skew_s, 3), "hosts": len(off)},
        text=f"Clock skew between hosts and the harness: {join_names(skewed)}. Times in this report are corrected; synchronise the clocks "
        "(chrony, NTP), since logs and checkpoints carry the wrong time.",
    )


MEMORY = "memory_bytes"
PACKAGES = "packages"
"""`name=version`, separated by blanks."""
MEMORY_TOLERANCE = 0.05
"""Firmware and kernels of equal machines reserve slightly different amounts."""
LONGEST_VALUE = 60


def host_difference_cautions(run: str, hosts: Mapping[str, Mapping[str, str]]) -> Iterator[Caution]:
    """One caution that names what differs and on which hosts (`hosts` of provenance.json): a run is as slow as its slowest host."""
    differences = host_differences(hosts)
    if not differences:
        return
    facts = [f"{fact} ({_differing_values(values)})" for fact, values in differences.items()]
    more = len(facts) - MAX_NAMED
    odd_hosts = {host for values in differences.values() for each in list(values.values())[1:] for host in each}
    yield Caution(
        kind="unlike_hosts",
        subject=run,
        numbers={"hosts": len(odd_hosts), "facts": len(differences)},
        text=f"The hosts of this run differ: {'; '.join(facts[:MAX_NAMED])}{f'; and {more} more facts' if more > 0 else ''}. "
        "Every rank waits for the slowest host; exclude the odd ones (`exclude`), or refuse such a set (`place: {alike: refuse}`).",
    )


def host_differences(hosts: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Fact → its values, the most common first, each with its hosts; only facts that differ."""
    known = {name: {**_with_single_packages(host_hardware(facts)), MEMORY: _memory(hosts, facts)} for name, facts in hosts.items()}
    found: dict[str, dict[str, list[str]]] = {}
    for fact in dict.fromkeys(fact for facts in known.values() for fact in facts):
        values = {name: facts.get(fact, "") for name, facts in known.items()}
        order = [value for value, _ in Counter(values.values()).most_common()]
        if len(order) > 1:
            found[fact] = {value: [name for name, own in values.items() if own == value] for value in order}
    return found


def _with_single_packages(facts: Mapping[str, str]) -> dict[str, str]:
    """Every package as a fact of its own, so that `torch` differs and not the whole list."""
    packages = (package.partition("=") for package in facts.get(PACKAGES, "").split())
    return {**{name: value for name, value in facts.items() if name != PACKAGES}, **{name: version for name, _, version in packages}}


def _memory(hosts: Mapping[str, Mapping[str, str]], facts: Mapping[str, str]) -> str:
    """The memory of the first host with about as much."""
    own = _memory_bytes(facts)
    if own is None:
        return ""
    sizes = (_memory_bytes(other) for other in hosts.values())
    rounded = next((size for size in sizes if size is not None and abs(size - own) <= MEMORY_TOLERANCE * max(size, own)), own)
    return f"{rounded / 2**30:.0f} GiB"


def _memory_bytes(facts: Mapping[str, str]) -> float | None:
    text = facts.get(MEMORY, "")
    return float(text) if text.isdecimal() else None


def _differing_values(values: Mapping[str, list[str]]) -> str:
    common, *odd = values.items()
    named = [f"{_short(value)} on {_host_names(hosts)}" for value, hosts in odd[:MAX_NAMED]]
    return f"{', '.join(named)}, {_short(common[0])} on {_host_names(common[1])}"


def _host_names(hosts: list[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= MAX_NAMED else f"{len(hosts)} hosts"


def _short(value: str) -> str:
    text = value or "nothing"
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def environment_cautions(run: str, attempt: AttemptPaths) -> Iterator[Caution]:
    """One caution about tuning variables that differ between hosts. Variables that belong to a host (visible GPUs, paths) may differ."""
    variables = {name: _tuning_variables(attempt.node(name)) for name in node_names(attempt)}
    names = sorted({name for own in variables.values() for name in own})
    differing = {name: values for name in names if (values := _differing_variable(variables, name))}
    if not differing:
        return
    listed = join_names([f"{name} {values}" for name, values in differing.items()], MAX_NAMED, "; ")
    yield Caution(
        kind="unlike_environment",
        subject=run,
        numbers={"variables": len(differing), "hosts": len(variables)},
        text=f"Tuning variables differ between hosts: {listed}. Set them in the plan (`env`), which reaches all ranks.",
    )


def _tuning_variables(own: AttemptPaths) -> dict[str, str]:
    recorded = read_environment(own.environment) or {}
    return {name: value for name, value in recorded.items() if name.startswith(TUNING_PREFIXES) and name not in NOT_TUNING}


def _differing_variable(variables: Mapping[str, Mapping[str, str]], name: str) -> str:
    """`1 on node2, not set elsewhere`; empty where all hosts with a record agree."""
    values = {host: own.get(name, "not set") for host, own in variables.items() if own}
    common = Counter(values.values()).most_common(1)
    odd = {host: value for host, value in values.items() if common and value != common[0][0]}
    if not odd:
        return ""
    return ", ".join(f"{value} on {host}" for host, value in list(odd.items())[:MAX_NAMED]) + f", {common[0][0]} elsewhere"


MAX_HOST_WARNINGS = 20
"""A campaign may have hundreds of hosts; preflight.json lists all warnings."""


def preflight_cautions(preflight: Path) -> Iterator[Caution]:
    """Checks of this machine and the hosts that failed without refusing the campaign: they may explain figures."""
    for check in _preflight_warnings(preflight)[:MAX_HOST_WARNINGS]:
        # On this machine, most warn of an error that would have been seen.
        effect = f" It may show in the figures ({check.prevents})." if check.hosts or check.noise else ""
        text = f"Before the campaign, {check.name}: {check.found}.{effect} {_sentence(check.fix)}"
        yield Caution(kind="host_warning", subject=", ".join(check.hosts[:4]), numbers={"hosts": len(check.hosts)}, text=text)


def preflight_causes(preflight: Path) -> tuple[JitterCause, ...]:
    """What was found before the campaign that makes step times vary; whether it was still so during the runs is unknown."""
    return tuple(
        JitterCause(
            kind=PREFLIGHT,
            text=f"Seen before the start, {check.name}: {check.found}. {_sentence(check.fix)}",
            numbers={"found": check.found},
            file=preflight.name,
            window="before the first run",
            n=1,
        )
        for check in _preflight_warnings(preflight)
        if check.noise
    )


def read_checks(preflight: Path) -> list[Check]:
    """The checks in preflight.json; [] where it is absent or damaged."""
    written = files.read_json(preflight)
    return [check for one in (written if isinstance(written, list) else []) if (check := from_json_or_none(Check, one))]


def _preflight_warnings(preflight: Path) -> list[Check]:
    return [check for check in read_checks(preflight) if not check.ok and not check.refuses]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
