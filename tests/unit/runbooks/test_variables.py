"""The driver's variables: defaults, kinds, what is refused and with which words, and whose names are let pass."""

from __future__ import annotations

import dataclasses
import re

import pytest

from seatrial.core.errors import UsageError
from seatrial_runbooks.stage1 import variables as kinds
from seatrial_runbooks.stage1.variables import SECTIONS, VARIABLES, help_text, read, shortened_names
from seatrial_workloads.contrastive.hydra_config.keys import KEYS, source_of
from seatrial_workloads.contrastive.settings import Settings
from tests.facts import states

# As the procedures give them.
DEFAULTS = {
    "MODE": "ab", "EXPERIMENT": "limit_longest_1-3_stage1_bf16", "INCLUDE": "localhost:0,1,2,3", "WORLD_SIZE": 0, "MASTER_PORT_BASE": 29650,
    "REPEATS": 3, "MAX_STEPS": 5000, "TAIL_TIMING_POINTS": 20, "STOP_ON_ERROR": False, "RUN_TIMEOUT_SEC": 0, "HEARTBEAT_EVERY_SEC": 30,
    "MAX_WAIT_TRAIN_LOG_SEC": 900, "FAILURE_DUMP_TAIL": True, "FAIL_TAIL_LINES": 80, "RESUME_RUNS": True, "MANIFEST_WRITE_RETRIES": 3,
    "MANIFEST_WRITE_RETRY_SLEEP_SEC": 2, "BASELINE_GROUP": "old_like", "DATASET_ROOT": "data/LibriSpeech/LibriSpeech",
    "DATASET_USE_TRIM": False, "DATASET_OFFLINE_TRIMMED": True, "PRETRAINED_CKPT": "data/weights/csa/ckpt_epoch_8.pth",
    "SPEECH_MODEL_PATH": "data/weights/wav2vec2-base", "TEXT_MODEL_PATH": "data/weights/bert-base-uncased",
    "ENABLE_CUDA_SYNC_TIMING": False, "TIMING_RANK_SCOPE": "rank0", "ENABLE_ETA_LOGGING": True, "ETA_DISTRIBUTED_MODE": "rank0",
    "ETA_MIN_SAMPLES": 10, "PRECISION_MODE": "auto", "ATTN_IMPL": "auto", "MODEL_LOAD_DTYPE": "auto", "ENABLE_TF32": True,
    "MATMUL_PRECISION": "high", "ENABLE_TORCH_COMPILE": False, "TORCH_COMPILE_MODE": "max-autotune", "TORCH_COMPILE_DYNAMIC": True,
    "ENABLE_LENGTH_FIXED_SLICE": False, "ENABLE_LENGTH_BUCKET": False, "LENGTH_BUCKET_BOUNDARIES_SEC": (1.0, 1.5, 2.0, 2.5, 3.0),
    "ENABLE_GPU_TELEMETRY": True, "GPU_TELEMETRY_INTERVAL_SEC": 2, "ENABLE_HOST_TELEMETRY": False, "HOST_TELEMETRY_INTERVAL_SEC": 2,
    "STALL_ALERT_RATIO": 2.0, "AB_MICRO_BATCH": 128, "AB_OLD_LOG_EVERY": 1, "AB_OLD_VALIDATION_EVERY": 500,
    "AB_OLD_CHECKPOINT_EVERY": 500, "AB_OLD_DETERMINISTIC": True, "AB_OLD_CUDNN_BENCHMARK": False, "AB_OLD_WALL_CLOCK_BREAKDOWN": True,
    "AB_OLD_ZERO_STAGE": 1, "AB_OLD_NUM_WORKERS": 2, "AB_OLD_PREFETCH_FACTOR": 2, "AB_TUNED_LOG_EVERY": 20,
    "AB_TUNED_VALIDATION_EVERY": 5000, "AB_TUNED_CHECKPOINT_EVERY": 5000, "AB_TUNED_DETERMINISTIC": False,
    "AB_TUNED_CUDNN_BENCHMARK": False, "AB_TUNED_WALL_CLOCK_BREAKDOWN": False, "AB_TUNED_ZERO_STAGE": 1, "AB_TUNED_NUM_WORKERS": 2,
    "AB_TUNED_PREFETCH_FACTOR": 2, "SWEEP_ZERO_STAGES": (0, 1), "SWEEP_MICRO_BATCHES": (128, 160, 192), "SWEEP_NUM_WORKERS": 2,
    "SWEEP_PREFETCH_FACTOR": 2, "SWEEP_LOG_EVERY": 100, "SWEEP_VALIDATION_EVERY": 1000000, "SWEEP_CHECKPOINT_EVERY": 1000000,
    "SWEEP_DETERMINISTIC": False, "SWEEP_CUDNN_BENCHMARK": False, "SWEEP_WALL_CLOCK_BREAKDOWN": False,
    # Ours.
    "ORDER": "nested", "DRY_RUN": False, "IGNORE_NEEDS": False, "IGNORE_UNKNOWN": False,
}  # fmt: skip
WITHOUT = {
    "OUTPUT_ROOT", "DRIVER_LOG_PATH", "CONDA_ENV", "MANIFEST_FALLBACK_PATH", "DATASET_MANIFEST_PATH", "SPEECH_ATTN_IMPL", "TEXT_ATTN_IMPL",
    "FIXED_SLICE_SECONDS", "SWEEP_NUM_WORKERS_LIST", "SWEEP_PREFETCH_LIST", "MASTER_PORT", "HOSTFILE", "NEEDS",
    *kinds.TRAINER_VARIABLES,
}  # fmt: skip
WRONG = {
    kinds.POSITIVE: ["0", "-1", "1.5", "many", "1e3", "007", " 3", "9" * 5000],
    kinds.NOT_NEGATIVE: ["-1", "0.5", "none"],
    kinds.PORT: ["0", "65536", "http"],
    kinds.FLAG: ["True", "1", "yes", "flase"],
    kinds.SWITCH: ["true", "2"],
    kinds.POSITIVE_DECIMAL: ["0", "-2.0", "2s", "nan", "inf"],
    kinds.TEXT: ["two\nlines", "\udcff"],
    kinds.PATH: ["two\nlines", "tab\there", "\udcff"],
    kinds.PART_LIST: ["two words", "a,,b", "1"],
    kinds.WORD: ["two words", "../../x y", "-x"],
}
# What a desktop, a cluster, a container, conda and the libraries of the field leave in an environment.
REALISTIC = """
PATH HOME USER SHELL TERM LANG LC_ALL PWD OLDPWD SHLVL HOSTNAME LOGNAME MAIL EDITOR PAGER TZ TMPDIR DISPLAY MODEL MODE_OF_WORK
INCLUDE_PATH INCLUDES C_INCLUDE_PATH CPLUS_INCLUDE_PATH CPATH LIBRARY_PATH LD_LIBRARY_PATH PKG_CONFIG_PATH MANPATH INFOPATH
MASTER_ADDR MASTER_HOST RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE NODE_RANK NNODES
OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMI_SIZE PMI_RANK I_MPI_ROOT SLURM_JOB_ID SLURM_NTASKS SLURM_RESTART_COUNT SLURM_TASKS_PER_NODE
OUTPUT_DIR OUTPUT_PATH OUT_DIR DATA_DIR DATA_ROOT DATASET_DIR DATASET_PATH MODEL_PATH MODEL_DIR MODELS_PATH CHECKPOINT_DIR RUN_ID RUN_NAME
EXPERIMENT_ID EXPERIMENT_NAME MLFLOW_EXPERIMENT_NAME MLFLOW_TRACKING_URI WANDB_SWEEP_ID WANDB_MODE WANDB_PROJECT WANDB_RUN_ID
NCCL_DEBUG NCCL_P2P_DISABLE NCCL_IB_DISABLE NCCL_SOCKET_IFNAME NCCL_ASYNC_ERROR_HANDLING CUDA_VISIBLE_DEVICES CUDA_HOME CUDA_LAUNCH_BLOCKING
CUDA_DEVICE_ORDER CUDA_DEVICE_MAX_CONNECTIONS CUBLAS_WORKSPACE_CONFIG PYTORCH_CUDA_ALLOC_CONF PYTORCH_ENABLE_MPS_FALLBACK
TORCH_COMPILE_DEBUG TORCH_COMPILE_DEBUG_DIR TORCH_COMPILE_DISABLE TORCH_COMPILE_JOB_ID TORCH_COMPILE_DYNAMIC_SOURCES
TORCH_COMPILE_DYNAMIC_VALUES TORCH_COMPILE_CPROFILE TORCH_COMPILE_BACKEND TORCH_COMPILE_STROBELIGHT TORCH_HOME TORCH_LOGS
TORCH_DISTRIBUTED_DEBUG TORCH_CUDA_ARCH_LIST TORCH_SHOW_CPP_STACKTRACES TORCH_NCCL_BLOCKING_WAIT TORCHINDUCTOR_FX_COMPILE_MODE
TORCHINDUCTOR_MAX_AUTOTUNE TORCHELASTIC_RUN_ID TORCHELASTIC_MAX_RESTARTS OMP_NUM_THREADS MKL_NUM_THREADS KMP_AFFINITY
CONDA_EXE CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL CONDA_ENVS_PATH CONDA_ENVS_DIRS CONDA_PYTHON_EXE CONDA_PROMPT_MODIFIER VIRTUAL_ENV
LIBRISPEECH_MANIFEST_PATH HF_HOME HF_HUB_OFFLINE HF_DATASETS_CACHE TRANSFORMERS_CACHE TOKENIZERS_PARALLELISM DS_ACCELERATOR
DS_SKIP_CUDA_CHECK DEEPSPEED_TIMEOUT ACCELERATE_MIXED_PRECISION ACCELERATE_DEEPSPEED_ZERO_STAGE GITHUB_ACTIONS GITHUB_OUTPUT
CI CI_COMMIT_SHA JENKINS_HOME
KUBERNETES_SERVICE_HOST KUBERNETES_PORT DBUS_SESSION_BUS_ADDRESS XDG_RUNTIME_DIR XDG_SESSION_ID SSH_CONNECTION SSH_AUTH_SOCK VSCODE_IPC_HOOK
GIT_EDITOR LESSOPEN LS_COLORS http_proxy https_proxy no_proxy modules_shell PYTHONPATH PYTHONUNBUFFERED PIP_CACHE_DIR UV_CACHE_DIR
SEATRIAL_FALLBACK_DIR SEATRIAL_PYTHON MODULEPATH LOADEDMODULES ENABLE_GPU DISABLE_TELEMETRY HISTCONTROL HISTSIZE SYNC_MODE RUN_MODE
TEST_MODE DEBUG_MODE LOG_PATH LOG_LEVEL MAX_JOBS MAX_EPOCHS ORDER_ID TIMEOUT_SEC SCHEDULER_JOB_ID _
ENV GROUP PORT ROOT STAGE HOST TYPE VERSION DEBUG VERBOSE ROOT_DIR MANIFEST_PATH USE_TORCH USE_TF USE_CUDA WITH_CUDA NUM_THREADS NPROC
"""


