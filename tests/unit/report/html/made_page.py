"""A page's data, made by arithmetic: groups on two axes, three repeats of each, two GPUs, every table filled. The same every time.

`made_page()` has 4 groups and 12 runs: g1 wins and is tied with g2, g3 is behind, g4 cannot win (its third repeat ran out of memory).
`made_page(groups=100)` and the other arguments make what a page must stand as well. Nothing is random: noise is a sine of many turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.records.charts import CHART_TABLES, DRAWN_GPU, DRAWN_HOST, WHOSE, Columns
from seatrial.records.measure import Cell
from seatrial.report.html.page_data import PageData

Row = dict[str, Cell]

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


def made_page(
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
) -> PageData:
    """`name` begins every group's name, so that hostile text can be put there."""
    runs = [
        (f"{name}{place}_r{repeat}", f"{name}{place}", place, repeat) for place in range(1, groups + 1) for repeat in range(1, repeats + 1)
    ]
    made: dict[str, list[Row]] = {table: [] for table in CHART_TABLES}
    for run, group, place, repeat in runs:
        if not _failed(place, repeat):
            for table, rows in _of_run(place, repeat, gpus=gpus, ranks=ranks, steps=steps, telemetry=telemetry, nan_loss=nan_loss):
                made[table] += [{"run": run, "group": group, "repeat": repeat, **row} for row in rows]
    tables = {
        "groups": columns([_group(name, place, repeats, steps, _levels(place, groups, axes)) for place in range(1, groups + 1)]),
        "runs": columns([_run(*run, steps) for run in runs]),
        **{table: columns(rows, (*WHOSE, *CHART_TABLES[table])) for table, rows in made.items() if rows},
    }
    return PageData(summary=made_summary(tables, steps), tables=tables)


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


