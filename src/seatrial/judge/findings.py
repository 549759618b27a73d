"""Findings beside the criteria, each with its evidence: winner, stability and its causes, drift, leaks, stragglers, steady state, slow
steps, failures, debug settings, whether the ranks trained together.

In: the campaign. Out: findings without a criterion, the most severe first. None changes the exit code; for that, a plan names
the metric in a criterion. A few runs get a finding each; many with the same one share it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.core.paths import ATTEMPT_FILES
from seatrial.core.text import count, format_duration, format_number
from seatrial.judge.advice import cause_advice, causes_seen
from seatrial.judge.cross_run_criteria import drift_evidence
from seatrial.judge.evidence import (
    FILES,
    MAX_APART,
    NO_SAMPLES,
    JudgedCampaign,
    attempt_file,
    failed_by_platform,
    fault,
    held_up_evidence,
    inconclusive_text,
    interval_text,
    listed,
    outcome_file,
    run_window,
    slope_text,
    steps_text,
    straggler_evidence,
    trend_evidence,
    window_text,
)
from seatrial.records.caution import SMALLER_WORLD, WORLD_UNKNOWN
from seatrial.records.measure import (
    DebugSetting,
    GroupStability,
    GroupSummary,
    MemoryTrend,
    MemoryVerdict,
    SlowSteps,
    StabilityVerdict,
    Straggler,
    StragglerVerdict,
    Window,
)
from seatrial.records.outcome import Fault, RunOutcome
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Evidence, Finding, Verdict

_SEVERITY = {Verdict.FAIL: 0, Verdict.INCONCLUSIVE: 1, Verdict.PASS: 2}
_VERDICTS = {
    StabilityVerdict.STABLE: Verdict.PASS,
    StabilityVerdict.UNSTABLE: Verdict.FAIL,
    StabilityVerdict.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}
# Not the verdict's own name: `stability:inconclusive` might be a group.
_IDS = {StabilityVerdict.STABLE: "stability-stable", StabilityVerdict.INCONCLUSIVE: "stability-unclear"}
# The causes of a reason are given as advice.
_CAUSES_BEGIN = " Why: "
STRAGGLER_KINDS = ("slow_rank", "slow_host")
RunTrend = tuple[MeasuredRun, MemoryTrend]
RunStraggler = tuple[MeasuredRun, Straggler]
RunSlowSteps = tuple[MeasuredRun, SlowSteps]
# Above this share of a run's time slow steps are a problem, below it they are only named. The criteria presets allow the same difference
# in speed.
SEVERE_TIME_SHARE = 0.05
MAX_STEPS_NAMED = 3
MAX_LINES = 3
_FAULTS = {
    Fault.INFRASTRUCTURE: "the platform's fault",
    Fault.CONFIGURATION: "caused by its settings",
    Fault.CODE: "caused by the script",
}


def other_findings(campaign: JudgedCampaign) -> tuple[Finding, ...]:
    """Every finding that no criterion asked for, by verdict."""
    if not campaign.finished:
        return ()
    found = [
        *failure_findings(campaign),
        *leak_findings(campaign),
        *straggler_findings(campaign),
        *stability_findings(campaign),
        *cause_findings(campaign),
        *drift_finding(campaign),
        *debug_findings(campaign),
        *process_group_findings(campaign),
        *steady_findings(campaign),
        *slow_step_findings(campaign),
        *winner_finding(campaign),
    ]
    return tuple(sorted(found, key=lambda finding: _SEVERITY[finding.verdict]))


def winner_finding(campaign: JudgedCampaign) -> Iterator[Finding]:
    """PASS when the winner is significantly better than every other group, no run is pending and none failed because of the platform."""
    ranking, failed = campaign.ranking, campaign.platform_failures
    chosen = campaign.group(ranking.recommended)
    reason = ranking.reason.rstrip(".") or "No group could be ranked"
    if chosen is None:
        yield Finding(id="winner", kind="winner", verdict=Verdict.INCONCLUSIVE, text=f"No winner. {reason}.")
        return
    value = chosen.figures.get(ranking.metric)
    figure = f" with {format_number(value.mean)} {ranking.unit}".rstrip() if value else ""
    figure += f", {ranking.condition}" if ranking.condition else ""
    sure = ranking.winner == chosen.group and not failed and not campaign.pending
    rival = next((row for row in ranking.groups if row.can_win and row.group != chosen.group), None)
    because = f", for {ranking.recommended_reason}" if ranking.recommended_reason else ""
    unproven = f"No winner is proven: {reason}. Recommended: {chosen.group}{figure}{because}"
    # A run that failed because of the platform might have been faster.
    again = f"Run {'it' if len(failed) == 1 else 'them'} again before naming a winner"
    platform = f". {count(len(failed), 'run')} failed because of the platform: {listed(failed)}. {again}" if failed else ""
    pending = f"; {count(len(campaign.pending), 'run')} pending" if campaign.pending else ""
    yield Finding(
        id="winner",
        kind="winner",
        verdict=Verdict.PASS if sure else Verdict.INCONCLUSIVE,
        text=f"{f'{chosen.group} wins{figure}: {reason}{_rival_text(rival)}' if sure else unproven}{pending}{platform}.",
        evidence=tuple(_ranking_evidence(row, group, campaign) for row in ranking.groups if (group := campaign.group(row.group))),
    )


def _rival_text(rival: RankedGroup | None) -> str:
    if rival is None:
        return ""
    ratio = rival.ratio
    if ratio is None:
        return f"; next is {rival.group}"
    ends = (
        f", {interval_text()} {ratio.low:.4g} to {ratio.high:.4g}" if ratio.low is not None and ratio.high is not None else ", no interval"
    )
    return f"; next is {rival.group} at {ratio.mean:.4g} of the best mean{ends}"


def _ranking_evidence(row: RankedGroup, group: GroupSummary, campaign: JudgedCampaign) -> Evidence:
    return Evidence(
        subject=row.group,
        name=campaign.ranking.metric,
        value=row.value,
        unit=campaign.ranking.unit,
        file=FILES.ranked_groups.name,
        window=f"{count(group.window_n, 'step')} in the windows of {count(group.runs, 'run')}",
        n=group.runs,
    )


def stability_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """One finding for each unstable group, one for all stable groups, one for all inconclusive ones."""
    judged = [(group, group.stability) for group in campaign.groups if group.stability]
    for group, found in judged:
        if found.verdict is StabilityVerdict.UNSTABLE:
            yield Finding(
                id=f"stability:{group.group}",
                kind="stability",
                verdict=Verdict.FAIL,
                text=f"{group.group} is not stable: {_reason_text(found)}.",
                evidence=_stability_evidence(group, found),
                advice=cause_advice(found.causes, group.group),
            )
    for verdict in (StabilityVerdict.INCONCLUSIVE, StabilityVerdict.STABLE):
        yield from _together(verdict, [(group, found) for group, found in judged if found.verdict is verdict])


def _together(verdict: StabilityVerdict, judged: list[tuple[GroupSummary, GroupStability]]) -> Iterator[Finding]:
    if not judged:
        return
    one, found = judged[0]
    several = len(judged) > 1
    subject = f"{len(judged)} groups are stable ({listed([group.group for group, _ in judged])})" if several else f"{one.group} is stable"
    start = subject if verdict is StabilityVerdict.STABLE else f"Unknown whether {subject}"
    # A common reason stands alone; otherwise the first group's, under its name.
    prefix = f"; {one.group}: " if len({each.reason for _, each in judged}) > 1 else ": "
    yield Finding(
        id=_IDS[verdict] if several else f"stability:{one.group}",
        kind="stability",
        verdict=_VERDICTS[verdict],
        text=f"{start}{prefix}{_reason_text(found)}.",
        evidence=tuple(evidence for group, each in judged for evidence in _stability_evidence(group, each)),
    )


def _reason_text(found: GroupStability) -> str:
    """The reason without the verdict at its beginning and the causes at its end."""
    return found.reason.split(_CAUSES_BEGIN)[0].rstrip(".").partition(": ")[2]


def _stability_evidence(group: GroupSummary, found: GroupStability) -> tuple[Evidence, ...]:
    values = (
        ("median p90/p50", found.ratio_median, ""),
        ("highest p90/p50", found.ratio_max, ""),
        ("spread over repeats", found.cv_pct, "%"),
        ("share of unstable runs", found.unstable_run_ratio, ""),
    )
    return tuple(
        Evidence(
            subject=group.group,
            name=name,
            value=value,
            unit=unit,
            file=FILES.group_summary.name,
            window="the last timing window of each run" if "p90" in name or "unstable" in name else "the window of each run",
            n=found.runs,
        )
        for name, value, unit in values
        if value is not None
    )


def drift_finding(campaign: JudgedCampaign) -> Iterator[Finding]:
    drift = campaign.drift
    if drift is not None:
        text = f"{drift.reason.rstrip('.')}."
        yield Finding(id="drift", kind="drift", verdict=_VERDICTS[drift.verdict], text=text, evidence=drift_evidence(drift))


def cause_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """One finding for each kind of cause, in the order of the runs. Causes of an unstable group are in its own finding; a slow rank is a
    straggler."""
    unstable = [group.stability for group in campaign.groups if group.stability and group.stability.verdict is StabilityVerdict.UNSTABLE]
    reported = {*STRAGGLER_KINDS, *(cause.kind for stability in unstable for cause in stability.causes)}
    for seen in causes_seen(campaign.ok, reported):
        yield Finding(id=f"cause:{seen.id}", kind="cause", verdict=Verdict.FAIL, text=seen.text, evidence=seen.evidence)


def leak_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """Every leak; then the other runs that ended ok: undecided ones and those without a leak."""
    trends = [(run, trend) for run in campaign.finished if run.measure for trend in run.measure.memory]
    leaks = [(run, trend) for run, trend in trends if trend.verdict is MemoryVerdict.LEAK]
    for key in dict.fromkeys(_key(trend) for _, trend in leaks):
        yield from _leaks(key, [(run, trend) for run, trend in leaks if _key(trend) == key])
    leaking = {run.attempt.spec.run for run, _ in leaks}
    yield from _not_leaking([run for run in campaign.ok if run.attempt.spec.run not in leaking and run.measure], len(campaign.ok))


def _key(trend: MemoryTrend) -> str:
    """`host`, `gpu0`: part of an id."""
    return "host" if trend.kind == "host" else trend.subject.lower().replace(" ", "")


def _leaks(key: str, leaks: Sequence[RunTrend]) -> Iterator[Finding]:
    worst = sorted(leaks, key=lambda pair: -(pair[1].slope_mib_per_min or 0.0))
    if len(worst) <= MAX_APART:
        for run, trend in worst:
            name = run.attempt.spec.run
            yield _leak(f"leak:{name}:{key}", f"{name} leaks", trend, [(run, trend)])
        return
    run, trend = worst[0]
    names = listed([one.attempt.spec.run for one, _ in worst])
    yield _leak(f"leak:{key}", f"{count(len(worst), 'run')} leak ({names}), the worst, {run.attempt.spec.run}", trend, worst)


def _leak(name: str, subject: str, trend: MemoryTrend, leaks: Sequence[RunTrend]) -> Finding:
    span = trend.last_t - trend.first_t if trend.first_t is not None and trend.last_t is not None else None
    over = f", {count(trend.n, 'sample')}" + (f" over {format_duration(span)}" if span is not None else "")
    per_steps = f", {trend.mib_per_1000_steps:.4g} MiB in 1,000 steps" if trend.mib_per_1000_steps is not None else ""
    least = f", {format_duration(trend.hours_low * 3600)} at the steepest" if trend.hours_low is not None else ""
    full = f"; full in {format_duration(trend.hours_left * 3600)}{least}" if trend.hours_left is not None else ""
    return Finding(
        id=name,
        kind="leak",
        verdict=Verdict.FAIL,
        text=f"{subject}: {trend.subject} {slope_text(trend)}{per_steps}{over}{full}.",
        evidence=tuple(evidence for run, each in leaks for evidence in trend_evidence(run, each)),
    )


def _not_leaking(runs: Sequence[MeasuredRun], of: int) -> Iterator[Finding]:
    level = [run for run in runs if _is_level(run)]
    inconclusive = [run for run in runs if not _is_level(run)]
    if inconclusive:
        trends = inconclusive[0].measure.memory if inconclusive[0].measure else ()
        why = next((inconclusive_text(trend) for trend in trends if trend.verdict is MemoryVerdict.INCONCLUSIVE), NO_SAMPLES)
        yield Finding(
            id="leak-unknown",
            kind="leak",
            verdict=Verdict.INCONCLUSIVE,
            text=f"Unknown whether memory leaks in {_subject(inconclusive, of)}: {why}.",
            evidence=_trends(inconclusive),
        )
    if level:
        samples = sum(trend.n for run in level if run.measure for trend in run.measure.memory)
        text = f"No leak in {count(len(level), 'run')}: no growth after warm-up ({count(samples, 'sample')})."
        yield Finding(id="leak-none", kind="leak", verdict=Verdict.PASS, text=text, evidence=_trends(level))


def _subject(runs: Sequence[MeasuredRun], of: int) -> str:
    """'mb8_r1', 'any of 6 runs', '2 runs (mb8_r1, mb8_r2)'."""
    if len(runs) == 1:
        return runs[0].attempt.spec.run
    if len(runs) == of:
        return f"any of {count(of, 'run')}"
    return f"{count(len(runs), 'run')} ({listed([run.attempt.spec.run for run in runs])})"


def _is_level(run: MeasuredRun) -> bool:
    trends = run.measure.memory if run.measure else ()
    return bool(trends) and all(trend.verdict is MemoryVerdict.PLATEAU for trend in trends)


def _trends(runs: Sequence[MeasuredRun]) -> tuple[Evidence, ...]:
    trends = ((run, trend) for run in runs if run.measure for trend in run.measure.memory)
    return tuple(evidence for run, trend in trends for evidence in trend_evidence(run, trend))


def straggler_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """Every straggler; then how many runs have none or are inconclusive. Runs of a single rank are left out."""
    judged = [(run, run.measure.straggler) for run in campaign.finished if run.measure and run.measure.straggler]
    named = [pair for pair in judged if pair[1].verdict is StragglerVerdict.NAMED]
    for location in dict.fromkeys(_rank_location(found) for _, found in named):
        yield _straggler([pair for pair in named if _rank_location(pair[1]) == location])
    ok = {run.attempt.spec.run for run in campaign.ok}
    judged_ok = [pair for pair in judged if pair[0].attempt.spec.run in ok]
    yield from _abstained([pair for pair in judged_ok if pair[1].verdict is StragglerVerdict.ABSTAINED], len(campaign.ok))
    yield from _without([pair for pair in judged_ok if pair[1].verdict is StragglerVerdict.NONE])


def _rank_location(found: Straggler) -> tuple[int | None, str, str, str]:
    return found.rank, found.host, found.gpu, found.phase


def _straggler(pairs: Sequence[RunStraggler]) -> Finding:
    """One finding for a rank at one location; the score is the highest of its runs."""
    worst, found = max(pairs, key=lambda pair: pair[1].score or 0.0)
    runs = listed([run.attempt.spec.run for run, _ in pairs])
    where = ", ".join(part for part in (found.host, f"GPU {found.gpu}" if found.gpu else "") if part)
    phase = f" in {found.phase}" if found.phase else ""
    held = f", {found.held_up_ms:.4g} ms of each step" if found.held_up_ms is not None else ""
    run_name = f"{worst.attempt.spec.run}, " if len(pairs) > 1 else ""
    # Extra work inside the synchronising phase is invisible.
    score = (
        f": it works at least {found.score * 100:.0f} % longer than the others{held} ({run_name}{steps_text(found)})"
        if found.score is not None
        else ""
    )
    rank = f"rank {found.rank}{f' ({where})' if where else ''}"
    if found.slow_host:
        rank = f"host {found.slow_host} (all its {found.slow_host_ranks} ranks and no others, rank {found.rank} most)"
    return Finding(
        id=f"straggler:{pairs[0][0].attempt.spec.run}:rank{found.rank}",
        kind="straggler",
        verdict=Verdict.FAIL,
        text=f"{rank[0].upper()}{rank[1:]} holds up {runs}{phase}{score}.",
        evidence=tuple(of(run, each) for run, each in pairs for of in (straggler_evidence, held_up_evidence)),
    )


def _abstained(pairs: Sequence[RunStraggler], of: int) -> Iterator[Finding]:
    if pairs:
        subject = _subject([run for run, _ in pairs], of)
        yield Finding(
            id="straggler-unknown",
            kind="straggler",
            verdict=Verdict.INCONCLUSIVE,
            text=f"Unknown whether a rank holds up {subject}: {pairs[0][1].reason.rstrip('.')}.",
            evidence=tuple(straggler_evidence(run, found) for run, found in pairs),
        )


def _without(pairs: Sequence[RunStraggler]) -> Iterator[Finding]:
    if pairs:
        steps = sum(found.n for _, found in pairs)
        yield Finding(
            id="straggler-none",
            kind="straggler",
            verdict=Verdict.PASS,
            text=f"No straggler in {count(len(pairs), 'run')} ({count(steps, 'step')}).",
            evidence=tuple(straggler_evidence(run, found) for run, found in pairs),
        )


def failure_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """Each cause and message once, with where the fault lies and what to do."""
    together: dict[tuple[str, ...], list[tuple[MeasuredRun, RunOutcome]]] = {}
    for run in (*campaign.failed, *campaign.platform_failed):
        outcome = run.attempt.outcome
        if outcome:
            key = (outcome.cause.value, outcome.signature, outcome.action, outcome.message)
            together.setdefault(key, []).append((run, outcome))
    seen: dict[str, int] = {}
    for (cause, *_), failures in together.items():
        seen[cause] = seen.get(cause, 0) + 1
        yield _failure(f"failure:{cause}" + (f":{seen[cause]}" if seen[cause] > 1 else ""), failures)


def _failure(name: str, failures: Sequence[tuple[MeasuredRun, RunOutcome]]) -> Finding:
    run, outcome = failures[0]
    at_fault = fault(run)
    text = f", {_FAULTS[at_fault]}" if at_fault in _FAULTS else ""
    action = f" What to do: {outcome.action}" if outcome.action else ""
    # Only an unknown cause has lines to look at.
    lines = f" First lines to look at: {' | '.join(outcome.telling[:MAX_LINES])}." if outcome.telling else ""
    again = " It does not count against the group: run it again." if failed_by_platform(run) else ""
    names = listed([one.attempt.spec.run for one, _ in failures])
    return Finding(
        id=name,
        kind="failure",
        verdict=Verdict.INCONCLUSIVE if failed_by_platform(run) else Verdict.FAIL,
        text=f"{names}: {outcome.outcome.value}, {outcome.cause.value}{text}. {outcome.detail}".rstrip(". ") + f".{lines}{action}{again}",
        evidence=tuple(
            Evidence(
                subject=one.attempt.spec.run,
                name="cause",
                value=ended.cause.value,
                file=outcome_file(one),
                window=f"whole run, {ended.duration_s:.1f} s",
                n=1,
            )
            for one, ended in failures
        ),
    )


def debug_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """Each debug setting once: figures measured with it are not those of a plain run."""
    together: dict[tuple[str, str], list[tuple[MeasuredRun, DebugSetting]]] = {}
    for run in campaign.finished:
        for setting in run.measure.debug if run.measure else ():
            together.setdefault((setting.name, setting.value), []).append((run, setting))
    for (name, value), found in together.items():
        # A run may show the same setting twice, in its environment and in its log.
        runs = list(dict.fromkeys(run.attempt.spec.run for run, _ in found))
        several = sum(other == name for other, _ in together) > 1
        varied = all(setting.varied for _, setting in found)
        advice = "The plan turns it on: differences include its cost." if varied else "Measure without it."
        yield Finding(
            id=f"debug:{name}={value}" if several else f"debug:{name}",
            kind="debug",
            verdict=Verdict.INCONCLUSIVE,
            text=f"{name}={value} was on in {listed(runs)}: {found[0][1].why.rstrip('.')}. {advice}",
            evidence=tuple(_debug_evidence(run, setting) for run, setting in found),
        )


def _debug_evidence(run: MeasuredRun, setting: DebugSetting) -> Evidence:
    file, window = setting.file, f"line {setting.line}" if setting.line else run_window(run)[0]
    return Evidence(subject=run.attempt.spec.run, name=setting.name, value=setting.value, file=attempt_file(run, file), window=window, n=1)


def process_group_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """Runs whose ranks may not have trained together."""
    together: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in campaign.ok:
        for caution in run.measure.cautions if run.measure else ():
            if caution.kind in (WORLD_UNKNOWN, SMALLER_WORLD):
                together.setdefault((caution.kind, caution.text), []).append(run)
    for position, ((kind, text), runs) in enumerate(together.items(), start=1):
        file = ATTEMPT_FILES.observed_ranks.name if kind == WORLD_UNKNOWN else ATTEMPT_FILES.launcher_log.name
        yield Finding(
            id="process_group" if len(together) == 1 else f"process_group-{position}",
            kind="process_group",
            verdict=Verdict.INCONCLUSIVE,
            text=f"{text} ({listed([run.attempt.spec.run for run in runs])})",
            evidence=tuple(
                Evidence(subject=run.attempt.spec.run, name="ranks", value=run.attempt.spec.place.ranks, file=attempt_file(run, file), n=1)
                for run in runs
            ),
        )


def steady_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """Runs without a steady state, with the reason; and how many have one."""
    windows = [(run, run.measure.window) for run in campaign.ok if run.measure and run.measure.window]
    yield from _unsteady([(run, window) for run, window in windows if not window.steady])
    steady = [(run, window) for run, window in windows if window.steady]
    if steady:
        warmup = max(window.warmup_steps for _, window in steady)
        num_steps = sum(window.n for _, window in steady)
        text = f"{count(len(steady), 'run')} reached a steady state, after {count(warmup, 'step')} of warm-up at most; "
        text += f"{count(num_steps, 'step')} {'counts' if num_steps == 1 else 'count'}."
        yield _steady("steady_state", Verdict.PASS, text, steady)


def _unsteady(found: Sequence[tuple[MeasuredRun, Window]]) -> Iterator[Finding]:
    """A few get a finding each, with their own reasons; many share one, with the first one's reason."""
    several = len(found) > MAX_APART
    for part in [found] if several else [[one] for one in found]:
        run, window = part[0]
        subject = f"{count(len(part), 'run')} ({listed([one.attempt.spec.run for one, _ in part])})" if several else run.attempt.spec.run
        prefix = f"of {run.attempt.spec.run}: " if several else ""
        yield _steady(
            "steady_state-none" if several else f"steady_state:{run.attempt.spec.run}",
            Verdict.INCONCLUSIVE,
            f"No steady state in {subject}: {prefix}{window.reason.rstrip('.') or 'too few steps'}.",
            part,
        )


