"""A plausible campaign, made by hand: four groups of two repeats on two axes.

mb16_nw2          fastest, tied with mb16_nw0; prints warnings that mean nothing
mb16_nw0          its first repeat was started twice; attempt 1 is old and must not count
mb8_nw2           the second repeat ran out of GPU memory
[b]mb8|`nw0`<i>   off the main lane, named to break markup; its second repeat is still to be run
"""

from __future__ import annotations

import dataclasses
from typing import Any

from seatrial.judge.verdict import judge
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.caution import Caution
from seatrial.records.eta import EtaPoint, EtaQuality
from seatrial.records.measure import EffectiveSetting, Estimate, GroupSummary, HarmlessCount, RunHealth, RunMeasure, TimingPoint, Window
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, LauncherSpec, PlaceSpec, RunSpec, TimingSpec, WorkloadSpec
from seatrial.records.ranking import RankedGroup, Ranking
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.verdict import Criterion

GENERATED_T = 1_767_225_600.0
ODD = "[b]mb8|`nw0`<i>"
OOM_LINE = "torch.OutOfMemoryError: CUDA out of memory. [red]Tried[/red] to allocate 2.00 GiB | <script>"
CRITERIA = (Criterion(metric="failed_runs", scope="campaign", at_most=0), Criterion(metric="loss_falls", scope="every_run"))
AXES = {
    "mb16_nw2": {"micro_batch": 16, "loader": "fork"},
    "mb16_nw0": {"micro_batch": 16, "loader": "[bold]none[/bold]"},
    "mb8_nw2": {"micro_batch": 8, "loader": "fork"},
    ODD: {"micro_batch": 8, "loader": "a|b"},
}
SAMPLES_PER_S = {"mb16_nw2": (1270.0, 1262.0), "mb16_nw0": (1251.0, 1266.0), "mb8_nw2": (840.0, 833.0), ODD: (790.5, 788.0)}
P90_OVER_P50 = {"mb16_nw2": 1.08, "mb16_nw0": 1.14, "mb8_nw2": 1.11, ODD: 1.32}


def spec(group: str, repeat: int, **changes: Any) -> RunSpec:
    """What one run was to do."""
    made = RunSpec(
        run=f"{group}_r{repeat}",
        group=group,
        repeat=repeat,
        hash=f"hash-{group}-{repeat}",
        group_key=f"key-{group}",
        plan="demo",
        lane=group != ODD,
        workload=WorkloadSpec(name="tiny_lm", module="seatrial_workloads.tiny_lm.train"),
        settings={"d_model": 128, "num_workers": 2, **AXES.get(group, {})},
        axes=dict(AXES.get(group, {})),
        labels={"micro_batch": "mb", "loader": "ld"},
        launcher=LauncherSpec(kind="torchrun"),
        place=PlaceSpec(ranks=2),
        cwd="/home/user/job",
        steps=200,
        timing=TimingSpec(log_every=50),
    )
    return dataclasses.replace(made, **changes)


def provenance(**changes: Any) -> Provenance:
    made = Provenance(
        host="node-1",
        platform="Linux-6.8-x86_64",
        python="3.11.9",
        packages={"torch": "2.13.0"},
        cpu="Example CPU 9000",
        cpu_count=2,
        memory_bytes=8 * 1024**3,
        git_commit_hash="0123456789abcdef0123",
        git_branch="main",
        git_dirty="false",
        fingerprint="f00dfeed",
    )
    return dataclasses.replace(made, **changes)


def outcome(run_spec: RunSpec, number: int, how: Outcome, **changes: Any) -> RunOutcome:
    started_t = GENERATED_T - 600.0
    made = RunOutcome(
        run=run_spec.run,
        attempt=number,
        hash=run_spec.hash,
        outcome=how,
        exit_code=0 if how is Outcome.OK else 1,
        started_t=started_t,
        ended_t=started_t + 31.5,
        duration_s=31.5,
        port=29501,
    )
    return dataclasses.replace(made, **changes)


