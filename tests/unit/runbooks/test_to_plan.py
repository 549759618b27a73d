"""The driver's variables as plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.core.errors import UsageError
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve_plan
from seatrial.records.plan import CampaignPlan, NeededCampaign
from seatrial_runbooks.stage1.to_plan import TRAINER, included_hosts, is_on_cpu, plan_mappings
from seatrial_runbooks.stage1.variables import read
from seatrial_workloads.contrastive.hydra_config.compose import settings_from
from tests.facts import states
from tests.unit.runbooks.conftest import NOW

CWD = Path("/work here")
TWO_GPUS = {"INCLUDE": "localhost:0,1"}
ON_HOSTS = {"kind": "hostfile", "hostfile": "hosts", "port_base": 29650}
SWEEP = {**TWO_GPUS, "MODE": "sweep", "OUTPUT_ROOT": "outputs/x"}


def mappings(**environ: str) -> list[dict[str, Any]]:
    return plan_mappings(read({**SWEEP, **environ}), CWD, NOW)


def mapping(**environ: str) -> dict[str, Any]:
    (only,) = mappings(**environ)
    return only


def plan(cwd: Path = CWD, **environ: str) -> CampaignPlan:
    (only,) = plan_mappings(read({**SWEEP, **environ}), cwd, NOW)
    return resolve_plan(plan_from_mapping(only, "test"), source="test", cwd=cwd)


def hashes(resolved: CampaignPlan) -> dict[str, str]:
    return {run.run: run.hash for run in resolved.runs}


def complaint(**environ: str) -> str:
    with pytest.raises(UsageError) as caught:
        mappings(**environ)
    return str(caught.value)


def test_a_sweep_is_the_matrix_in_the_original_order() -> None:
    runs = [run.run for run in plan(SWEEP_MICRO_BATCHES="128,160", SWEEP_NUM_WORKERS_LIST="6", SWEEP_PREFETCH_LIST="2,4", REPEATS="2").runs]
    assert runs[:5] == [
        "sweep_z0_mb128_nw6_pf2_r1",
        "sweep_z0_mb128_nw6_pf2_r2",
        "sweep_z0_mb128_nw6_pf4_r1",
        "sweep_z0_mb128_nw6_pf4_r2",
        "sweep_z0_mb160_nw6_pf2_r1",
    ]
    assert len(runs) == 16 and runs[-1] == "sweep_z1_mb160_nw6_pf4_r2"


def test_ab_compares_two_groups_in_rounds() -> None:
    ab = plan(MODE="ab", REPEATS="2")
    assert [run.run for run in ab.runs] == ["old_like_r1", "tuned_r1", "old_like_r2", "tuned_r2"]
    old, tuned = (run.settings for run in ab.runs[:2])
    names = ("log_every", "validation_every_steps", "checkpoint_every_steps", "deterministic", "cudnn_benchmark", "wall_clock_breakdown")
    assert [old[name] for name in names] == [1, 500, 500, True, False, True]
    assert [tuned[name] for name in names] == [20, 5000, 5000, False, False, False]
    for settings in (old, tuned):
        assert [settings[name] for name in ("micro_batch", "zero_stage", "num_workers", "prefetch_factor")] == [128, 1, 2, 2]


def test_both_is_ab_then_sweep_into_one_folder() -> None:
    assert [one["order"] for one in mappings(MODE="both", ORDER="interleaved")] == ["interleaved", "interleaved"]
    ab, sweep = mappings(MODE="both")
    assert (ab["order"], sweep["order"]) == ("rounds", "nested")
    assert (ab["mode"], sweep["mode"], ab["output"], sweep["output"]) == ("ab", "sweep", "/work here/outputs/x", "/work here/outputs/x")


def test_the_keys_of_a_plan() -> None:
    made = mapping(
        REPEATS="2",
        MAX_STEPS="1200",
        SWEEP_LOG_EVERY="50",
        TAIL_TIMING_POINTS="10",
        RUN_TIMEOUT_SEC="2400",
        TIMING_RANK_SCOPE="all",
        ENABLE_CUDA_SYNC_TIMING="true",
        ETA_DISTRIBUTED_MODE="global_max",
        ETA_MIN_SAMPLES="12",
        STALL_ALERT_RATIO="3",
        STOP_ON_ERROR="1",
        BASELINE_GROUP="tuned",
        ENABLE_HOST_TELEMETRY="true",
        GPU_TELEMETRY_INTERVAL_SEC="1",
        MASTER_PORT_BASE="30000",
    )
    wanted = ("prefix", "launcher", "place", "repeats", "steps", "rank_scope", "timing", "limits", "telemetry", "stop_on_error", "baseline")
    assert {key: made[key] for key in wanted} == {
        "prefix": "sweep",
        "launcher": "deepspeed",
        "place": {"kind": "local", "include": "localhost:0,1", "port_base": 30000},
        "repeats": 2,
        "steps": 1201,
        "rank_scope": "all",
        "timing": {"log_every": 50, "tail_points": 10, "sync": True, "eta_mode": "global_max", "eta_min_samples": 12},
        "limits": {"run_s": 2400.0, "start_s": 900.0, "spike_ratio": 3.0},
        "telemetry": {"gpu_s": 1.0, "host_s": 2.0},
        "stop_on_error": True,
        "baseline": "tuned",
    }


def test_zero_means_no_limit_and_false_means_none() -> None:
    made = mapping(MAX_WAIT_TRAIN_LOG_SEC="0", ENABLE_GPU_TELEMETRY="false", ENABLE_ETA_LOGGING="false")
    assert (made["limits"]["run_s"], made["limits"]["start_s"]) == (None, None)
    assert made["telemetry"] == {"gpu_s": None, "host_s": None}
    assert made["timing"]["eta_mode"] == "off"


def test_lines_farther_apart_than_the_run_is_long_leave_the_points_to_the_harness() -> None:
    assert "log_every" not in mapping(MAX_STEPS="3")["timing"]
    assert plan(MAX_STEPS="3").runs[0].settings["log_every"] == 100


def test_one_step_is_no_pace() -> None:
    made = mapping(ETA_MIN_SAMPLES="1")
    assert made["timing"]["eta_min_samples"] == 2 and "++train.eta_min_samples=2" in made["workload"]["args"]


def test_the_arguments_of_train_py() -> None:
    run = plan(SWEEP_MICRO_BATCHES="160", SWEEP_NUM_WORKERS="8", MAX_STEPS="300", DATASET_ROOT="data/tree").runs[0]
    assert run.workload.script == str(TRAINER) and TRAINER.is_file()
    assert run.workload.args == (
        "+experiment=limit_longest_1-3_stage1_bf16",
        "++train.max_step_iterations=301",
        "++train.log_every_steps=100",
        "++train.validation_every_steps=1000000",
        "++train.checkpoint_every_steps=1000000",
        "++train.deterministic=false",
        "++train.cudnn_benchmark=false",
        "++train.data.num_workers=8",
        "++train.data.prefetch_factor=2",
        "++train.data.use_length_bucket=false",
        "++train.data.bucket_boundaries_second=[1.0,1.5,2.0,2.5,3.0]",
        "++train.enable_torch_compile=false",
        "++train.torch_compile_mode=max-autotune",
        "++train.torch_compile_dynamic=true",
        "++train.enable_tf32=true",
        "++train.matmul_precision=high",
        "++train.pretrained_model_checkpoint=data/weights/csa/ckpt_epoch_8.pth",
        "++train.fixed_slice_seconds=null",
        "++dataset.root_dir=data/tree",
        "++dataset.manifest_path=null",
        "++dataset.use_trim=false",
        "++dataset.offline_trimmed=true",
        "++model.speech_encoder.pretrained_path=data/weights/wav2vec2-base",
        "++model.text_encoder.pretrained_path=data/weights/bert-base-uncased",
        "++model.speech_encoder.attn_implementation=auto",
        "++model.text_encoder.attn_implementation=auto",
        "++model.speech_encoder.torch_dtype=auto",
        "++model.text_encoder.torch_dtype=auto",
        "deepspeed_config_yaml.train_micro_batch_size_per_gpu=160",
        "deepspeed_config_yaml.zero_optimization.stage=0",
        "deepspeed_config_yaml.wall_clock_breakdown=false",
        "++train.precision=auto",
        "deepspeed_config_yaml.bf16.enabled=null",
        "deepspeed_config_yaml.fp16.enabled=null",
        "++train.enable_cuda_sync_timing=false",
        "++train.timing_rank_scope=rank0",
        "++train.enable_eta_logging=true",
        "++train.eta_distributed_mode=rank0",
        "++train.eta_min_samples=10",
        "++model.fast_paths='equal:front_end,positions,text_graph,tower_graph'",
        "++train.mixed_precision='by_precision'",
    )


def test_settings_have_the_trainers_own_names() -> None:
    """A column of a table is found by the setting's name."""
    from seatrial_workloads.contrastive.settings import Settings

    names = set(Settings.__dataclass_fields__)
    for made in mappings(MODE="both", INCLUDE="localhost", WORLD_SIZE="2"):
        bundles = made["axes"].get("variant", {}).get("bundles", {})
        members = {name for bundle in bundles.values() for name in bundle}
        axes = {name for name in made["axes"] if name != "variant"}
        assert {*made["settings"], *members, *axes} <= names


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"precision": "auto", "steps": 5001, "zero_stage": 0, "micro_batch": 128}),
        ({"PRECISION_MODE": "fp16", "MODEL_LOAD_DTYPE": "fp16"}, {"precision": "fp16", "model_load_dtype": "fp16"}),
        ({"PRECISION_MODE": "bf16"}, {"precision": "bf16"}),
        ({"ATTN_IMPL": "flash_attention_2"}, {"speech_attn_impl": "flash_attention_2", "text_attn_impl": "flash_attention_2"}),
        ({"ATTN_IMPL": "sdpa", "TEXT_ATTN_IMPL": "eager"}, {"speech_attn_impl": "sdpa", "text_attn_impl": "eager"}),
        ({"ENABLE_LENGTH_FIXED_SLICE": "true", "FIXED_SLICE_SECONDS": "2.0"}, {"fixed_slice_s": 2.0}),
        ({"FIXED_SLICE_SECONDS": "2.0"}, {"fixed_slice_s": None}),
        (
            {"ENABLE_LENGTH_BUCKET": "true", "LENGTH_BUCKET_BOUNDARIES_SEC": "1,2.5"},
            {"length_buckets": True, "bucket_boundaries_s": "1.0,2.5"},
        ),
        ({"PRETRAINED_CKPT": "none"}, {"pretrained_checkpoint": None}),
        ({"INCLUDE": "localhost", "WORLD_SIZE": "2"}, {"device": "cpu"}),
        ({"LIBRISPEECH_MANIFEST_PATH": "m.tsv"}, {"dataset_manifest_path": "m.tsv"}),
        ({"DATASET_ROOT": "/my data/a (b), c=d"}, {"dataset_root": "/my data/a (b), c=d"}),
        ({"DATASET_ROOT": "1e3"}, {"dataset_root": "1e3"}),
        ({"DATASET_ROOT": "null"}, {"dataset_root": "null"}),
        ({"DATASET_ROOT": "{x}/[y]"}, {"dataset_root": "{x}/[y]"}),
        ({"EXPERIMENT": "limit_longest_1-3_stage1"}, {"precision": "auto"}),
    ],
)
def test_what_train_py_makes_of_them(environ: dict[str, str], expected: dict[str, Any]) -> None:
    from seatrial_workloads.contrastive.hydra_config.compose import settings_from

    start = settings_from(plan(**environ).runs[0].workload.args, {})
    assert {name: getattr(start.settings, name) for name in expected} == expected
    # Nothing that the driver says is overruled by something else that it says.
    assert set(start.no_effect) == {"deepspeed_config_yaml.steps_per_print"}