def refusal(**environ: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(environ)
    return str(caught.value)


def test_defaults_are_those_of_the_procedures() -> None:
    assert read({}).values == {**DEFAULTS, **dict.fromkeys(WITHOUT)}
    assert read({}).given == frozenset()


def test_an_empty_value_is_the_default() -> None:
    variables = read({"REPEATS": "", "MODE": "sweep", "SWEEP_NUM_WORKERS_LIST": ""})
    assert (variables["REPEATS"], variables["SWEEP_NUM_WORKERS_LIST"], variables.given) == (3, None, {"MODE"})


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_refuses_what_is_not_of_its_kind(name: str) -> None:
    kind = VARIABLES[name].kind
    wrong = WRONG.get(kind, ["", "nothing of the kind", "1,,2", "a,b"])
    for text in filter(None, wrong):
        message = refusal(**{name: text})
        assert message.startswith(f"{name} is {text!r}")
        assert f"expected {kind.expected}" in message


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("MODE", "sweeep", "MODE is 'sweeep'; expected one of ab, sweep, both: did you mean 'sweep'?"),
        ("ORDER", "random", "ORDER is 'random'; expected one of nested, interleaved"),
        ("TIMING_RANK_SCOPE", "rank1", "TIMING_RANK_SCOPE is 'rank1'; expected one of rank0, all: did you mean 'rank0'?"),
        ("ETA_DISTRIBUTED_MODE", "max", "ETA_DISTRIBUTED_MODE is 'max'; expected one of rank0, global_max"),
        ("PRECISION_MODE", "fp32", "PRECISION_MODE is 'fp32'; expected one of auto, bf16, fp16: did you mean 'fp16'?"),
        ("ATTN_IMPL", "flash", "ATTN_IMPL is 'flash'; expected one of auto, eager, sdpa, flash_attention_2"),
        ("MODEL_LOAD_DTYPE", "half", "MODEL_LOAD_DTYPE is 'half'; expected one of auto, bf16, fp16, fp32"),
        ("MATMUL_PRECISION", "low", "MATMUL_PRECISION is 'low'; expected one of high, medium, highest"),
        ("STOP_ON_ERROR", "yes", "STOP_ON_ERROR is 'yes'; expected 0 or 1: did you mean '1'?"),
        ("RESUME_RUNS", "0", "RESUME_RUNS is '0'; expected true or false: did you mean 'false'?"),
        ("REPEATS", "0", "REPEATS is '0'; expected a whole number from 1 to 10000"),
        ("SWEEP_ZERO_STAGES", "0,4", "SWEEP_ZERO_STAGES is '0,4'; expected comma-separated whole numbers from 0 to 3, as in 0,1"),
        ("SWEEP_MICRO_BATCHES", "128,0", "'128,0'; expected comma-separated whole numbers, 1 or more, as in 128,160"),
        ("SWEEP_NUM_WORKERS_LIST", "4,-1", "expected comma-separated whole numbers, 0 or more"),
        ("SWEEP_PREFETCH_LIST", "2,", "expected comma-separated whole numbers, 1 or more"),
        ("LENGTH_BUCKET_BOUNDARIES_SEC", "1.0,0", "expected comma-separated numbers above 0, as in 1.0,1.5,2.0"),
        ("STALL_ALERT_RATIO", "1.0", "STALL_ALERT_RATIO is '1.0'; expected a number above 1"),
        ("SWEEP_MICRO_BATCHES", "128,160,128", "which has 128 twice: give each value once, and REPEATS for several runs"),
    ],
)  # fmt: skip
def test_the_rules_of_the_procedures(name: str, text: str, expected: str) -> None:
    assert expected in refusal(**{name: text})