def measure(samples_per_s: float, *, steady: bool = True, loss_falls: bool | None = True, **changes: Any) -> RunMeasure:
    p50_ms = 16 * 2 * 1000 / samples_per_s
    made = RunMeasure(
        source="events",
        window=Window(first_step=20, last_step=199, n=178, warmup_steps=20, excluded_steps=2, steady=steady),
        window_s=178 * p50_ms / 1000,
        world_size=2,
        steps_per_s=samples_per_s / 32,
        samples_per_s=samples_per_s,
        tokens_per_s=samples_per_s * 128,
        wall_p50_ms=p50_ms,
        wall_p90_ms=p50_ms * 1.1,
        wall_p99_ms=p50_ms * 1.4,
        wall_p90_over_p50=1.1,
        last_step=199,
        startup_s=4.25,
        startup={"launch": 0.5, "import": 1.0, "model": 0.75, "first_step": 1.5, "other": 0.5},
        first_loss=5.5,
        last_loss=3.25,
        loss_falls=loss_falls,
        duration_s=31.5,
        effective={
            "precision_mode": EffectiveSetting(
                name="precision_mode", requested="auto", effective="fp32", reason="no GPU: bf16 would be slower"
            )
        },
        stage1=_run_stage1(p50_ms),
        eta_points=eta_points(p50_ms),
        eta_quality=EtaQuality(
            points=3, median_error_s=0.1, p90_error_s=0.14, median_fraction=0.02, p90_fraction=0.028, covered=2 / 3, length_s=5.0
        ),
        timing_points=(TimingPoint(index=1, step=50, values={"iter_ms_p50": p50_ms, "iter_ms_p90": p50_ms * 1.1}),),
    )
    return dataclasses.replace(made, **changes)


def eta_points(p50_ms: float) -> tuple[EtaPoint, ...]:
    """Three estimates that are 0.05, 0.1 and 0.15 s too long; the interval of the last does not hold the truth."""
    truth_s = [(199 - step) * p50_ms / 1000 for step in (50, 100, 150)]
    return tuple(
        EtaPoint(
            index=index,
            step=50 * (index + 1),
            remain_steps=149 - 50 * index,
            eta_s=left_s + 0.05 * (index + 1),
            mode="rank0",
            source="events",
            low_s=left_s - 0.1 if index < 2 else left_s + 0.1,
            high_s=left_s + 0.3,
            basis_iter_ms=p50_ms,
            samples=50,
            actual_s=left_s,
        )
        for index, left_s in enumerate(truth_s)
    )


def _run_stage1(p50_ms: float) -> dict[str, Any]:
    return {
        "timing_points": 4,
        "tail_points_used": 4,
        "eta_points": 3,
        "eta_first_step": 50,
        "eta_first_sec": 3.8,
        "eta_first_hms": "00:00:04",
        "eta_last_step": 150,
        "eta_last_sec": 1.4,
        "eta_last_hms": "00:00:02",
        "eta_mode_effective": "rank0",
        "last_step": 199,
        "last_iter_p50_ms": p50_ms,
        "tail_mean_iter_p50_ms": p50_ms,
        "tail_mean_iter_p90_ms": p50_ms * 1.1,
        "iter_p90_over_p50": 1.1,
        "rank_iter_spread_p90_ms": float("nan"),
        "unstable_run_flag": 0,
        "tail_steps_per_sec": 1000 / p50_ms,
        "tail_samples_per_sec": 32_000 / p50_ms,
    }


def measured(
    group: str, repeat: int, *, number: int = 1, how: Outcome | None = Outcome.OK, current: bool = True, **changes: Any
) -> MeasuredRun:
    """One attempt; `changes` go to its outcome."""
    run_spec = spec(group, repeat)
    ended = outcome(run_spec, number, how, **changes) if how else None
    attempt = Attempt(
        folder=f"out/{run_spec.run}/attempt-{number}",
        number=number,
        spec=run_spec,
        outcome=ended,
        provenance=provenance(),
        current=current,
    )
    rate = SAMPLES_PER_S.get(group, (100.0, 100.0))[repeat - 1]
    return MeasuredRun(attempt=attempt, measure=measure(rate, health=health(group)) if how is Outcome.OK else None)