def test_the_flat_settings_are_what_train_py_makes() -> None:
    """So that the groups after the first can be checked without composing each."""
    from seatrial_workloads.contrastive.hydra_config.compose import settings_from

    for made in mappings(MODE="both", SWEEP_MICRO_BATCHES="160"):
        for run in resolve_plan(plan_from_mapping(made, "test"), source="test", cwd=CWD).runs:
            composed = settings_from(run.workload.args, {}).settings
            flat = {name: value for name, value in {**run.settings, **run.axes}.items() if name != "variant"}
            assert {name: getattr(composed, name) for name in flat} == flat


@pytest.mark.parametrize("path", ["it's", "a\\b", "${x}"])
def test_a_path_that_cannot_be_passed_on_is_refused(path: str) -> None:
    assert complaint(DATASET_ROOT=path).startswith(f"DATASET_ROOT is '{path}'")


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"INCLUDE": "localhost:0,4"}, {"kind": "local", "include": "localhost:0,4", "port_base": 29650}),
        ({"INCLUDE": "localhost:0,1", "WORLD_SIZE": "2"}, {"kind": "local", "include": "localhost:0,1", "port_base": 29650}),
        ({"INCLUDE": "localhost", "WORLD_SIZE": "2"}, {"kind": "local", "ranks": 2, "port_base": 29650}),
        ({"MASTER_PORT_BASE": "30000"}, {"kind": "local", "include": "localhost:0,1", "port_base": 30000}),
        ({"MASTER_PORT": "29500"}, {"kind": "local", "include": "localhost:0,1", "port": 29500}),
        ({"MASTER_PORT": "29500", "MASTER_PORT_BASE": "30000"}, {"kind": "local", "include": "localhost:0,1", "port": 29500}),
        ({"HOSTFILE": "hosts", "INCLUDE": "n1:0,1@n2:0,1"}, {**ON_HOSTS, "include": "n1:0,1@n2:0,1"}),
        ({"HOSTFILE": "hosts", "INCLUDE": "n1:0,1@n2:0,1", "WORLD_SIZE": "4"}, {**ON_HOSTS, "include": "n1:0,1@n2:0,1", "ranks": 4}),
        ({"HOSTFILE": "hosts", "INCLUDE": "n1@n2", "WORLD_SIZE": "2"}, {**ON_HOSTS, "include": "n1@n2", "ranks": 2}),
        ({"HOSTFILE": "hosts", "INCLUDE": "", "WORLD_SIZE": "3"}, {**ON_HOSTS, "ranks": 3}),
        ({"HOSTFILE": "hosts", "INCLUDE": "", "MASTER_PORT": "29500"}, {"kind": "hostfile", "hostfile": "hosts", "port": 29500}),
    ],
)
def test_place(environ: dict[str, str], place: dict[str, Any]) -> None:
    assert mapping(**environ)["place"] == place


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"INCLUDE": "localhost"}, "INCLUDE is 'localhost', which names no GPUs: use localhost:0,1, or add WORLD_SIZE=2"),
        ({"INCLUDE": "localhost:0,1", "WORLD_SIZE": "4"}, "WORLD_SIZE is 4, and INCLUDE=localhost:0,1 has 2 GPUs"),
        ({"INCLUDE": "worker-1:0,1"}, "which names the host worker-1: add HOSTFILE=/etc/deepspeed/hostfile to run on hosts"),
        ({"HOSTFILE": "hosts", "INCLUDE": "n1:a"}, "INCLUDE: 'a' is not a slot in 'n1:a'"),
        ({"HOSTFILE": "hosts", "INCLUDE": "n1:0@n2:0", "WORLD_SIZE": "4"}, "WORLD_SIZE is 4, and INCLUDE=n1:0@n2:0 has 2 GPUs"),
        ({"INCLUDE": "localhost:0,1@worker-1:0,1"}, "which names the host worker-1"),
        ({"INCLUDE": "localhost:0@localhost:1"}, "which names several hosts"),
        ({"INCLUDE": "localhost:a"}, "INCLUDE: 'a' is not a GPU id"),
        ({"INCLUDE": "localhost:"}, "INCLUDE: 'localhost:' names no GPUs"),
        ({"INCLUDE": "localhost:1,1"}, "INCLUDE: 'localhost:1,1' names a GPU twice"),
        ({"INCLUDE": "/opt/intel/include"}, "INCLUDE is '/opt/intel/include'"),
    ],
)
def test_a_place_that_cannot_be(environ: dict[str, str], message: str) -> None:
    assert message in complaint(**environ)