def test_a_fixed_slice_needs_its_length() -> None:
    assert states(refusal(ENABLE_LENGTH_FIXED_SLICE="true"), "FIXED_SLICE_SECONDS", "missing", "ENABLE_LENGTH_FIXED_SLICE=true")
    assert "FIXED_SLICE_SECONDS is '0'" in refusal(ENABLE_LENGTH_FIXED_SLICE="true", FIXED_SLICE_SECONDS="0")
    assert read({"ENABLE_LENGTH_FIXED_SLICE": "true", "FIXED_SLICE_SECONDS": "2.0"})["FIXED_SLICE_SECONDS"] == 2.0


def test_all_that_is_wrong_is_reported_at_once() -> None:
    message = refusal(REPEATS="x", MODE="y", SWEEP_ZERO="0")
    assert message.splitlines()[0] == "3 variables are invalid:"
    assert [line.split()[0] for line in message.splitlines()[1:]] == ["SWEEP_ZERO", "MODE", "REPEATS"]


def test_lists_take_spaces_and_keep_their_order() -> None:
    assert read({"SWEEP_MICRO_BATCHES": "192, 128"})["SWEEP_MICRO_BATCHES"] == (192, 128)


def test_a_manifest_named_for_the_trainer_is_taken() -> None:
    elsewhere = {"LIBRISPEECH_MANIFEST_PATH": "./a.tsv"}
    assert read(elsewhere)["DATASET_MANIFEST_PATH"] == "./a.tsv"
    assert read({**elsewhere, "DATASET_MANIFEST_PATH": "b.tsv"})["DATASET_MANIFEST_PATH"] == "b.tsv"