def _steady(name: str, verdict: Verdict, text: str, found: Sequence[tuple[MeasuredRun, Window]]) -> Finding:
    evidence = tuple(
        Evidence(
            subject=run.attempt.spec.run,
            name="steps of warm-up",
            value=window.warmup_steps,
            unit="steps",
            file=FILES.per_run_metrics.name,
            window=window_text(window),
            n=window.n,
        )
        for run, window in found
    )
    return Finding(id=name, kind="steady_state", verdict=verdict, text=text, evidence=evidence)


def slow_step_findings(campaign: JudgedCampaign) -> Iterator[Finding]:
    """Slow steps count like all others; they are a problem where they take much of the time."""
    found = [
        (run, run.measure.slow_steps) for run in campaign.ok if run.measure and run.measure.slow_steps and run.measure.slow_steps.count
    ]
    severe = [(run, slow) for run, slow in found if slow.time_share > SEVERE_TIME_SHARE]
    minor = [(run, slow) for run, slow in found if slow.time_share <= SEVERE_TIME_SHARE]
    yield from _slow_steps("slow_steps", Verdict.FAIL, severe)
    yield from _slow_steps("slow_steps-few", Verdict.PASS, minor)


def _slow_steps(name: str, verdict: Verdict, found: Sequence[RunSlowSteps]) -> Iterator[Finding]:
    if not found:
        return
    run, slow = max(found, key=lambda pair: pair[1].time_share)
    worst = ", ".join(f"{one.step} ({one.ms:.4g} ms, {one.over_median:.3g} × the median)" for one in slow.worst[:MAX_STEPS_NAMED])
    window, n = run_window(run)
    subject = run.attempt.spec.run if len(found) == 1 else f"{count(len(found), 'run')}, most in {run.attempt.spec.run}"
    steps = f"{slow.count} of {count(n or 0, 'step')} {'takes' if slow.count == 1 else 'take'}"
    share = f"{slow.time_share * 100:.1f} % of its time in excess of the median"
    yield Finding(
        id=name,
        kind="slow_steps",
        verdict=verdict,
        text=f"Slow steps in {subject}: {steps} {share} ({window}): {worst}.",
        evidence=tuple(evidence for one, each in found for evidence in _slow_evidence(one, each)),
    )


def _slow_evidence(run: MeasuredRun, slow: SlowSteps) -> Iterator[Evidence]:
    """The share of the time, and each named step."""
    window, n = run_window(run)
    name = run.attempt.spec.run
    share = slow.time_share * 100
    yield Evidence(subject=name, name="time of slow steps", value=share, unit="%", file=FILES.per_run_metrics.name, window=window, n=n)
    for step in slow.worst:
        yield Evidence(
            subject=name, name=f"time of step {step.step}", value=step.ms, unit="ms", file=FILES.verdict.name, window=window, n=1
        )