def test_names_say_the_matrix_and_nothing_else() -> None:
    name = mapping(SWEEP_MICRO_BATCHES="160,128", SWEEP_NUM_WORKERS_LIST="6")["name"]
    assert name == "stage1-sweep_z0+1_mb128+160_nw6_pf2"
    same = mapping(SWEEP_MICRO_BATCHES="128,160", SWEEP_NUM_WORKERS="6", REPEATS="9", MAX_STEPS="10", PRECISION_MODE="fp16")["name"]
    assert (name, mapping(MODE="ab")["name"]) == (same, "stage1-ab")
    assert name != mapping(SWEEP_MICRO_BATCHES="128", SWEEP_NUM_WORKERS_LIST="6")["name"]


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    many = ",".join(map(str, range(100, 140)))
    one, other = (mapping(SWEEP_MICRO_BATCHES=text)["name"] for text in (many, many + ",140"))
    assert (len(one), len(other)) == (80, 80) and one != other


def test_a_longer_list_and_more_repeats_keep_the_runs_that_are_there() -> None:
    before, after = hashes(plan(SWEEP_MICRO_BATCHES="128")), hashes(plan(SWEEP_MICRO_BATCHES="128,160", REPEATS="4", ORDER="interleaved"))
    assert before.items() <= after.items() and len(after) == 16