def test_defaults_of_another_procedure_override_the_tables() -> None:
    assert (read({}, {"MAX_STEPS": "1000"})["MAX_STEPS"], read({"MAX_STEPS": "5"}, {"MAX_STEPS": "1000"})["MAX_STEPS"]) == (1000, 5)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SWEEP_MICRO_BATCH", "SWEEP_MICRO_BATCHES"),
        ("AB_OLD_ZERO_STAGES", "AB_OLD_ZERO_STAGE"),
        ("MAX_STEP", "MAX_STEPS"),
        ("WORLDSIZE", "WORLD_SIZE"),
        ("RUN_TIMEOUT", "RUN_TIMEOUT_SEC"),
        ("TORCH_COMPILE_MODES", "TORCH_COMPILE_MODE"),
        ("DATASET_MANIFEST_PAHT", "DATASET_MANIFEST_PATH"),
    ],
)
def test_a_near_miss_is_refused_with_the_right_name(name: str, meant: str) -> None:
    assert refusal(**{name: "160"}) == f"{name} is not a variable of this driver: did you mean {meant}?"


def test_a_name_that_begins_like_ours_and_is_like_none_is_refused() -> None:
    assert states(refusal(SWEEP_QQQ="1"), "SWEEP_QQQ", "--help")


def test_a_misspelled_name_without_a_value_changes_nothing() -> None:
    assert read({"SWEEP_MICRO_BATCH": ""})["SWEEP_MICRO_BATCHES"] == (128, 160, 192)