def health(group: str) -> RunHealth:
    """Of a run that ended well."""
    said = (
        HarmlessCount(id="triton_autotune", meaning="A folder is not there | yet.", lines=1),
        HarmlessCount(id="destroy_process_group", meaning="The process group ended with its process.", lines=2),
    )
    return RunHealth(ranks=2, ranks_ended_well=2, harmless=said if group == "mb16_nw2" else ())


def oom(group: str, repeat: int) -> MeasuredRun:
    """It said why; one of its ranks ended in good order."""
    failed = _oom(group, repeat)
    seen = RunHealth(ranks=2, ranks_ended_well=1, tracebacks=1)
    return dataclasses.replace(failed, measure=RunMeasure(source="whole", world_size=2, duration_s=12.0, health=seen))


def _oom(group: str, repeat: int) -> MeasuredRun:
    return measured(
        group,
        repeat,
        how=Outcome.FAILED,
        cause=Cause.CUDA_OOM,
        detail=f"A GPU ran out of memory: {OOM_LINE}",
        action="Lower micro_batch, or raise the ZeRO stage.",
        duration_s=12.0,
        log_tail=("step 3", "Traceback (most recent call last):", '  File "train.py", line 9', OOM_LINE),
    )


def runs() -> tuple[MeasuredRun, ...]:
    return (
        measured(ODD, 1),
        measured("mb16_nw0", 1, how=Outcome.TIMEOUT, current=False, cause=Cause.RUN_LIMIT),
        measured("mb16_nw0", 1, number=2),
        measured("mb16_nw0", 2),
        measured("mb16_nw2", 1),
        measured("mb16_nw2", 2),
        measured("mb8_nw2", 1),
        oom("mb8_nw2", 2),
    )


def summary(group: str, *, failed: int = 0, counted: int = 2, spread: float = 0.01, **changes: Any) -> GroupSummary:
    rate = SAMPLES_PER_S[group][0]
    n = counted

    def estimate(mean: float) -> Estimate:
        return Estimate(mean=mean, low=mean * (1 - spread), high=mean * (1 + spread), n=n) if n > 1 else Estimate(mean=mean, n=n)

    made = GroupSummary(
        group=group,
        group_key=f"key-{group}",
        mode="sweep",
        lane=group != ODD,
        axes=dict(AXES[group]),
        runs=counted,
        failed_runs=failed,
        figures={
            "samples_per_s": estimate(rate),
            "tokens_per_s": estimate(rate * 128),
            "steps_per_s": estimate(rate / 32),
            "wall_p50_ms": estimate(32_000 / rate),
            "wall_p90_over_p50": estimate(P90_OVER_P50[group]),
            "startup_s": estimate(4.25),
            "duration_s": estimate(31.5),
        },
        window_n=178 * counted,
        stage1=_group_stage1(group, rate, counted),
    )
    return dataclasses.replace(made, **changes)


def _group_stage1(group: str, rate: float, counted: int) -> dict[str, Any]:
    p50_ms = 32_000 / rate
    return {
        "runs": counted,
        "micro_batch": AXES[group]["micro_batch"],
        "num_workers": 2,
        "precision_mode_effective": "fp32",
        "gpu_name": "",
        "git_branch": "main",
        "tail_mean_iter_p50_ms_mean": p50_ms,
        "tail_mean_iter_p90_ms_mean": p50_ms * 1.1,
        "iter_p90_over_p50_mean": 1.1,
        "tail_steps_per_sec_mean": 1000 / p50_ms,
        "tail_samples_per_sec_mean": rate,
        "unstable_run_count": 0,
        "unstable_run_ratio": 0.0,
        "stability_score": 1.1,
        "speedup_vs_baseline": None,
        "rank_by_iter_p50": {1270.0: 1, 1251.0: 2, 840.0: 3}.get(rate),
        "rank_by_stability": {1270.0: 2, 1251.0: 1, 840.0: 3}.get(rate),
        "rank_balanced": {1270.0: 1, 1251.0: 2, 840.0: 3}.get(rate),
    }