def _levels(place: int, groups: int, axes: Sequence[str]) -> Row:
    """The first two axes span a square; the third has two levels that follow no pattern."""
    side = math.ceil(math.sqrt(groups))
    levels: tuple[Cell, ...] = (8 * 2 ** ((place - 1) % side), 2 * ((place - 1) // side), ("eager", "compiled")[place % 2])
    return {f"axis_{axis}": levels[index % 3] for index, axis in enumerate(axes)}


def _group(name: str, place: int, repeats: int, steps: int, levels: Row) -> Row:
    value = 16_000 / _iter_ms(place)
    figures: Row = {"value": value, "low": value * 0.97, "high": value * 1.03, "ratio": value / (16_000 / _iter_ms(1))}
    return {
        "rank": place, "group": f"{name}{place}", "mode": "sweep", "lane": True, **figures,
        "ratio_low": None if place == 1 else 0.9, "ratio_high": None if place == 1 else 0.99, "unit": "samples/s",
        "note": {2: "not told apart from the best mean by the data", 4: "cannot win: a run failed"}.get(place, ""),
        "runs": repeats - _failed(place, repeats), "failed": int(_failed(place, repeats)), "p90_over_p50": 1.05 + 0.01 * (place % 7),
        "startup_s": sum(STARTUP.values()) + place % 5, "window": f"steps 20–{steps - 1}", "n": (steps - 20) * repeats,
        **levels,
    }  # fmt: skip


def _run(run: str, group: str, place: int, repeat: int, steps: int) -> Row:
    failed = _failed(place, repeat)
    value = 16_000 / _iter_ms(place) * (1 + 0.004 * repeat)
    return {
        "run": run, "group": group, "repeat": repeat, "outcome": "out_of_memory" if failed else "ok", "value": None if failed else value,
        "unit": "samples/s", "p50_ms": None if failed else _iter_ms(place), "p90_over_p50": None if failed else 1.07,
        "window": "" if failed else f"steps 20–{steps - 1}", "n": None if failed else steps - 20,
    }  # fmt: skip


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


def made_summary(tables: dict[str, Columns], steps: int) -> dict[str, Any]:
    """The keys of summary.json that the page reads."""
    groups = rows_of(tables["groups"])
    ok = [row for row in rows_of(tables["runs"]) if row["outcome"] == "ok"]
    failed = [str(row["run"]) for row in rows_of(tables["runs"]) if row["outcome"] != "ok"]
    winner = str(groups[0]["group"])
    windows = {
        str(row["run"]): {"first_step": 20, "last_step": steps - 1, "n": steps - 20, "warmup_steps": 20, "steady": True} for row in ok
    }
    return {
        "generated_at": "2026-01-01T00:00:00Z", "output_root": "outputs/made", "plans": ["made"], "groups": groups, "ranked_groups": groups,
        "best": {"group": winner, "value": groups[0]["value"], "rank_unit": "samples/s", "decided": False},
        "runs": [_summary_run(row) for row in ok], "skipped_runs": [], "verdict": _verdict(winner, failed),
        "ranking": {
            "metric": "samples_per_s", "unit": "samples/s", "higher_is_better": True, "groups": [_ranked(row) for row in groups],
            "off_lane": [], "winner": winner, "latency_winner": winner, "decided": False, "reason": f"{winner} is not told apart.",
            "cautions": [],
        },
        "winners": f"Throughput winner: {winner}.",
        "cautions": [{"kind": "one_repeat", "text": "Too few repeats were made.", "subjects": [winner]}],
        "failures": [_failure(failed)] if failed else [], "pending": [], "windows": windows,
        "standings": [_standing(row) for row in groups],
        "current_runs": [{**_whose(row), "attempt": 1, "outcome": row["outcome"], "cause": ""} for row in rows_of(tables["runs"])],
        "eta_quality": {"all": None, "text": "ETA: off by 0.4 s in the median.", "runs": {}}, "old_attempts": [], "health": None,
    }  # fmt: skip


def _whose(row: Row) -> Row:
    return {"run": row["run"], "group": row["group"], "repeat": row["repeat"]}


def _standing(row: Row) -> dict[str, Any]:
    axes = {name.removeprefix("axis_"): value for name, value in row.items() if name.startswith("axis_")}
    told = {name: value for name, value in row.items() if not name.startswith("axis_")}
    return {**told, "reason": row["note"], "runs_text": str(row["runs"]), "axes": axes}


def _summary_run(row: Row) -> dict[str, Any]:
    startup = {f"startup_{part}_sec": seconds + 0.1 * float(row["repeat"] or 0) for part, seconds in STARTUP.items()}
    return {
        **_whose(row), **startup, "startup_compile_sec": None,
        "startup_sec": sum(startup.values()), "window_first_step": 20, "window_last_step": 119, "window_n": row["n"],
        "straggler": "named", "straggler_rank": 1,
    }  # fmt: skip


def _ranked(row: Row) -> dict[str, Any]:
    ratio = None if row["rank"] == 1 else {"mean": row["ratio"], "low": row["ratio_low"], "high": row["ratio_high"], "n": 3}
    tied = row["rank"] in (1, 2)
    return {
        "rank": row["rank"], "group": row["group"], "value": row["value"], "ratio": ratio, "tied": tied, "can_win": row["rank"] != 4,
        "reason": row["note"],
    }  # fmt: skip


def _verdict(winner: str, failed: list[str]) -> dict[str, Any]:
    judged = "FAIL" if failed else "PASS"
    return {
        "verdict": judged,
        "findings": [{
            "id": "1-failed_runs-campaign", "kind": "criterion",
            "criterion": {"metric": "failed_runs", "scope": "campaign", "at_most": 0.0, "at_least": None, "reason": ""}, "verdict": judged,
            "text": f"failed_runs at most 0: {len(failed)} failed.", "evidence": [], "advice": [],
        }],
        "statements": [{
            "id": f"winner:{winner}", "kind": "winner", "criterion": None, "verdict": "PASS", "text": f"{winner} is fastest.",
            "evidence": [{"subject": winner, "value": 150.0, "file": "ranked_groups.csv", "unit": "samples/s", "window": "", "n": 300}],
            "advice": [],
        }],
        "partial": False, "notes": {},
    }  # fmt: skip


def _failure(runs: list[str]) -> dict[str, Any]:
    return {
        "runs": runs, "outcome": "failed", "cause": "out_of_memory", "detail": "ran out of GPU memory", "action": "Lower micro_batch.",
        "duration_s": 21.0, "log_tail": ["torch.OutOfMemoryError: CUDA out of memory. <script>alert(1)</script>"], "fault": "user",
        "telling": [], "fits": [],
    }  # fmt: skip
