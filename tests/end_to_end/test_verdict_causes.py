"""Real campaigns of the dummy with one problem each: the causes found for a run, a group and the platform name that problem.

What the dummy cannot simulate comes from elsewhere: GPUs from the stub of NVML, a busy host from processes of the test. CPU steal of a
virtual machine cannot be produced; only its unit test covers it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seatrial.analyse.stability import group_stability, sentinel_drift
from seatrial.analyse.step_jitter import find_jitter_causes
from seatrial.analyse.stragglers import find_straggler
from seatrial.analyse.telemetry_summary import window_span
from seatrial.collect.steps import read_steps
from seatrial.collect.telemetry import read_telemetry
from seatrial.machine.host import usable_cpu_count
from seatrial.records.measure import GroupStability, JitterCause, StabilityVerdict, StragglerVerdict
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from seatrial.results.recompute import gather_results
from tests.harness import Harness
from tests.stubs import nvml
from tests.stubs.answers import answer

PLAN = """
name: causes
workload: dummy
settings: {{step_ms: 8, jitter_ratio: 0.02, log_every: 50}}
launcher: python
place: {place}
axes:
  problem:
    bundles:
{bundles}
repeats: {repeats}
steps: {steps}
sentinel: {sentinel}
timing: {{log_every: 20, timing_window: 60}}
telemetry: {telemetry}
output: out
"""
BUSY = "import time\nwhile True:\n    pass"
POWER_CAP, THERMAL = 0x4, 0x40
# Other causes that a busy machine may really show while the tests run.
OF_THE_MACHINE = {"host_load", "host_steal", "telemetry_gaps"}
# Overrides one function of the stub: utilisation alternates every second query, however late a busy machine asks; or the answer is late.
TURNS = """
#include <stddef.h>
#include <unistd.h>
typedef struct { unsigned gpu, memory; } rates_t;
int nvmlDeviceGetUtilizationRates(void *handle, rates_t *rates) {
    static long queries[2];
    size_t gpu = (size_t)handle % 2;
    rates->gpu = (queries[gpu]++ / 2 + (long)gpu) % 2 ? 97 : 3;
    rates->memory = 7;
    usleep(LATE_MS * 1000);
    return 0;
}
"""


SETTINGS: dict[str, object] = {
    "burst_every": None, "burst_ms": 40, "data_wait_ms": 0, "slow_rank": None, "slow_factor": 1.8, "slow_phase": "all",
    "uneven_every": None, "repeat_spread": 0, "shift_at_step": None, "drift_per_run": 0, "seed": 0,
}  # fmt: skip
"""Every bundle must name the same settings."""
# With this seed the three repeats run at 0.72, 1.35 and 0.82 of the nominal speed.
SEED = 6


def plan(
    problems: dict[str, dict[str, object]], *, place: str = "{kind: local, ranks: 2}", repeats: int = 1, steps: int = 200, **keys: str
) -> str:
    bundles = "".join(f"      {name}: {json.dumps({**SETTINGS, **settings})}\n" for name, settings in problems.items())
    values = {"sentinel": "null", "telemetry": "{gpu_s: null, host_s: null}", **keys}
    return PLAN.format(bundles=bundles.rstrip("\n"), place=place, repeats=repeats, steps=steps, **values)


def finished(harness: Harness, text: str, env: dict[str, str] | None = None) -> dict[str, list[MeasuredRun]]:
    """The runs of each group after the campaign, by its name."""
    output = harness.run("run", str(harness.plan(text)), env=env, code=None)
    groups: dict[str, list[MeasuredRun]] = {}
    for run in gather_results(harness.out).runs:
        assert run.measure is not None and run.outcome is Outcome.OK, output
        groups.setdefault(run.attempt.spec.group, []).append(run)
    return groups


def causes_of(run: MeasuredRun) -> dict[str, JitterCause]:
    """The causes found for one run, by kind."""
    attempt, measure = run.attempt, run.measure
    assert measure is not None
    tables = read_steps(attempt)
    span = window_span(tables, measure.window)
    straggler = find_straggler(tables, measure.window)
    found = find_jitter_causes(tables, read_telemetry(attempt), attempt.telemetry, span, straggler, cores=attempt.provenance.cpu_count)
    return {cause.kind: cause for cause in found}


def stability_of(runs: list[MeasuredRun]) -> GroupStability:
    """With the causes of its runs."""
    measured = [replace(run, measure=replace(run.measure, jitter_causes=tuple(causes_of(run).values()))) for run in runs if run.measure]
    return group_stability(measured)


def test_causes_within_one_run(harness: Harness) -> None:
    problems: dict[str, dict[str, object]] = {
        "healthy": {},
        "late_data": {"data_wait_ms": 6},
        "slow_fwd": {"slow_rank": 1, "slow_phase": "fwd"},
        "slow_data": {"slow_rank": 0, "slow_phase": "data_wait"},
        "shift": {"shift_at_step": 70},
        "bursts": {"burst_every": 6},
        "uneven": {"uneven_every": 6},
    }
    groups = finished(harness, plan(problems, steps=120))
    assert not {"data_wait", "data_wait_bursts"} & set(causes_of(groups["healthy"][0]))
    late = causes_of(groups["late_data"][0])
    assert set(late) - OF_THE_MACHINE - {"slow_rank"} == {"data_wait"} and "num_workers" in late["data_wait"].text
    for name, rank, phase in (("slow_fwd", 1, "fwd"), ("slow_data", 0, "data_wait")):
        slow = causes_of(groups[name][0])["slow_rank"]
        assert (slow.numbers["rank"], slow.numbers["phase"]) == (rank, phase)
    _check_straggler(groups["slow_fwd"][0])
    shifted = groups["shift"][0].measure
    assert shifted is not None and shifted.window is not None and not shifted.window.steady
    assert "rose from" in shifted.window.reason
    _check_unstable_steps(stability_of(groups["bursts"]), stability_of(groups["uneven"]))


def _check_straggler(run: MeasuredRun) -> None:
    found = find_straggler(read_steps(run.attempt), None)
    assert found is not None and (found.verdict, found.source) == (StragglerVerdict.NAMED, "events")
    assert found.n >= 100 and found.score is not None and found.score > 0.1
    assert found.held_up_ms is not None and found.held_up_ms > 1.0


def _check_unstable_steps(bursts: GroupStability, uneven: GroupStability) -> None:
    assert bursts.verdict is StabilityVerdict.UNSTABLE and "data_wait_bursts" in {cause.kind for cause in bursts.causes}
    assert bursts.ratio_median is not None and bursts.ratio_median > 2.5
    assert "data" in bursts.reason
    assert uneven.verdict is StabilityVerdict.UNSTABLE and uneven.unstable_run_ratio == 1.0
    assert not {"data_wait", "data_wait_bursts"} & {cause.kind for cause in uneven.causes}


def test_repeats_that_disagree(harness: Harness) -> None:
    groups = finished(harness, plan({"repeats": {"repeat_spread": 0.5, "seed": SEED}}, repeats=3, steps=60))
    spread = stability_of(groups["repeats"])
    assert spread.verdict is StabilityVerdict.UNSTABLE and "over the repeats" in spread.reason
    assert spread.cv_pct is not None and spread.cv_pct > 10


def test_a_platform_that_becomes_slower_from_run_to_run(harness: Harness) -> None:
    groups = finished(harness, plan({"watched": {"drift_per_run": 0.08}}, repeats=3, steps=60, sentinel="1"))
    drift = sentinel_drift([run for runs in groups.values() for run in runs])
    assert drift is not None and drift.runs == 4
    assert drift.verdict is StabilityVerdict.UNSTABLE and drift.drift_pct is not None and drift.drift_pct < -15
    assert "The platform" in drift.reason and "n = 4 runs" in drift.reason


@contextlib.contextmanager
def busy_neighbours() -> Iterator[None]:
    """A busy process on each core that does not belong to the run."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(usable_cpu_count())]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_other_processes_on_the_host(harness: Harness) -> None:
    text = plan({"beside": {}}, telemetry="{gpu_s: null, host_s: 0.2}", steps=300)
    with busy_neighbours():
        groups = finished(harness, text)
    load = causes_of(groups["beside"][0])["host_load"]
    assert "with other processes" in load.text and load.n >= 10 and load.file == "host_telemetry.csv"