def groups() -> tuple[GroupSummary, ...]:
    few = Caution(kind="one_repeat", text="Only one run counts: no interval can be given; set repeats to 3 or more.", subject=ODD)
    return (
        summary(ODD, counted=1, cautions=(few,)),
        summary("mb16_nw0", spread=0.02),
        summary("mb16_nw2"),
        summary("mb8_nw2", failed=1, counted=1),
    )


def ranked(rank: int, group: GroupSummary, **more: Any) -> RankedGroup:
    return RankedGroup(rank=rank, summary=group, estimate=group.figures.get("samples_per_s"), **more)


def ranking(**changes: Any) -> Ranking:
    made = Ranking(
        metric="samples_per_s",
        unit="samples/s",
        higher_is_better=True,
        groups=(
            ranked(1, summary("mb16_nw2"), tied=True),
            ranked(
                2,
                summary("mb16_nw0", spread=0.02),
                ratio=Estimate(mean=0.985, low=0.96, high=1.011, n=4),
                tied=True,
                reason="the interval of its ratio to the best mean holds 1",
            ),
            ranked(3, summary("mb8_nw2", failed=1, counted=1), can_win=False, reason="1 of 2 runs failed"),
        ),
        off_lane=(ranked(1, summary(ODD, counted=1)),),
        winner="mb16_nw2" if changes.get("decided") else None,
        recommended="mb16_nw2",
        recommended_reason="the lower p90/p50",
        latency_winner="mb16_nw2",
        decided=False,
        reason="mb16_nw2 and mb16_nw0 are indistinguishable at 95 %.",
    )
    return dataclasses.replace(made, **changes)


def results(**changes: Any) -> CampaignResults:
    """The campaign of the module's docstring."""
    pending = (f"{ODD}_r2",)
    made = CampaignResults(
        output="out",
        plans=(CampaignPlan(name="demo", output="out"),),
        generated_t=GENERATED_T,
        baseline_group="old_like",
        runs=runs(),
        pending=pending,
        groups=groups(),
        ranking=ranking(),
        verdict=judge(CRITERIA, runs(), groups(), ranking(), pending),
        cautions=(Caution(kind="drift", text="The machine grew 3 % slower over the campaign."),),
    )
    return with_groups(dataclasses.replace(made, **changes))


def with_groups(found: CampaignResults) -> CampaignResults:
    """The same with the rows of its ranking made of its own groups; those of other groups are left out."""
    own = {group.group: group for group in found.groups}
    lanes = {
        lane: tuple(
            dataclasses.replace(row, summary=own[row.group], estimate=own[row.group].figures.get("samples_per_s"))
            for row in getattr(found.ranking, lane)
            if row.group in own
        )
        for lane in ("groups", "off_lane")
    }
    return dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, **lanes))


def renamed(found: CampaignResults, old: str, new: str) -> CampaignResults:
    """The campaign with another name for one of its groups, which then is the winner."""
    groups = tuple(dataclasses.replace(group, group=new if group.group == old else group.group) for group in found.groups)
    rows = tuple(
        dataclasses.replace(row, summary=dataclasses.replace(row.summary, group=new if row.group == old else row.group))
        for row in found.ranking.groups
    )
    return dataclasses.replace(found, groups=groups, ranking=dataclasses.replace(found.ranking, groups=rows, winner=new, recommended=new))


def empty_results() -> CampaignResults:
    """A campaign of which nothing ran."""
    none = Ranking(metric="samples_per_s", unit="samples/s", higher_is_better=True, groups=(), reason="No run ended ok.")
    pending = ("mb16_nw2_r1",)
    verdict = judge((), (), (), none, pending)
    return dataclasses.replace(results(), runs=(), groups=(), ranking=none, pending=pending, verdict=verdict, cautions=())