def test_an_environment_full_of_other_programs_names_is_let_pass() -> None:
    assert read(dict.fromkeys(REALISTIC.split(), "1")).given == frozenset()


def test_help_has_every_variable_with_its_default() -> None:
    text = help_text("x.sh")
    for title, variables in SECTIONS.items():
        assert f"\n{title}\n" in text
        for variable in variables:
            entry = " ".join(text.partition(f"\n  {variable.name}\n")[2].partition(". Becomes")[0].split())
            assert variable.text in entry and (variable.default or "no default") in entry


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RESUME", "RESUME_RUNS"),
        ("DRIVER_LOG", "DRIVER_LOG_PATH"),
    ],
)
def test_a_name_that_lacks_one_part_is_reported(name: str, meant: str) -> None:
    (sentence,) = shortened_names({name: "x"}, VARIABLES)
    assert states(sentence, name, "no effect", meant)
    read({name: "x"})


@pytest.mark.parametrize(
    ("name", "mode", "meant"),
    [
        ("ZERO_STAGE", "sweep", "SWEEP_ZERO_STAGES"),
        ("ZERO_STAGE", "ab", "AB_OLD_ZERO_STAGE and AB_TUNED_ZERO_STAGE"),
        ("BATCH_SIZE", "sweep", "SWEEP_MICRO_BATCHES"),
        ("BATCH_SIZE", "ab", "AB_MICRO_BATCH"),
        ("ENABLE_FLASH_ATTN", "sweep", "ATTN_IMPL"),
        ("PRECISION", "sweep", "PRECISION_MODE"),
        ("TORCH_COMPILE", "sweep", "ENABLE_TORCH_COMPILE"),
        ("NUM_WORKERS", "both", "SWEEP_NUM_WORKERS_LIST"),
        ("SEED", "sweep", "TRAIN_SEED"),
        ("LEARNING_RATE", "sweep", "TRAIN_LR"),
        ("TRAIN_MICRO_BATCH", "sweep", "SWEEP_MICRO_BATCHES"),
        ("AMP", "sweep", "PRECISION_MODE"),
        ("FLASH_ATTENTION_2", "sweep", "ATTN_IMPL"),
        ("ENABLE_FLASH_ATTENTION_2", "sweep", "ATTN_IMPL"),
        ("USE_FLASH_ATTN_2", "sweep", "ATTN_IMPL"),
        ("ATTN_IMPLEMENTATION", "sweep", "ATTN_IMPL"),
        ("ATTN", "sweep", "ATTN_IMPL"),
        ("SPEECH_ATTN", "sweep", "SPEECH_ATTN_IMPL"),
        ("TORCH_DTYPE", "sweep", "MODEL_LOAD_DTYPE"),
        ("LOG_EVERY_STEPS", "sweep", "SWEEP_LOG_EVERY"),
        ("LOG_EVERY_STEPS", "ab", "AB_OLD_LOG_EVERY and AB_TUNED_LOG_EVERY"),
        ("GLOBAL_BATCH_SIZE", "sweep", "SWEEP_MICRO_BATCHES, the batch of one rank"),
        ("NUM_REPEATS", "ab", "REPEATS"),
        ("NUM_GPUS", "sweep", "INCLUDE, such as localhost:0,1"),
        ("GPUS", "sweep", "INCLUDE, such as localhost:0,1"),
        ("Zero_Stage", "sweep", "SWEEP_ZERO_STAGES"),
        ("zero_stage", "ab", "AB_OLD_ZERO_STAGE and AB_TUNED_ZERO_STAGE"),
        ("MIXED", "sweep", "MIXED_PRECISION"),
        ("FIXED_SLICE", "sweep", "ENABLE_LENGTH_FIXED_SLICE=true and FIXED_SLICE_SECONDS"),
        ("SLICE_SECONDS", "sweep", "ENABLE_LENGTH_FIXED_SLICE=true and FIXED_SLICE_SECONDS"),
        ("TAIL_POINTS", "sweep", "TAIL_TIMING_POINTS"),
        ("OUTPUT", "sweep", "OUTPUT_ROOT"),
        ("USE_FAST_PATHS", "sweep", "FAST_PATHS"),
        ("TRAIN_MICRO_BATCH_SIZE_PER_GPU", "sweep", "SWEEP_MICRO_BATCHES"),
        ("PER_DEVICE_TRAIN_BATCH_SIZE", "sweep", "SWEEP_MICRO_BATCHES"),
        ("BATCH_SIZE_PER_GPU", "sweep", "SWEEP_MICRO_BATCHES"),
        ("MBS", "sweep", "SWEEP_MICRO_BATCHES"),
        ("ZEROSTAGE", "sweep", "SWEEP_ZERO_STAGES"),
        ("DS_ZERO_STAGE", "sweep", "SWEEP_ZERO_STAGES"),
        ("DS_STAGE", "sweep", "SWEEP_ZERO_STAGES"),
        ("USE_FLASH", "sweep", "ATTN_IMPL"),
        ("ENABLE_FLASH", "sweep", "ATTN_IMPL"),
        ("USE_SDPA", "sweep", "ATTN_IMPL"),
        ("ATTENTION_BACKEND", "sweep", "ATTN_IMPL"),
        ("NPROC_PER_NODE", "sweep", "INCLUDE, such as localhost:0,1"),
        ("N_GPUS", "sweep", "INCLUDE, such as localhost:0,1"),
        ("TOTAL_STEPS", "sweep", "MAX_STEPS"),
        ("CUDA_GRAPHS", "sweep", "FAST_PATHS, of whose parts text_graph and tower_graph are CUDA graphs"),
    ],
)
def test_what_looks_like_a_setting_is_refused_with_the_right_name(name: str, mode: str, meant: str) -> None:
    message = refusal(MODE=mode, **{name: "1"})
    assert message.startswith(f"{name} is not a variable of this driver: use {meant}; IGNORE_UNKNOWN=1")
    assert read({"MODE": mode, name: "1", "IGNORE_UNKNOWN": "1"})["MODE"] == mode


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((name, "the trainer does not accumulate gradients") for name in ("GRAD_ACCUM", "GAS", "ACCUM_STEPS")),
        ("GRADIENT_CHECKPOINTING", "the trainer does not recompute activations"),
    ],
)
def test_what_the_trainer_does_not_have_is_refused(name: str, why: str) -> None:
    assert refusal(**{name: "2"}).startswith(f"{name} is not a variable of this driver: {why}; IGNORE_UNKNOWN=1")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("TRAIN_FOO", "--help lists them all; IGNORE_UNKNOWN=1"),
        ("GRADIENT_ACCUMULATION_STEPS", "the trainer does not accumulate gradients; IGNORE_UNKNOWN=1"),
    ],
)
def test_what_no_variable_sets_is_refused_and_may_be_ignored(name: str, told: str) -> None:
    assert refusal(**{name: "1"}).startswith(f"{name} is not a variable of this driver: {told}")
    assert read({name: "1", "IGNORE_UNKNOWN": "1"}).given == {"IGNORE_UNKNOWN"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SWEEP_ZERO_STAGE", "SWEEP_ZERO_STAGES"),
        ("Sweep_Zero_Stages", "SWEEP_ZERO_STAGES"),
        ("sweep_micro_batch", "SWEEP_MICRO_BATCHES"),
        ("max_steps", "MAX_STEPS"),
        ("MAX_STEP", "MAX_STEPS"),
        ("TRAIN_SEEED", "TRAIN_SEED"),
    ],
)
def test_no_switch_lets_a_misspelled_name_of_the_driver_pass(name: str, meant: str) -> None:
    for more in ({}, {"IGNORE_UNKNOWN": "1"}):
        assert refusal(**{name: "1"}, **more) == f"{name} is not a variable of this driver: did you mean {meant}?"


