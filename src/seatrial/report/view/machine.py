"""The machines of a campaign: what they are, telemetry by group, hosts of multi-host runs, smoke records, quality of the ETA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from seatrial.core.text import MIB, count, format_bytes, format_duration, join_names
from seatrial.machine.gpu_memory import forecast_or_none, gib
from seatrial.machine.provenance import host_hardware
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Scalar
from seatrial.records.eta import OFF, EtaQuality, measure_eta_quality, points_of_mode
from seatrial.records.launch import SKEW_S, Communicator, NodeRecord
from seatrial.records.measure import HostMeasure, RunHealth, RunMeasure, TimingPoint
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.run_table import global_batch
from seatrial.report.text import NONE, figure, short_figure, utc_time
from seatrial.report.view.campaign import groups_in_order, labels_of, runs_by_group

SHOWN_PACKAGES = ("torch", "deepspeed", "transformers")


def machines(results: CampaignResults) -> list[tuple[str, int]]:
    """One line for each kind of machine and code, with its number of current runs; the most used first."""
    counts: dict[str, int] = {}
    for run in results.runs:
        if run.attempt.current:
            line = _machine(run.attempt.provenance)
            counts[line] = counts.get(line, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def _machine(provenance: Provenance) -> str:
    packages = [f"{name} {provenance.packages[name]}" for name in SHOWN_PACKAGES if name in provenance.packages]
    dirty = " with uncommitted changes" if provenance.git_dirty == "true" else ""
    parts = [
        _hosts(provenance),
        f"{provenance.gpu_name} (driver {provenance.driver_version or 'unknown'})" if provenance.gpu_name else "no GPU",
        f"{provenance.cpu or 'CPU'} × {provenance.cpu_count}" if provenance.cpu_count else provenance.cpu,
        format_bytes(provenance.memory_bytes) if provenance.memory_bytes else "",
        f"Python {provenance.python}" if provenance.python else "",
        *packages,
        f"commit {provenance.git_commit_hash[:12]} ({provenance.git_branch or 'no branch'}){dirty}" if provenance.git_commit_hash else "",
    ]
    return ", ".join(part for part in parts if part)


def _hosts(provenance: Provenance) -> str:
    """The host; of many the first names, and whether all have the same hardware."""
    if not provenance.hosts:
        return provenance.host
    num_kinds = len({tuple(sorted(host_hardware(facts).items())) for facts in provenance.hosts.values()})
    kinds = "of one kind" if num_kinds == 1 else f"of {num_kinds} kinds"
    return f"{count(len(provenance.hosts), 'host')} {kinds} ({join_names(list(provenance.hosts))}), seen from {provenance.host}"


def communicator_lines(results: CampaignResults) -> list[tuple[str, int]]:
    """One line for each kind of process group, with its number of current runs: `nccl, 8 of 8 planned ranks, by P2P and NET/IB`."""
    counts: dict[str, int] = {}
    for run in results.runs:
        if run.attempt.current and run.measure and run.measure.communicators:
            line = communicator_line(run.measure.communicators, run.attempt.spec.place.ranks)
            counts[line] = counts.get(line, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def communicator_line(found: Sequence[Communicator], planned: int) -> str:
    sizes = sorted({one.size for one in found})
    backends, transports, interfaces = (
        list(dict.fromkeys(value for one in found for value in values(one) if value))
        for values in (lambda one: [one.backend], lambda one: one.transport.split(", "), lambda one: [one.interface])
    )
    size = f"{' or '.join(map(str, sizes))} of {planned} planned ranks"
    by = " and ".join(transports) or "an unknown transport"
    on = f" on {', '.join(interfaces)}" if interfaces else ""
    reported = "" if len({one.rank for one in found}) >= planned else f"; known of {count(len({one.rank for one in found}), 'rank')}"
    return f"{', '.join(backends)}, {size}, by {by}{on}{reported}"


NO_TELEMETRY = "No telemetry: off in the plan (`telemetry`), no run ended ok, or the samples are unreadable."
TELEMETRY_EXPLAINED = (
    "Of the measured window, GPUs of a run together; energy by the driver's own counter where it has one. Own cost is what the samplers "
    "took of one core. `gpu_telemetry.csv` and `host_telemetry.csv` in each run's folder hold every sample."
)
TelemetryColumn = tuple[str, str, Callable[[Sequence[float]], float]]
"""Column of per_run_metrics.csv, title, and how a group's runs are combined."""
TELEMETRY_COLUMNS: tuple[TelemetryColumn, ...] = (
    ("gpu_util_mean_pct", "GPU %", fmean),
    ("gpu_power_mean_w", "GPU W", fmean),
    ("gpu_joules_per_sample", "J a sample", fmean),
    ("gpu_temp_max_c", "hottest °C", max),
    ("gpu_sm_clock_mean_mhz", "SM MHz", fmean),
    ("gpu_mem_peak_mib", "GPU peak MiB", max),
    ("gpu_throttled_pct", "throttled %", fmean),
    ("host_rss_peak_mib", "tree peak MiB", max),
    ("host_cpu_busy_mean_pct", "CPU %", fmean),
    ("host_cpu_steal_mean_pct", "steal %", fmean),
    ("telemetry_gaps", "gaps", sum),
    ("telemetry_invalid", "dropped", sum),
    ("telemetry_cpu_pct", "own cost %", fmean),
)