def test_what_changes_no_result_changes_no_run() -> None:
    other = plan(
        cwd=Path("/elsewhere"),
        RUN_TIMEOUT_SEC="5",
        MASTER_PORT="29500",
        TAIL_TIMING_POINTS="3",
        ENABLE_HOST_TELEMETRY="true",
        STALL_ALERT_RATIO="4",
        BASELINE_GROUP="x",
        STOP_ON_ERROR="1",
        OUTPUT_ROOT="elsewhere",
    )
    assert hashes(plan()) == hashes(other)


@pytest.mark.parametrize("change", [{"MAX_STEPS": "10"}, {"PRECISION_MODE": "fp16"}, {"DATASET_ROOT": "b"}, {"TIMING_RANK_SCOPE": "all"}])
def test_what_changes_a_result_changes_every_run(change: dict[str, str]) -> None:
    assert not set(hashes(plan()).values()) & set(hashes(plan(**change)).values())


def test_without_output_root_the_folder_has_the_time_in_its_name() -> None:
    assert mapping(OUTPUT_ROOT="")["output"] == "/work here/outputs/bench_stage1_ab_20260218_175621"


def test_braces_in_a_folder_are_braces(tmp_path: Path) -> None:
    assert plan(OUTPUT_ROOT=str(tmp_path / "{time}")).output == str(tmp_path / "{time}")