def test_every_key_of_train_py_that_has_a_variable_is_known_by_its_last_part() -> None:
    for key, entry in KEYS.items():
        name = key.rpartition(".")[2].upper()
        if entry.fields and "_" in name and name not in (*VARIABLES, *kinds.FOREIGN_NAMES):
            assert "is not a variable of this driver: use " in refusal(MODE="sweep", **{name: "1"}), key


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Settings)])
def test_every_setting_of_the_trainer_has_a_variable_and_a_key(field: str) -> None:
    """Also one that the trainer gets later: add it to TRAINER_VARIABLES."""
    variables = [kinds.SETTING_VARIABLES.get(field), *kinds.BY_MODE.get(field, {}).values()]
    named = {word for text in variables if text for word in re.findall(r"[A-Z][A-Z0-9_]{3,}", text)}
    assert named & set(VARIABLES), f"no variable sets {field}"
    assert source_of(field), "and a key of train.py"


@pytest.mark.parametrize("name", ["AB_SERVICE_HOST", "AB_PORT_80_TCP", "AB_TEST_BUCKET"])
def test_what_only_begins_like_a_variable_of_mode_ab_is_let_pass(name: str) -> None:
    assert read({name: "x"}).given == frozenset()


def test_the_environment_of_other_programs_lacks_no_word_of_ours() -> None:
    assert shortened_names({"PATH": "x", "MASTER_ADDR": "x", "HOME": "x", "CUDA_HOME": "x", "MODEL": "x", "USER": "x"}, VARIABLES) == []