def telemetry_table(results: CampaignResults, names: Sequence[str] | None = None) -> tuple[list[str], list[list[object]]]:
    """Headers and rows, best group first; only columns in `names`, if given, that any run has a figure for."""
    sampled = {
        key: figures
        for key, runs in runs_by_group(results).items()
        if (figures := [run.measure.telemetry for run in runs if run.measure and run.measure.telemetry])
    }
    titled = {column[0]: column for column in TELEMETRY_COLUMNS}
    wanted = [titled[name] for name in names or titled]
    shown = [column for column in wanted if any(_values(runs, column[0]) for runs in sampled.values())]
    groups = [group for group in groups_in_order(results) if group.group_key in sampled]
    rows: list[list[object]] = []
    for group in groups if shown else ():
        runs = sampled[group.group_key]
        cells = [_cell(combine(values)) if (values := _values(runs, name)) else NONE for name, _, combine in shown]
        rows.append([group.group, *cells, len(runs)])
    return ["group", *(title for _, title, _ in shown), "runs"], rows


def memory_lines(results: CampaignResults) -> list[str]:
    """Forecast and observed GPU memory of each group that has both, best group first."""
    lines = []
    by_group = runs_by_group(results)
    for group in groups_in_order(results):
        runs = by_group.get(group.group_key, [])
        peaks = _values([run.measure.telemetry for run in runs if run.measure], "gpu_mem_peak_mib")
        forecast = forecast_or_none(runs[0].attempt.spec) if peaks else None
        if forecast is not None and max(peaks) > 0:
            total, seen = forecast.total_bytes, max(peaks) * MIB
            lines.append(f"GPU memory of {group.group}: forecast {gib(total)} GiB, observed {gib(seen)} ({total / seen - 1:+.0%})")
    return lines


def _cell(value: float) -> str:
    return str(value) if isinstance(value, int) else figure(value)


def _values(runs: Sequence[dict[str, Scalar]], name: str) -> list[float]:
    return [value for run in runs if isinstance(value := run.get(name), (int, float))]


ALL_SHOWN = 8
"""Up to this many hosts of a run are all shown; of more, only the odd ones."""
MAX_RUNS = 12
HOST_COLUMNS = (
    "run", "host", "ranks", "clock offset", "exit code", "ended", "CPU %", "GPU %", "tree peak MiB", "net in MiB/s", "net out MiB/s",
)  # fmt: skip
HOST_RIGHT_ALIGNED = (4, 6, 7, 8, 9, 10)
HOSTS_EXPLAINED = (
    "Ranks are those of the whole run. A clock offset is how far the host's clock was ahead of the harness's, within half a round trip; "
    "times in this report are corrected by it. Network is all that the host received and sent in the measured window. Ranks end an "
    "exchange together, so a slow link shows as a long phase of all of them, with few bytes for its time, and not as one late "
    "rank."
)


@dataclass(frozen=True, kw_only=True)
class HostRow:
    """One host of one run, as in summary.json."""

    run: str
    host: str
    node_rank: int
    first_rank: int
    ranks: int
    returncode: int | None
    ended: str
    detail: str
    clock_offset_s: float | None
    clock_within_s: float | None
    """Half the round trip it was measured with."""
    odd: bool
    did: HostMeasure | None = None