@pytest.mark.parametrize(
    ("given", "on_cpu", "include"),
    [
        ({"INCLUDE": "localhost", "WORLD_SIZE": "2"}, True, "localhost"),
        ({"INCLUDE": "localhost:0"}, False, "localhost:0"),
        ({"HOSTFILE": "hosts"}, False, None),
        ({"HOSTFILE": "hosts", "WORLD_SIZE": "2"}, False, None),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1@node2", "WORLD_SIZE": "2"}, True, "node1@node2"),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1@node2"}, False, "node1@node2"),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1:0", "WORLD_SIZE": "1"}, False, "node1:0"),
    ],
)
def test_ranks_are_on_the_cpu_where_no_gpu_is_named(given: dict[str, str], on_cpu: bool, include: str | None) -> None:
    assert (is_on_cpu(read(given)), included_hosts(read(given))) == (on_cpu, include)


def test_settings_that_the_original_had_no_variable_for_are_passed_on_only_where_given() -> None:
    def args(**environ: str) -> list[str]:
        return mapping(**environ)["workload"]["args"]

    extra = {"TRAIN_SEED": "7", "TRAIN_LR": "3e-4", "TRAIN_BETAS": "0.9,0.99", "TRAIN_BUCKET_SIZE": "1000", "FAST_PATHS": "false"}
    new = [argument for argument in args(**extra) if argument not in args()]
    assert new == [
        "++train.seed=7",
        "++model.fast_paths=false",
        "++deepspeed_config_yaml.optimizer.params.lr=0.0003",
        "++deepspeed_config_yaml.optimizer.params.betas=[0.9,0.99]",
        "++deepspeed_config_yaml.zero_optimization.allgather_bucket_size=1000",
        "++deepspeed_config_yaml.zero_optimization.reduce_bucket_size=1000",
    ]
    settings = settings_from(plan(**extra).runs[0].workload.args, {}).settings
    assert (settings.seed, settings.lr, settings.beta1, settings.bucket_size) == (7, 3e-4, 0.9, 1000)
    assert settings.fast_paths in (False, "none")
    assert "++model.fast_paths='front_end,positions'" in args(FAST_PATHS="front_end,positions")