@functools.cache
def turns_stub(late_ms: int) -> Path:
    """The folder of a stub whose GPUs alternate, with this delay per query."""
    folder = Path(tempfile.mkdtemp(prefix="nvml-turns-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "turns.c").write_text(TURNS)
    flags = ["-shared", "-fPIC", "-pthread"]
    subprocess.run(
        ["cc", *flags, "-c", "-DnvmlDeviceGetUtilizationRates=plain_rates", "-o", str(folder / "stub.o"), str(nvml.SOURCE)], check=True
    )
    argv = [f"-DLATE_MS={late_ms}", "-o", str(folder / "libnvidia-ml.so.1"), str(folder / "turns.c"), str(folder / "stub.o")]
    subprocess.run(["cc", *flags, *argv], check=True)
    return folder


def on_gpus(harness: Harness, stub: Path | None, *answers: tuple[str, int], steps: int = 300) -> dict[str, JitterCause]:
    """The causes found for a run on two simulated GPUs."""
    path = harness.folder / "answers.txt"
    answer(path, ("count", 2), ("used_mib", 0), *answers)
    env = {"NVML_STUB": str(path), "LD_LIBRARY_PATH": str(stub or nvml.built()), "CUDA_VISIBLE_DEVICES": "0,1"}
    text = plan({"gpus": {}}, place='{kind: local, include: "localhost:0,1"}', telemetry="{gpu_s: 0.1, host_s: null}", steps=steps)
    return causes_of(finished(harness, text, env)["gpus"][0])


@nvml.needs_compiler
def test_a_card_at_its_power_limit(harness: Harness) -> None:
    found = on_gpus(harness, None, ("util", 97), ("power_mw", 695000), ("reasons", POWER_CAP))
    assert "anti_correlated_gpus" not in found and "thermal" not in found
    assert "sw_power_cap" in found["power_cap"].text and "695 W of 700 W" in found["power_cap"].text


@nvml.needs_compiler
def test_cards_that_are_too_hot_and_work_in_turns(harness: Harness) -> None:
    found = on_gpus(harness, turns_stub(0), ("reasons", THERMAL), steps=400)
    assert "hw_thermal_slowdown" in found["thermal"].text and "power_cap" not in found
    turns = found["anti_correlated_gpus"]
    correlation = turns.numbers["rank_correlation"]
    assert isinstance(correlation, float) and correlation < -0.5 and "GPU 0 and GPU 1 have anti-correlated utilisation" in turns.text


@nvml.needs_compiler
def test_a_driver_that_answers_late(harness: Harness) -> None:
    found = on_gpus(harness, turns_stub(300))
    assert "at an interval of 0.1 s" in found["telemetry_gaps"].text