@dataclass(frozen=True, kw_only=True)
class RunHosts:
    """The hosts of one run."""

    run: str
    via: str
    master: str
    hosts: tuple[HostRow, ...]

    @property
    def shown(self) -> tuple[HostRow, ...]:
        """All hosts of a few, else the odd ones."""
        return self.hosts if len(self.hosts) <= ALL_SHOWN else tuple(row for row in self.hosts if row.odd)


def hosts_of(results: CampaignResults) -> list[RunHosts]:
    """Every current run on more than one host, by name."""
    labels = labels_of(results)
    found = []
    for run in results.runs:
        nodes = run.attempt.nodes
        if run.attempt.current and nodes is not None and len(nodes.nodes) > 1:
            rows = tuple(
                _host_row(node, labels.run(run.attempt.spec), run) for node in sorted(nodes.nodes, key=lambda node: node.node_rank)
            )
            master = f"{nodes.master_addr}:{nodes.master_port}" if nodes.master_addr else ""
            found.append(RunHosts(run=rows[0].run, via=nodes.via, master=master, hosts=rows))
    return found


def _host_row(node: NodeRecord, run: str, measured: MeasuredRun) -> HostRow:
    offset_s, trip_s = node.clock_offset_s, node.clock_round_trip_s
    did = {one.host: one for one in measured.measure.by_host} if measured.measure else {}
    is_off = offset_s is not None and abs(offset_s) > SKEW_S
    # With place `pernode`, or an address in a hostfile, the host's own name differs.
    has_own_name = node.host and node.host.partition(".")[0] != node.name.partition(".")[0]
    return HostRow(
        run=run,
        host=f"{node.name} ({node.host})" if has_own_name else node.name,
        node_rank=node.node_rank,
        first_rank=node.first_rank,
        ranks=node.ranks,
        returncode=node.returncode,
        ended=node.ended,
        detail=node.detail,
        clock_offset_s=offset_s,
        clock_within_s=None if trip_s is None else trip_s / 2,
        odd=is_off or node.returncode != 0 or node.ended not in ("", "exited") or bool(node.detail or node.oom_kills),
        did=did.get(node.name),
    )


def hosts_sentence(one: RunHosts) -> str:
    """'mb8_r1: 2 hosts started by ssh, 4 ranks, all ended with exit code 0; clocks within 0.2 ms.'"""
    ranks = sum(row.ranks for row in one.hosts)
    via = f" started by {one.via}" if one.via else ""
    odd = [row for row in one.hosts if row.returncode != 0 or row.ended not in ("", "exited")]
    ended = "all ended with exit code 0"
    if odd:
        names = join_names([f"{row.host} ({_ending(row)})" for row in odd])
        ended = f"{len(one.hosts) - len(odd)} ended with exit code 0, all except {names}"
    return f"{one.run}: {len(one.hosts)} hosts{via}, {ranks} ranks, {ended}{_clocks(one.hosts)}."


def _ending(row: HostRow) -> str:
    if row.ended and row.ended != "exited":
        return row.ended.replace("_", " ")
    return "no exit code" if row.returncode is None else f"exit code {row.returncode}"


def _clocks(hosts: Sequence[HostRow]) -> str:
    known = [row for row in hosts if row.clock_offset_s is not None]
    if not known:
        return ""
    farthest = max(known, key=lambda row: abs(row.clock_offset_s or 0.0))
    off_s = abs(farthest.clock_offset_s or 0.0)
    if off_s > SKEW_S:
        return f"; the clock of {farthest.host} was {format_duration(off_s)} {'ahead' if (farthest.clock_offset_s or 0) > 0 else 'behind'}"
    return f"; clocks within {_small(off_s)}"


def host_cells(row: HostRow) -> list[object]:
    """One row of HOST_COLUMNS."""
    did = row.did or HostMeasure(host=row.host)
    figures = (did.cpu_busy_mean_pct, did.gpu_util_mean_pct, did.rss_peak_mib, did.net_rx_mean_mib_per_s, did.net_tx_mean_mib_per_s)
    code = NONE if row.returncode is None else row.returncode
    ended = row.ended.replace("_", " ") + (f": {row.detail}" if row.detail else "")
    return [row.run, row.host, ranks_text(row), clock_text(row), code, ended or NONE, *map(short_figure, figures)]


def ranks_text(row: HostRow) -> str:
    last = row.first_rank + row.ranks - 1
    return str(row.first_rank) if row.ranks == 1 else f"{row.first_rank}–{last}"