PARTS = "front_end,positions,text_graph,tower_graph"


@pytest.mark.parametrize(
    ("environ", "fast_paths", "mixed_precision"),
    [
        # ZeRO 1 has 16-bit weights only in fp16, so ZeRO 0 has no autocast there either.
        ({"SWEEP_ZERO_STAGES": "0,1"}, f"equal:{PARTS}", "by_precision"),
        ({"MODE": "ab"}, f"equal:{PARTS}", "by_precision"),
        ({"MODE": "ab", "AB_TUNED_ZERO_STAGE": "3"}, "equal:none", "by_precision"),
        ({"SWEEP_ZERO_STAGES": "0,3"}, "equal:none", "by_precision"),
        ({"PRECISION_MODE": "fp16"}, "equal:front_end,positions,tower_graph", "weights"),
        ({"ATTN_IMPL": "flash_attention_2"}, "equal:front_end,positions", "by_precision"),
        ({"SPEECH_ATTN_IMPL": "flash_attention_2"}, "equal:front_end,positions,text_graph", "by_precision"),
        ({"ENABLE_LENGTH_BUCKET": "true"}, "equal:front_end,positions,text_graph", "by_precision"),
        ({"ENABLE_TORCH_COMPILE": "true"}, "equal:front_end,positions,text_graph", "by_precision"),
        ({"INCLUDE": "localhost", "WORLD_SIZE": "2"}, "equal:front_end,positions", "auto"),
        ({"TRAIN_ENGINE": "ddp", "SWEEP_ZERO_STAGES": "0"}, f"equal:{PARTS}", "autocast"),
        ({"SWEEP_ZERO_STAGES": "0,3", "FAST_PATHS": "equal"}, "equal:none", "by_precision"),
        ({"SWEEP_ZERO_STAGES": "0,3", "FAST_PATHS": "all"}, "all", "by_precision"),
        ({"FAST_PATHS": "front_end,positions", "MIXED_PRECISION": "weights"}, "front_end,positions", "weights"),
        # ZeRO 1, which has no autocast in fp16, is not among the groups.
        (
            {"MIXED_PRECISION": "autocast", "PRECISION_MODE": "fp16", "SWEEP_ZERO_STAGES": "0"},
            "equal:front_end,positions,tower_graph",
            "autocast",
        ),
        ({"MIXED_PRECISION": "autocast", "PRECISION_MODE": "bf16"}, f"equal:{PARTS}", "autocast"),
    ],
)
def test_all_groups_have_the_fast_paths_and_the_mixed_precision_that_each_can_have(
    environ: dict[str, str], fast_paths: str, mixed_precision: str
) -> None:
    groups = {run.group: run for run in plan(**environ).runs}.values()
    composed = [settings_from(run.workload.args, {}).settings for run in groups]
    assert {(one.fast_paths, one.mixed_precision) for one in composed} == {(fast_paths, mixed_precision)}


