"""The plans in plans/ load and resolve, the example of the reference page is a plan, and a plan is shown on a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.cli.plan import schema
from seatrial.plan.load import load_plan
from seatrial.plan.reference import markdown
from seatrial.plan.resolve import resolve_plan
from seatrial.plan.stages import load_stages
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.verdict import METRICS, SCOPES, metric_entry
from tests.facts import states

ROOT = Path(__file__).parents[3]
PLANS = ROOT / "plans"
STAGED = sorted((PLANS / "sparse-lm").glob("validation*.yaml"))
VERDICTS = sorted((PLANS / "verdicts").glob("*.yaml"))
# What starting and ending a run of the dummy takes on a quiet machine.
START_S = 0.8


def _resolved(path: Path) -> CampaignPlan:
    return resolve_plan(load_plan(path), source=str(path), cwd=PLANS.parent)


def _length_s(run: RunSpec) -> float:
    """Of a run of the dummy, by its settings."""
    settings = run.settings
    work_ms = float(settings["step_ms"]) * (0.5 + 0.5 * float(settings["micro_batch"]) / 8)
    if settings["slow_rank"] is not None:
        work_ms *= float(settings["slow_factor"])
    bursts_ms = float(settings["burst_ms"]) / float(settings["burst_every"]) if settings["burst_every"] else 0.0
    wait_ms = float(settings["data_wait_ms"]) / (1 + float(settings["num_workers"]))
    return START_S + float(settings["steps"]) * (work_ms + wait_ms + bursts_ms) / 1000


@pytest.mark.parametrize("path", sorted(set(PLANS.rglob("*.yaml")) - set(STAGED)), ids=lambda path: path.stem)
def test_every_plan_of_every_folder_can_be_judged(path: Path) -> None:
    plan = _resolved(path)
    assert plan.name == path.stem and plan.runs
    if path.parent == PLANS:
        assert Path(plan.output) == PLANS.parent / "outputs" / path.stem and path.read_text().startswith("# ")
    for criterion in plan.criteria:
        entry = metric_entry(criterion.metric)
        assert entry is not None and criterion.scope in entry.scopes and criterion.unit == entry.unit
        assert not entry.compares or criterion.baseline is not None, "a shipped plan names its baseline"


@pytest.mark.parametrize(("path", "num_gpus"), [(path, gpus) for path in STAGED for gpus in (1, 2)], ids=str)
def test_every_stage_of_a_staged_plan_loads_and_resolves(path: Path, num_gpus: int) -> None:
    staged = load_stages(path)
    assert staged is not None and staged.name == path.stem
    for stage in staged.stages:
        if stage.plan is not None and stage.needs_gpus <= num_gpus and not (path.stem == "validation-cpu" and stage.needs_gpus):
            source, plan = staged.load(stage, num_gpus)
            runs = resolve_plan(plan, source=str(source), cwd=PLANS.parent).runs
            assert runs and all(run.place.ranks == num_gpus for run in runs if path.stem == "validation" and stage.name != "scaling")


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_a_plan_to_try_a_verdict_says_what_it_shows_and_takes_less_than_a_minute(path: Path) -> None:
    plan, text = _resolved(path), path.read_text()
    head = text.partition("\nname: ")[0]
    assert Path(plan.output) == PLANS.parent / "outputs/verdicts" / path.stem
    assert f"#   seatrial run plans/verdicts/{path.name}\n" in head and ("PASS" in head) != ("FAIL" in head)
    assert {run.workload.name for run in plan.runs} == {"dummy"}
    assert sum(_length_s(run) for run in plan.runs) < 60


def test_the_accepted_plan_has_criteria_of_every_kind() -> None:
    plan = _resolved(PLANS / "verdicts/accepted.yaml")
    entries = [METRICS[criterion.metric] for criterion in plan.criteria]
    assert {criterion.scope for criterion in plan.criteria} == set(SCOPES)
    assert {entry.compares for entry in entries} == {True, False}
    assert {entry.needs_bound for entry in entries} == {True, False}
    assert plan.sentinel_group == "nw2"


@pytest.mark.parametrize("gpus", ["4090", "v100"])
def test_phase_b_asks_for_the_whole_acceptance(gpus: str) -> None:
    plan = _resolved(PLANS / f"stage1/phase-b-stability-{gpus}.yaml")
    assert {criterion.ready for criterion in plan.criteria} == {"stage1_stability"}
    bounds = {criterion.metric: (criterion.at_least, criterion.at_most) for criterion in plan.criteria}
    assert bounds["iter_ratio_median"] == (None, 1.5) and bounds["iter_ratio_max"] == (None, 2.5)
    assert bounds["throughput_cv_pct"] == (None, 5) and bounds["counted_runs"] == (3, None)


def test_old_against_tuned_asks_for_the_speed_up_with_comparable_loss() -> None:
    compared = {one.metric: one for one in _resolved(PLANS / "stage1/ab.yaml").criteria if one.baseline}
    assert set(compared) == {"speedup_pct", "loss_comparable"}
    assert {one.baseline.group for one in compared.values() if one.baseline} == {"old_like"}
    assert compared["speedup_pct"].at_least == 8
    assert all("wall_clock_breakdown" in run.varied for run in _resolved(PLANS / "stage1/ab.yaml").runs), "or compare would refuse it"


def test_the_demo_is_two_axes_by_two_values_by_three_repeats_on_two_ranks() -> None:
    plan = _resolved(PLANS / "tiny-lm-demo.yaml")
    assert [len(values) for values in plan.axes.values()] == [2, 2]
    assert {run.group for run in plan.runs} == {"mb1_nw0", "mb1_nw1", "mb16_nw0", "mb16_nw1"}
    assert len(plan.runs) == 12
    assert {(run.launcher.kind, run.place.ranks, run.place.devices) for run in plan.runs} == {("torchrun", 2, ())}


def test_the_smoke_plan_needs_no_torch() -> None:
    runs = _resolved(PLANS / "dummy-smoke.yaml").runs
    assert {(run.workload.name, run.launcher.kind, run.place.ranks) for run in runs} == {("dummy", "python", 2)}


def test_the_gpu_plan_uses_one_gpu_in_bf16() -> None:
    runs = _resolved(PLANS / "tiny-lm-gpu.yaml").runs
    assert {(run.place.devices, run.settings["precision"]) for run in runs} == {(("0",), "bf16")}


PLAN = """\
name: x
workload: dummy
axes: {micro_batch: [8, 16]}
order: rounds
sentinel: {every: 1, group: mb16}
criteria:
  - {metric: startup_s, at_most: 2, unit: min}
  - {ready: stage1_regression, baseline: {history: last-good}}