def clock_text(row: HostRow) -> str:
    """'+3,600.001 s ± 0.2 ms'."""
    if row.clock_offset_s is None:
        return NONE
    within = "" if row.clock_within_s is None else f" ± {_small(row.clock_within_s)}"
    sign = "+" if row.clock_offset_s >= 0 else "-"
    return f"{sign}{_small(abs(row.clock_offset_s))}{within}"


def _small(seconds: float) -> str:
    return f"{seconds:,.3f} s" if seconds >= SKEW_S else f"{seconds * 1000:.1f} ms"


SMOKE = "smoke"
MAX_RECORDS = 3
"""Records in reports; summary.json has all."""
SMOKE_EXPLAINED = (
    "Start-up is launch to the end of the first step on the slowest rank, the loop from the first step's end to the last's; steps and "
    "samples a second are by wall clock over the measured window. Medians are over the rolling timing points (`timing_points.csv`)."
)


@dataclass(frozen=True, kw_only=True)
class SmokeRecord:
    """The facts of one run."""

    run: str
    rows: dict[str, str]
    """Name → value as text; '–' where it is unknown."""


def smoke_records(results: CampaignResults) -> list[SmokeRecord]:
    """Records of runs on several hosts, and of those whose plan is a smoke test."""
    labels = labels_of(results)
    records = []
    for run in results.runs:
        nodes = run.attempt.nodes
        has_record = run.attempt.spec.mode == SMOKE or (nodes is not None and len(nodes.nodes) > 1)
        if has_record and run.attempt.current and run.measure and run.attempt.outcome:
            records.append(SmokeRecord(run=labels.run(run.attempt.spec), rows=dict(_smoke_rows(run, run.measure))))
    return records