@pytest.mark.parametrize("mixed_precision", ["auto", "autocast", "weights", "by_precision"])
def test_every_mixed_precision_of_the_trainer_can_be_given(mixed_precision: str) -> None:
    args = plan(MIXED_PRECISION=mixed_precision, SWEEP_ZERO_STAGES="0").runs[0].workload.args
    assert settings_from(args, {}).settings.mixed_precision == mixed_precision.replace("auto", "by_precision", mixed_precision == "auto")
    assert sum("mixed_precision" in argument for argument in args) == 1


def test_a_mixed_precision_that_there_is_not() -> None:
    assert states(complaint(MIXED_PRECISION="amp"), "MIXED_PRECISION", "'amp'", "auto, autocast, weights, by_precision")


def test_a_command_for_each_zero_stage_and_one_for_both_are_the_same_runs() -> None:
    """Phase B has a command for each, into one folder."""
    apart = [hashes(plan(SWEEP_ZERO_STAGES=stage, SWEEP_MICRO_BATCHES="128")) for stage in ("0", "1")]
    assert {**apart[0], **apart[1]} == hashes(plan(SWEEP_ZERO_STAGES="0,1", SWEEP_MICRO_BATCHES="128"))


def test_the_mainline_is_the_drivers_lane_too() -> None:
    def lanes(**environ: str) -> dict[str, bool]:
        return {run.group: run.lane for resolved in mappings(**environ) for run in _resolve(resolved).runs}

    assert set(lanes(SWEEP_ZERO_STAGES="0").values()) == {True}
    assert set(lanes(SWEEP_ZERO_STAGES="0,1").values()) == {True}, "what is compared is on the lane"
    assert set(lanes(SWEEP_ZERO_STAGES="1").values()) == {False}
    assert set(lanes(MODE="ab").values()) == {True}
    for off in ({"ENABLE_TORCH_COMPILE": "true"}, {"ENABLE_LENGTH_BUCKET": "true"}, {"ATTN_IMPL": "flash_attention_2"}):
        assert set(lanes(SWEEP_ZERO_STAGES="0", **off).values()) == {False}, off
    assert set(lanes(ENABLE_LENGTH_FIXED_SLICE="true", FIXED_SLICE_SECONDS="2.0", SWEEP_ZERO_STAGES="0").values()) == {False}


def test_a_phase_b_that_is_needed() -> None:
    assert "needs" not in mapping()
    assert mapping(NEEDS="outputs/b")["needs"] == {"campaign": "outputs/b", "ready": "stage1_stability"}
    assert plan(NEEDS="outputs/b").needs == NeededCampaign(campaign=str(CWD / "outputs/b"), ready="stage1_stability")
    assert hashes(plan(NEEDS="outputs/b")) == hashes(plan())


def _resolve(written: dict[str, Any]) -> CampaignPlan:
    return resolve_plan(plan_from_mapping(written, "test"), source="test", cwd=CWD)
