"""A campaign made by arithmetic, with everything a page can draw: groups on two axes, three repeats of each, two GPUs, every table filled.

`made_page()` has 4 groups and 12 runs: g1 leads and is tied with g2, g3 is behind, g4 cannot win (its third repeat ran out of memory).
`made_page(groups=100)` and the other arguments make what a page must bear as well. Nothing is random: noise is a sine of many turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.judge.verdict import judge
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution, Scalar
from seatrial.records.columns import CHART_TABLES, DRAWN_GPU, DRAWN_HOST, Columns, RunCharts
from seatrial.records.measure import Estimate, GroupSummary, RunMeasure, Straggler, StragglerVerdict, Window
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.ranking import RankedGroup, Ranking
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.verdict import Criterion
from seatrial.report.html.data import ChartData, PageData, page_data
from tests.unit.report import factory

Row = dict[str, Scalar]

HOSTILE = "</script><script>alert(1)</script>\"'[a].b\\\u2028\u202e{x}"
QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
PHASES = {"data_wait": 0.1, "preprocess": 0.05, "fwd": 0.25, "bwd": 0.45, "step": 0.1, "other": 0.05}
STARTUP = {"launch": 1.1, "import": 6.0, "process_group": 0.8, "model": 9.0, "data": 2.5, "first_step": 1.4, "other": 0.3}
USUAL = {
    "power_w": 620.0, "sm_clock_mhz": 1755.0, "temp_c": 61.0, "util_gpu_pct": 96.0, "mem_used_mib": 61_000.0, "mem_free_mib": 20_000.0,
    "pcie_rx_kib_per_s": 900_000.0, "pcie_tx_kib_per_s": 400_000.0, "cpu_user_pct": 35.0, "cpu_system_pct": 6.0, "rss_kib": 24e6,
    "mem_available_kib": 900e6, "disk_read_kib_per_s": 80_000.0, "disk_write_kib_per_s": 2_000.0, "net_rx_kib_per_s": 50_000.0,
    "net_tx_kib_per_s": 45_000.0,
}  # fmt: skip


def made_page(**how: Any) -> PageData:
    return page_data(made_results(**how))


def made_charts(**how: Any) -> ChartData:
    return made_page(**how).drawn


def made_results(
    *,
    groups: int = 4,
    repeats: int = 3,
    gpus: int = 2,
    ranks: int = 2,
    steps: int = 120,
    axes: Sequence[str] = ("micro_batch", "num_workers"),
    telemetry: bool = True,
    nan_loss: bool = False,
    name: str = "g",
) -> CampaignResults:
    """`name` begins every group's name, so that hostile text can be put there."""
    places = range(1, groups + 1)
    runs = []
    for place in places:
        levels = _levels(place, groups, axes)
        for repeat in range(1, repeats + 1):
            tables = dict(_of_run(place, repeat, gpus=gpus, ranks=ranks, steps=steps, telemetry=telemetry, nan_loss=nan_loss))
            charts = RunCharts(tables={table: columns(rows, CHART_TABLES[table]) for table, rows in tables.items()})
            runs.append(_run(f"{name}{place}", place, repeat, steps, levels, charts))
    summaries = tuple(_group(f"{name}{place}", place, repeats, steps, _levels(place, groups, axes)) for place in places)
    ranking = _ranking(summaries)
    criteria = (Criterion(metric="failed_runs", scope="campaign", at_most=0),)
    return CampaignResults(
        output="outputs/made",
        plans=(CampaignPlan(name="made", output="outputs/made"),),
        generated_t=factory.GENERATED_T,
        baseline_group="",
        runs=tuple(runs),
        pending=(),
        groups=summaries,
        ranking=ranking,
        verdict=judge(criteria, tuple(runs), summaries, ranking, ()),
        cautions=(Caution(kind="one_repeat", text="Too few repeats were made.", subject=summaries[0].group),),
    )


def columns(rows: Sequence[Row], names: Sequence[str] = ()) -> Columns:
    """A table of rows that all have the same keys, or those of `names`."""
    return {key: [row.get(key) for row in rows] for key in (names or rows[0])}