def smoke_table(records: Sequence[SmokeRecord]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows: a column per run, for the first MAX_RECORDS runs."""
    shown = records[:MAX_RECORDS]
    names = dict.fromkeys(name for record in shown for name in record.rows)
    return ["", *(record.run for record in shown)], [[name, *(record.rows.get(name) or NONE for record in shown)] for name in names]


def _smoke_rows(run: MeasuredRun, measure: RunMeasure) -> Iterator[tuple[str, str]]:
    yield "outcome", run.outcome.value if run.outcome else NONE
    yield "launch topology", _topology(run, measure)
    yield from _smoke_times(run, measure)
    yield from _smoke_speed(run, measure)
    yield "iter p50, median", _point_median(measure.timing_points, "iter_ms_p50")
    yield "step p50, median", _point_median(measure.timing_points, "step_ms_p50")
    losses = (measure.first_loss, measure.last_loss)
    yield "loss, first → last", NONE if None in losses else " → ".join(map(figure, losses))
    quality = measure.eta_quality
    yield "ETA error, median", NONE if quality is None else _seconds(quality.median_error_s)
    yield "ETA error, p90", NONE if quality is None else _seconds(quality.p90_error_s)
    if measure.health is not None:
        yield from _smoke_health(measure.health, is_ok=run.outcome is Outcome.OK)


def _topology(run: MeasuredRun, measure: RunMeasure) -> str:
    nodes = run.attempt.nodes
    if not measure.ranks_known:
        return "nnodes=1, world size unknown"
    shares = [node.ranks for node in nodes.nodes] if nodes is not None and nodes.nodes else [measure.world_size]
    each = str(shares[0]) if len(set(shares)) == 1 else f"{min(shares)} to {max(shares)}"
    return f"nnodes={len(shares)}, procs per node={each}, world size={measure.world_size}"


def _smoke_times(run: MeasuredRun, measure: RunMeasure) -> Iterator[tuple[str, str]]:
    outcome = run.attempt.outcome
    started_t = outcome.started_t if outcome and outcome.started_t else None
    ended_t = started_t + outcome.duration_s if outcome and started_t is not None else None
    yield "launcher start", _instant(started_t)
    yield "first step", _instant(measure.first_step_t)
    yield "last step", _instant(measure.last_step_t) + (f" (step {measure.last_step})" if measure.last_step is not None else "")
    yield "launcher end", _instant(ended_t)
    yield "start-up before the first step", _seconds(measure.startup_s)
    yield "loop, first step → last", _seconds(measure.loop_s)
    yield "end to end", _seconds(measure.duration_s)


def _smoke_speed(run: MeasuredRun, measure: RunMeasure) -> Iterator[tuple[str, str]]:
    window = f" ({measure.window.text}, n = {measure.window.n})" if measure.window else ""
    yield "steps/s", figure(measure.steps_per_s) + (window if measure.steps_per_s is not None else "")
    batch = global_batch(run.attempt.spec, measure.effective, measure.world_size) if measure.ranks_known else None
    if batch is None and measure.samples_per_s is not None and measure.steps_per_s:
        batch = round(measure.samples_per_s / measure.steps_per_s)
    with_batch = f" (global batch {batch:g})" if batch is not None and measure.samples_per_s is not None else ""
    yield "samples/s", figure(measure.samples_per_s) + with_batch


def _point_median(points: tuple[TimingPoint, ...], name: str) -> str:
    known = [value for point in points if (value := point.values.get(name)) is not None]
    return f"{figure(median(known))} ms ({len(known)} timing points)" if known else NONE


def _smoke_health(health: RunHealth, *, is_ok: bool) -> Iterator[tuple[str, str]]:
    fatal = "none" if is_ok or not health.tracebacks else f"{health.tracebacks}: see the failures"
    yield "fatal tracebacks", fatal
    well = "unknown" if health.ranks_ended_well is None else f"{health.ranks_ended_well} of {health.ranks}"
    yield "workers ended well", well
    yield "harmless warnings", join_names([f"{one.id} × {one.lines}" for one in health.harmless]) if health.harmless else "none"


def _instant(seconds: float | None) -> str:
    return NONE if seconds is None else utc_time(seconds)


def _seconds(seconds: float | None) -> str:
    # Nothing here is more precise than a millisecond.
    return NONE if seconds is None else f"{seconds:.3f} s" if seconds < 10 else f"{figure(seconds)} s"


ETA_EXPLAINED = (
    "Estimates are computed at every logged step; errors are against what then happened, from a tenth of each run on. Progress is read "
    "every five seconds, so what was shown live may have been further off. An interval covers the truth nine times in ten; estimates that "
    "a script printed itself have none."
)


def pooled_quality(results: CampaignResults) -> EtaQuality | None:
    """The quality over all points of the counted runs."""
    return measure_eta_quality(
        (points_of_mode(run.measure.eta_points, run.attempt.spec.timing.eta_mode), run.measure.eta_quality.length_s or 0.0)
        for run in results.counted
        if run.measure and run.measure.eta_quality
    )


def eta_line(results: CampaignResults) -> str:
    """One sentence on all estimates."""
    pooled = pooled_quality(results)
    if pooled is None:
        return no_eta_sentence(results)
    held = "" if pooled.covered is None else f"; {whole_percent(pooled.covered)} of the intervals covered the true end"
    return (
        f"ETA: off by {format_duration(pooled.median_error_s)} in the median and {format_duration(pooled.p90_error_s)} at p90 "
        f"({percent(pooled.median_fraction)} and {percent(pooled.p90_fraction)} of a run), {count(pooled.points, 'estimate')}{held}."
    )


def no_eta_sentence(results: CampaignResults) -> str:
    """Why there is no ETA, or none that could be checked."""
    has_points = any(_has_points(run) for run in results.counted)
    return f"{'ETA not checked' if has_points else 'No ETA'}: {why_no_eta(results)}."


def why_no_eta(results: CampaignResults) -> str:
    """Why no estimate could be compared with the true end."""
    runs = results.counted
    if not runs:
        return "no run has ended ok"
    specs = [run.attempt.spec for run in runs]
    if all(spec.timing.eta_mode == OFF for spec in specs):
        return "off in the plan (`timing.eta_mode: off`)"
    if all(run.measure is None or run.measure.source == "whole" for run in runs):
        return "the runs recorded no steps"
    if all(spec.steps is None and not _has_points(run) for spec, run in zip(specs, runs, strict=True)):
        return "pass --steps N, or set `steps` in the plan"
    if not any(_has_points(run) for run in runs):
        return "too few timed steps (`timing.eta_min_samples`), or steps without an end time"
    return "the end of the last step was not recorded, or only the first tenth of a run was estimated"


def _has_points(run: MeasuredRun) -> bool:
    return run.measure is not None and bool(run.measure.eta_points)


def percent(fraction: float) -> str:
    """'2.81 %', '41 %'."""
    return f"{fraction * 100:.2f} %" if fraction < 0.1 else whole_percent(fraction)


def whole_percent(fraction: float) -> str:
    """'67 %'."""
    return f"{fraction * 100:.0f} %"