"""


ON_HOSTS = """\
name: x
workload: dummy
place:
  kind: hostfile
  hostfile: hosts
  exclude: "node2:2"
"""


def test_sentinels_are_among_the_commands_and_not_in_the_matrix(
    plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], without_refusals: None
) -> None:
    assert run_command(["plan", "show", str(plan_file(PLAN))]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("x: 2 groups, 2 runs, ")
    assert states(lines[1], "sentinel", "mb16", "3 times", "every 1 runs")
    assert [line.split()[1] for line in lines if line[:4].strip().isdigit()] == [
        "sentinel_r1",
        "mb8_r1",
        "sentinel_r2",
        "mb16_r1",
        "sentinel_r3",
    ]
    ready, baseline = "stage1_regression", "history:last-good"
    criteria = (
        ("startup_s", "120 s", "(every_run)"),
        ("failed_runs", "0 runs", "(campaign)", ready),
        ("regression_pct", "3 %", "(every_group)", baseline, ready),
        ("loss_comparable", "(winner)", baseline, ready),
        ("loss_finite", "(every_run)", ready),
    )
    held = [line for line in lines if line.startswith("must hold: ")]
    assert len(held) == len(criteria) and all(states(line, *facts) for line, facts in zip(held, criteria, strict=True))


def _shown(text: str, plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run_command(["plan", "show", str(plan_file(text))]) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_which_host_has_which_ranks(plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], without_refusals: None) -> None:
    plan_file("node1 slots=2\nnode2 slots=4\n", "hosts")
    lines = _shown(ON_HOSTS, plan_file, capsys)
    at = lines.index("hosts: 5 ranks on 2 hosts of hosts")
    assert lines[at + 1 : at + 4] == [
        " host   node_rank  ranks  devices",
        " node1  0          0-1",
        " node2  1          2-4    0,1,3",
    ]
    assert "   1  base_r1 × 2 processes on node1, node 0 of 2" in lines


def test_a_hostfile_that_is_elsewhere_is_reported(plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    lines = _shown(f"{ON_HOSTS}  ranks: 5\n", plan_file, capsys)
    assert "hosts: unknown, since hosts cannot be read here; 5 ranks" in lines
    assert "   1  base_r1: command unknown without hosts" in lines
    (refused,) = [line for line in lines if line.startswith("would be refused: hostfile")]
    assert "hostfile hosts: " in refused and "no such hostfile" in refused and "with a line `node1 slots=2` for each host" in refused


def test_nodes_that_type_the_command(plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], without_refusals: None) -> None:
    lines = _shown("name: x\nworkload: dummy\nplace: {kind: pernode, nodes: 2, include: 'localhost:0,1'}\n", plan_file, capsys)
    at = lines.index("hosts: 4 ranks on 2 hosts that type the command")
    assert [line.split() for line in lines[at + 2 : at + 4]] == [["node0", "0", "0-1", "0,1"], ["node1", "1", "2-3", "0,1"]]


def test_what_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "criteria"]) == 0
    assert "  inference_server: " in capsys.readouterr().out
    assert run_command(["plan", "criteria", "startup_s"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "  startup_s in s (every_run, every_group, winner)"
    assert run_command(["plan", "criteria", "startup"]) == 1
    assert "did you mean 'startup_s'?" in capsys.readouterr().err


def test_the_schema_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema() == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"name", "workload", "axes"} <= set(printed["properties"])


def test_its_example_is_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(markdown().split("```yaml\n")[1].split("```")[0])
    assert load_plan(path).name == "tiny-lm-demo"


def test_the_reference_page_is_up_to_date() -> None:
    assert markdown() == (ROOT / "docs" / "plan.md").read_text()


MAINLINE = ("base", "smoke", "mainline-2x4090", "mainline-4x4090", "phase-d-flash")
# What the procedure freezes.
FROZEN = {"torch_compile": "true", "length_buckets": "true", "fixed_slice_s": "2.0", "matmul_precision": "highest", "tf32": "false"}


def _stage1(name: str, *overrides: str) -> CampaignPlan:
    path = PLANS / "stage1" / f"{name}.yaml"
    return resolve_plan(load_plan(path, overrides), source=str(path), cwd=PLANS.parent)


@pytest.mark.parametrize("name", MAINLINE)
def test_the_mainline_is_frozen_and_what_leaves_it_is_marked(name: str) -> None:
    assert all(run.lane for run in _stage1(name).runs)
    for setting, value in FROZEN.items():
        assert not any(run.lane for run in _stage1(name, f"settings.{setting}={value}").runs), setting
    hashes = [run.hash for run in _stage1(name).runs]
    assert [run.hash for run in _stage1(name, "lane=null").runs] == hashes, "no run is run again for it"


def test_every_stage_1_plan_builds_on_the_frozen_lane() -> None:
    for path in sorted((PLANS / "stage1").glob("*.yaml")):
        lane = load_plan(path).lane
        assert lane["torch_compile"] is False and lane["length_buckets"] is False and lane["fixed_slice_s"] is None, path.name


@pytest.mark.parametrize(
    "name", ["phase-c-candidates-4090", "phase-c-candidates-v100", "phase-c-compile", "phase-c-fixed-slice", "phase-d-flash"]
)
def test_phase_c_and_d_need_a_phase_b_that_passed(name: str) -> None:
    needs = _stage1(name).needs
    assert needs is not None and needs.ready == "stage1_stability"
    phase_b = _resolved(Path(needs.plan))
    assert phase_b.output == needs.campaign and {criterion.ready for criterion in phase_b.criteria} == {"stage1_stability"}
    assert {run.place.devices for run in phase_b.runs} == {run.place.devices for run in _stage1(name).runs}


def test_compiled_and_plain_both_run_the_tower_as_graphs_of_the_trainer() -> None:
    """Or what graphs gain would pass for what compiling gains."""
    paths = {run.settings["torch_compile"]: run.settings["fast_paths"] for run in _stage1("phase-c-compile").runs}
    assert paths == dict.fromkeys((False, True), "equal:front_end,positions,text_graph,tower_graph")


def test_a_plan_of_bundles_names_the_group_that_its_acceptance_judges() -> None:
    """The recommended group may be another one: flash_attention_2 would pass for ZeRO 0 over ZeRO 1."""
    judged = {
        name: {(one.group, one.baseline.group) for one in _stage1(name).criteria if one.baseline}
        for name in ("min-matrix", "phase-d-flash", "ab", "acceptance-v100", "acceptance-h100")
    }
    assert judged == {
        "min-matrix": {("z0_sdpa", "z1_sdpa")},
        "phase-d-flash": {("sweep_z0_mb128_nw6_pf4_flash_attention_2", "sweep_z0_mb128_nw6_pf4_sdpa")},
        "ab": {("tuned", "old_like")},
        "acceptance-v100": {("sweep_z0_mb128_nw6_pf2_fp16", "sweep_z0_mb128_nw6_pf2_bf16")},
        "acceptance-h100": {("tuned", "old_like")},
    }


@pytest.mark.parametrize(("gpus", "least_pct"), [("v100", 20), ("h100", 8)])
def test_each_acceptance_set_has_a_plan(gpus: str, least_pct: float) -> None:
    plan = _stage1(f"acceptance-{gpus}")
    (speedup,) = [one for one in plan.criteria if one.metric == "speedup_pct"]
    assert (speedup.ready, speedup.at_least, plan.repeats) == (f"stage1_speedup_{gpus}", least_pct, 3)
    assert speedup.baseline is not None and speedup.baseline.group in {run.group for run in plan.runs}


def test_the_smoke_run_over_machines_is_repeated_and_compared_with_its_baseline() -> None:
    smoke, baseline = _stage1("multinode-smoke"), _stage1("multinode-smoke-baseline")
    compared = [one.baseline.campaign for one in smoke.criteria if one.baseline]
    assert smoke.repeats >= 3 and compared and set(compared) == {baseline.output}
    assert not any(one.baseline for one in baseline.criteria), "it is the first"
    assert [run.hash for run in smoke.runs] == [run.hash for run in baseline.runs]


def test_two_gpus_against_four_differ_in_nothing_else() -> None:
    plan = _stage1("scaling-2-4")
    assert {(run.place.ranks, run.place.devices) for run in plan.runs} == {(2, ("0", "1")), (4, ("0", "1", "2", "3"))}
    assert len({tuple(run.settings.items()) for run in plan.runs}) == 1 and plan.repeats >= 2


@pytest.mark.parametrize("name", ["final-one-machine", "final-many-machines", "multinode-hostfile", "multinode-pernode"])
def test_final_training_is_as_fast_as_it_can_be_and_keeps_a_second_checkpoint(name: str) -> None:
    (run,) = _stage1(name).runs
    assert (run.settings["fast_paths"], run.settings["checkpoint_keep"]) == ("all", 2)


@pytest.mark.parametrize(
    "name", ["phase-c-candidates-4090", "phase-c-candidates-v100", "phase-c-compile", "phase-c-fixed-slice", "phase-d-flash"]
)
def test_phase_c_and_d_use_16_bit_formats_as_phase_b_does(name: str) -> None:
    """In fp16, phase B's ZeRO 1 has weights only: candidates in autocast would not be what was found stable."""
    plan = _stage1(name)
    assert plan.needs is not None
    assert {run.settings["mixed_precision"] for run in plan.runs} == {
        run.settings["mixed_precision"] for run in _resolved(Path(plan.needs.plan)).runs
    }


@pytest.mark.parametrize("gpus", ["4090", "v100"])
def test_candidates_have_the_fast_paths_of_phase_b(gpus: str) -> None:
    plans = (_stage1(f"phase-c-candidates-{gpus}"), _stage1(f"phase-b-stability-{gpus}"))
    assert len({run.settings["fast_paths"] for plan in plans for run in plan.runs}) == 1