def rows_of(table: Columns) -> list[Row]:
    """The other way round."""
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _failed(place: int, repeat: int) -> bool:
    return place == 4 and repeat == 3


def _iter_ms(place: int) -> float:
    return 100.0 + 4.0 * place + (40.0 if place > 3 else 0.0)


def _noise(*at: float) -> float:
    """Between -1 and 1, without pattern to the eye."""
    return math.sin(sum((index + 1) * 12.9898 * value for index, value in enumerate(at)) * 78.233)


def _levels(place: int, groups: int, axes: Sequence[str]) -> dict[str, Scalar]:
    """The first two axes span a square; the third has two levels that follow no pattern."""
    side = math.ceil(math.sqrt(groups))
    levels: tuple[Scalar, ...] = (8 * 2 ** ((place - 1) % side), 2 * ((place - 1) // side), ("eager", "compiled")[place % 2])
    return {axis: levels[index % 3] for index, axis in enumerate(axes)}


def _value(place: int) -> float:
    return 16_000 / _iter_ms(place)


def _run(group: str, place: int, repeat: int, steps: int, levels: dict[str, Scalar], charts: RunCharts) -> MeasuredRun:
    spec = factory.spec(group, repeat, axes=levels, settings=levels, labels={})
    if _failed(place, repeat):
        ended = factory.outcome(
            spec,
            1,
            Outcome.FAILED,
            cause=Cause.CUDA_OOM,
            detail="ran out of GPU memory",
            action="Lower micro_batch.",
            duration_s=21.0,
            log_tail=("torch.OutOfMemoryError: CUDA out of memory. <script>alert(1)</script>",),
        )
        return MeasuredRun(attempt=_attempt(spec, ended), measure=None)
    measure = RunMeasure(
        source="events",
        window=Window(first_step=20, last_step=steps - 1, n=steps - 20, warmup_steps=20),
        samples_per_s=_value(place) * (1 + 0.004 * repeat),
        wall_p50_ms=_iter_ms(place),
        wall_p90_over_p50=1.07,
        startup={part: seconds + 0.1 * repeat for part, seconds in STARTUP.items()},
        straggler=Straggler(verdict=StragglerVerdict.NAMED, reason="", rank=1),
    )
    return MeasuredRun(attempt=_attempt(spec, factory.outcome(spec, 1, Outcome.OK)), measure=measure, charts=charts)


def _attempt(spec: RunSpec, ended: RunOutcome) -> Attempt:
    return Attempt(folder=f"out/{spec.run}/attempt-1", number=1, spec=spec, outcome=ended, provenance=factory.provenance(), current=True)


def _group(group: str, place: int, repeats: int, steps: int, levels: dict[str, Scalar]) -> GroupSummary:
    value, failed = _value(place), int(_failed(place, repeats))
    startup_s = sum(STARTUP.values()) + place % 5
    return GroupSummary(
        group=group,
        group_key=f"key-{group}",
        mode="sweep",
        lane=True,
        axes=levels,
        runs=repeats - failed,
        failed_runs=failed,
        figures={
            "samples_per_s": Estimate(mean=value, low=value * 0.97, high=value * 1.03, n=repeats),
            "wall_p90_over_p50": Estimate(mean=1.05 + 0.01 * (place % 7)),
            "startup_s": Estimate(mean=startup_s),
        },
        window_n=(steps - 20) * repeats,
    )


def _ranking(groups: Sequence[GroupSummary]) -> Ranking:
    best = groups[0].figures["samples_per_s"].mean
    rows = [
        RankedGroup(
            rank=place,
            summary=group,
            estimate=(estimate := group.figures["samples_per_s"]),
            ratio=None if place == 1 else Estimate(mean=estimate.mean / best, low=0.9, high=0.99, n=3),
            tied=place <= 2,
            can_win=place != 4,
            reason={2: "the interval of its ratio to the best mean holds 1", 4: "1 of 3 runs failed"}.get(place, ""),
        )
        for place, group in enumerate(groups, start=1)
    ]
    winner = groups[0].group
    return Ranking(
        metric="samples_per_s",
        unit="samples/s",
        higher_is_better=True,
        groups=tuple(rows),
        recommended=winner,
        latency_winner=winner,
        reason=f"{winner} is tied.",
    )


def _of_run(
    place: int, repeat: int, *, gpus: int, ranks: int, steps: int, telemetry: bool, nan_loss: bool
) -> Iterator[tuple[str, list[Row]]]:
    ms = _iter_ms(place)
    span: Row = {"first_step": 20, "last_step": steps - 1, "n": steps - 20}
    yield "steps", [_step(place, repeat, step, nan_loss=nan_loss) for step in range(steps)]
    yield "step_times", [{"quantile": q, "iter_ms": ms * (0.94 + 0.1 * q + 0.4 * q**12), **span} for q in QUANTILES]
    yield "phases", [{"phase": phase, "mean_ms": ms * part, "share_pct": 100 * part, **span} for phase, part in PHASES.items()]
    yield "ranks", [_rank(ms, rank, span) for rank in range(ranks)]
    end_s = 20.0 + steps * ms / 1000
    yield "spans", [*_spans(end_s, gpus if telemetry else 0)]
    yield "eta", [_eta(step, steps, ms) for step in range(10, steps, 10)]
    if telemetry:
        yield "telemetry", [*_telemetry(end_s, gpus)]


def _step(place: int, repeat: int, step: int, *, nan_loss: bool) -> Row:
    slow = 4.0 if step == 0 else 2.5 if step == 70 else 1.0 + 0.8 * math.exp(-step / 6)
    ms = _iter_ms(place) * (slow + 0.04 * _noise(place, repeat, step))
    ends_s = 20.0 + step * _iter_ms(place) / 1000
    bad = nan_loss and place == 1 and step > 90
    loss = float("nan") if bad else 5.0 * math.exp(-step / 60) + 0.4 + 0.1 * _noise(step, repeat)
    return {
        "rank": 0, "step": step, "begin_s": ends_s - ms / 1000, "t_s": ends_s, "iter_ms": ms, "loss": loss,
        "counted": step >= 20 and step != 70,
    }  # fmt: skip


def _rank(ms: float, rank: int, span: Row) -> Row:
    work = ms * (0.9 if rank == 1 else 0.6 + 0.02 * _noise(rank))
    return {
        "rank": rank, "host": f"node{rank // 8}", "gpu": f"gpu {rank % 8}", "iter_p50_ms": ms, "work_p50_ms": work,
        "wait_p50_ms": ms - work, **span,
    }  # fmt: skip


def _spans(end_s: float, gpus: int) -> Iterator[Row]:
    parts = [("launch", 0.0, 1.1), ("load", 1.1, 12.0), ("tokenise", 12.0, 16.0), ("compile", 16.0, 20.0), ("train", 20.0, end_s)]
    parts += [("eval", 25.0, 26.0), ("save", end_s, end_s + 2)]
    yield from ({"source": "rank 0", "span": name, "begin_s": begin, "end_s": end} for name, begin, end in parts)
    for gpu in range(gpus):
        yield {"source": f"gpu {gpu}", "span": "throttled power cap", "begin_s": 22.0 + gpu, "end_s": 24.0 + gpu}


def _telemetry(end_s: float, gpus: int) -> Iterator[Row]:
    sources = [("host", DRAWN_HOST), *((f"gpu {gpu}", DRAWN_GPU) for gpu in range(gpus))]
    for index, (source, metrics) in enumerate(sources):
        for metric in metrics:
            for second in range(int(end_s) + 2):
                busy = 1.0 if second >= 20 else 0.15
                value = USUAL[metric] * busy * (1 - 0.02 * index + 0.05 * _noise(second, index, len(metric)))
                yield {"source": source, "metric": metric, "t_s": float(second), "value": value}


def _eta(step: int, steps: int, ms: float) -> Row:
    left = (steps - step) * ms / 1000
    wide = 0.2 * left * math.exp(-step / 50)
    guess = left + 0.5 * wide
    return {
        "step": step, "elapsed_s": 20.0 + step * ms / 1000, "eta_s": guess, "low_s": guess - wide, "high_s": guess + wide, "actual_s": left,
    }  # fmt: skip
