"""Every variable of the benchmark driver: its default, the kind of value it takes, what it becomes, what it means.

In: an environment. Out: `Variables`, all of them checked, or a UsageError that names each one that is wrong. An empty value is the
default. Names that look like ours and are not are refused (`misspelled`): a sweep of a night must not run on a default by a slip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.errors import UsageError, nearest
from seatrial_runbooks.stage1 import kinds
from seatrial_runbooks.stage1.kinds import (
    FLAG,
    NOT_NEGATIVE,
    PATH,
    PORT,
    POSITIVE,
    POSITIVE_DECIMAL,
    SWITCH,
    TEXT,
    WORD,
    Kind,
    WrongValue,
    decimal,
    list_of,
    one_of,
    whole,
)
from seatrial_runbooks.stage1.misspelled import misspelled_names

AB, SWEEP, BOTH = "ab", "sweep", "both"
NO_CHECKPOINT = "none"
MOST_REPEATS = 10_000
# Read by the trainer itself where nobody names a manifest; taken in here so that the tables and the hash of a run know it.
MANIFEST_ELSEWHERE = "LIBRISPEECH_MANIFEST_PATH"
ATTENTION = one_of("auto", "eager", "sdpa", "flash_attention_2")
COMPILE_MODE = one_of("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WHOLE_NUMBERS = list_of(NOT_NEGATIVE, "0,1")
COUNTS = list_of(POSITIVE, "128,160")
SECONDS = list_of(POSITIVE_DECIMAL, "1.0,1.5,2.0")


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One variable of the environment."""

    name: str
    default: str
    """As it would be written; empty where there is none."""
    kind: Kind
    becomes: str
    """The key of the plan, the setting of the trainer, or what else it is for."""
    text: str
    """One line for people."""


def _of(name: str, default: str, kind: Kind, becomes: str, text: str) -> Variable:
    return Variable(name=name, default=default, kind=kind, becomes=becomes, text=text)


def _group(prefix: str, values: str) -> tuple[Variable, ...]:
    """The nine variables of one group of MODE=ab; the first six, which are no axes, of every group of the sweep."""
    given = values.split()
    defaults = dict(zip(list(_OF_A_GROUP)[: len(given)], given, strict=True))
    return tuple(_of(f"{prefix}{name}", defaults[name], *_OF_A_GROUP[name]) for name in defaults)


_OF_A_GROUP: dict[str, tuple[Kind, str, str]] = {
    "LOG_EVERY": (POSITIVE, "settings.log_every, timing.log_every", "Steps between two lines of the trainer."),
    "VALIDATION_EVERY": (POSITIVE, "settings.validation_every_steps", "Steps between two validations; beyond the last step for none."),
    "CHECKPOINT_EVERY": (POSITIVE, "settings.checkpoint_every_steps", "Steps between two checkpoints; beyond the last step for none."),
    "DETERMINISTIC": (FLAG, "settings.deterministic", "Only algorithms that give the same bits each time."),
    "CUDNN_BENCHMARK": (FLAG, "settings.cudnn_benchmark", "Let cuDNN try its algorithms and keep the fastest."),
    "WALL_CLOCK_BREAKDOWN": (FLAG, "settings.wall_clock_breakdown", "Let DeepSpeed time its own phases; it synchronises for that."),
    "ZERO_STAGE": (whole(0, 3), "settings.zero_stage", "Stage of DeepSpeed's ZeRO."),
    "NUM_WORKERS": (NOT_NEGATIVE, "settings.num_workers", "Loader workers of a rank."),
    "PREFETCH_FACTOR": (POSITIVE, "settings.prefetch_factor", "Batches each worker makes ahead."),
}

SECTIONS: dict[str, tuple[Variable, ...]] = {
    "What is run": (
        _of("MODE", AB, one_of(AB, SWEEP, BOTH), "mode", "ab compares old_like with tuned, sweep runs a matrix, both is ab, then sweep."),
        _of("OUTPUT_ROOT", "", PATH, "output", "Folder for everything; outputs/bench_stage1_ab_<time> when left out."),
        _of("EXPERIMENT", "limit_longest_1-3_stage1_bf16", WORD, "+experiment=", "Configuration of train.py to build on."),
        _of(
            "INCLUDE",
            "localhost:0,1,2,3",
            TEXT,
            "place.include",
            "GPUs of this machine, or of HOSTFILE's hosts (node1:0,1@node2:0,1); hosts alone, with WORLD_SIZE, for CPU ranks.",
        ),
        _of(
            "HOSTFILE", "", PATH, "place.hostfile", "Run on the hosts of this file, `host slots=n` a line; without INCLUDE on all of them."
        ),
        _of("WORLD_SIZE", "0", NOT_NEGATIVE, "place.ranks", "Ranks; 0 counts the GPUs of INCLUDE, or the slots of HOSTFILE."),
        _of("REPEATS", "3", whole(1, MOST_REPEATS), "repeats", "Runs of each group."),
        _of("MAX_STEPS", "5000", POSITIVE, "steps", "Number of the last step: steps 0 to MAX_STEPS are run, one more than this."),
        _of(
            "ORDER", "nested", one_of("nested", "interleaved"), "order", "nested as written (ab in rounds), interleaved in shuffled rounds."
        ),
        _of("RESUME_RUNS", "true", FLAG, "--again when false", "Leave alone what is finished in OUTPUT_ROOT already."),
        _of("STOP_ON_ERROR", "0", SWITCH, "stop_on_error", "1 ends everything at the first run that fails."),
        _of("BASELINE_GROUP", "old_like", WORD, "baseline", "Group that speedup_vs_baseline compares with."),
        _of("DRY_RUN", "0", SWITCH, "--dry-run", "1 prints plans and commands and starts nothing."),
        _of("CONDA_ENV", "", TEXT, "the interpreter", "Conda environment, by name or folder, whose Python runs everything."),
    ),
    "Limits and what is said": (
        _of("RUN_TIMEOUT_SEC", "0", NOT_NEGATIVE, "limits.run_s", "End a run that takes longer; 0 for no limit."),
        _of("MAX_WAIT_TRAIN_LOG_SEC", "900", NOT_NEGATIVE, "limits.start_s", "End a run without a first step for so long; 0 for no limit."),
        _of("STALL_ALERT_RATIO", "2.0", decimal(1), "limits.spike_ratio", "Warn when steps take so many times as long as before."),
        _of("HEARTBEAT_EVERY_SEC", "30", NOT_NEGATIVE, "--heartbeat", "Seconds between two lines about the run under way; 0 for none."),
        _of("FAILURE_DUMP_TAIL", "true", FLAG, "the driver's own lines", "Print the ends of the logs of a run that failed."),
        _of("FAIL_TAIL_LINES", "80", POSITIVE, "the driver's own lines", "Lines of each log that are printed then."),
        _of("DRIVER_LOG_PATH", "", PATH, "a file of the driver's", "Everything that is printed is appended here too; its folder is made."),
        _of("MASTER_PORT_BASE", "29650", PORT, "place.port_base", "First of the 200 ports that are tried in order."),
        _of("MASTER_PORT", "", PORT, "place.port", "This very port: taken, or the run ends as port_in_use."),
        _of("MANIFEST_WRITE_RETRIES", "3", POSITIVE, "nothing", "No effect: a bad disk is tried again, then written around, always."),
        _of("MANIFEST_WRITE_RETRY_SLEEP_SEC", "2", NOT_NEGATIVE, "nothing", "No effect, likewise."),
        _of("MANIFEST_FALLBACK_PATH", "", PATH, "SEATRIAL_FALLBACK_DIR", "Its folder is where goes what the disk does not take."),
    ),
    "Data and models": (
        _of("DATASET_ROOT", "data/LibriSpeech/LibriSpeech", PATH, "settings.dataset_root", "A LibriSpeech tree."),
        _of(
            "DATASET_MANIFEST_PATH",
            "",
            PATH,
            "settings.dataset_manifest_path",
            "Its manifest; else LIBRISPEECH_MANIFEST_PATH, else a scan.",
        ),
        _of("DATASET_USE_TRIM", "false", FLAG, "settings.dataset_use_trim", "Trim silence while loading."),
        _of("DATASET_OFFLINE_TRIMMED", "true", FLAG, "settings.dataset_offline_trimmed", "The tree was trimmed beforehand."),
        _of(
            "PRETRAINED_CKPT",
            "data/weights/csa/ckpt_epoch_8.pth",
            PATH,
            "settings.pretrained_checkpoint",
            f"Weights of the whole model to start from; {NO_CHECKPOINT} for none.",
        ),
        _of(
            "SPEECH_MODEL_PATH", "data/weights/wav2vec2-base", PATH, "settings.speech_model", "wav2vec2: a folder, a hub id, base or tiny."
        ),
        _of("TEXT_MODEL_PATH", "data/weights/bert-base-uncased", PATH, "settings.text_model", "BERT: a folder, a hub id, base or tiny."),
    ),
    "Timing": (
        _of("ENABLE_CUDA_SYNC_TIMING", "false", FLAG, "timing.sync", "Wait for the GPU at the end of every phase: exact, and slower."),
        _of("TIMING_RANK_SCOPE", "rank0", one_of("rank0", "all"), "rank_scope", "Which ranks write their steps and TimingRank lines."),
        _of("TAIL_TIMING_POINTS", "20", POSITIVE, "timing.tail_points", "Last timing points that the tail columns average."),
        _of("ENABLE_ETA_LOGGING", "true", FLAG, "timing.eta_mode", "Say TimingETA lines."),
        _of("ETA_DISTRIBUTED_MODE", "rank0", one_of("rank0", "global_max"), "timing.eta_mode", "Whose pace the time to go is told by."),
        _of("ETA_MIN_SAMPLES", "10", POSITIVE, "timing.eta_min_samples", "Steps that must have been timed before; at least 2 are."),
    ),
    "Precision and kernels": (
        _of("PRECISION_MODE", "auto", one_of("auto", "bf16", "fp16"), "settings.precision", "Number format; auto is the machine's choice."),
        _of("MODEL_LOAD_DTYPE", "auto", one_of("auto", "bf16", "fp16", "fp32"), "settings.model_load_dtype", "Format of frozen weights."),
        _of("ATTN_IMPL", "auto", ATTENTION, "both below", "Attention of both encoders."),
        _of("SPEECH_ATTN_IMPL", "", ATTENTION, "settings.speech_attn_impl", "Attention of the speech encoder; ATTN_IMPL when left out."),
        _of("TEXT_ATTN_IMPL", "", ATTENTION, "settings.text_attn_impl", "Attention of the text encoder; ATTN_IMPL when left out."),
        _of("ENABLE_TF32", "true", FLAG, "settings.tf32", "Let fp32 products on CUDA use TF32."),
        _of("MATMUL_PRECISION", "high", one_of("high", "medium", "highest"), "settings.matmul_precision", "torch's float32 precision."),
        _of("ENABLE_TORCH_COMPILE", "false", FLAG, "settings.torch_compile", "Use torch.compile."),
        _of("TORCH_COMPILE_MODE", "max-autotune", COMPILE_MODE, "settings.torch_compile_mode", "Mode of torch.compile."),
        _of("TORCH_COMPILE_DYNAMIC", "true", FLAG, "settings.torch_compile_dynamic", "Compile for changing lengths."),
    ),
    "Length of slices": (
        _of("ENABLE_LENGTH_FIXED_SLICE", "false", FLAG, "settings.fixed_slice_s", "One length for every slice; needs FIXED_SLICE_SECONDS."),
        _of("FIXED_SLICE_SECONDS", "", POSITIVE_DECIMAL, "settings.fixed_slice_s", "That length."),
        _of("ENABLE_LENGTH_BUCKET", "false", FLAG, "settings.length_buckets", "Make batches of slices of like length."),
        _of("LENGTH_BUCKET_BOUNDARIES_SEC", "1.0,1.5,2.0,2.5,3.0", SECONDS, "settings.bucket_boundaries_s", "Upper ends of the buckets."),
    ),
    "Telemetry": (
        _of("ENABLE_GPU_TELEMETRY", "true", FLAG, "telemetry.gpu_s", "Write gpu_telemetry.csv."),
        _of("GPU_TELEMETRY_INTERVAL_SEC", "2", POSITIVE, "telemetry.gpu_s", "Seconds between two of its samples."),
        _of("ENABLE_HOST_TELEMETRY", "false", FLAG, "telemetry.host_s", "Write host_telemetry.csv."),
        _of("HOST_TELEMETRY_INTERVAL_SEC", "2", POSITIVE, "telemetry.host_s", "Seconds between two of its samples."),
    ),
    "MODE=ab": (
        _of("AB_MICRO_BATCH", "128", POSITIVE, "settings.micro_batch", "Utterances of one rank in one step."),
        *_group("AB_OLD_", "1 500 500 true false true 1 2 2"),
        *_group("AB_TUNED_", "20 5000 5000 false false false 1 2 2"),
    ),
    "MODE=sweep": (
        _of("SWEEP_ZERO_STAGES", "0,1", list_of(whole(0, 3), "0,1"), "axes.zero_stage", "Stages of DeepSpeed's ZeRO."),
        _of("SWEEP_MICRO_BATCHES", "128,160,192", COUNTS, "axes.micro_batch", "Utterances of one rank in one step."),
        _of("SWEEP_NUM_WORKERS", "2", NOT_NEGATIVE, "axes.num_workers", "Loader workers of a rank, one value."),
        _of("SWEEP_NUM_WORKERS_LIST", "", WHOLE_NUMBERS, "axes.num_workers", "The same, several values; stands over the one."),
        _of("SWEEP_PREFETCH_FACTOR", "2", POSITIVE, "axes.prefetch_factor", "Batches each worker makes ahead, one value."),
        _of("SWEEP_PREFETCH_LIST", "", list_of(POSITIVE, "2,4"), "axes.prefetch_factor", "The same, several values; stands over the one."),
        *_group("SWEEP_", "100 1000000 1000000 false false false"),
    ),
}
VARIABLES: dict[str, Variable] = {variable.name: variable for section in SECTIONS.values() for variable in section}


@dataclass(frozen=True, kw_only=True)
class Variables:
    """The value of every variable, and which of them the environment gave."""

    values: Mapping[str, Any]
    """By name; None where neither the environment nor a default gives one."""
    given: frozenset[str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read(environ: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> Variables:
    """Every variable's value; `defaults` are another procedure's own and stand over the table's."""
    problems = misspelled_names(environ, VARIABLES)
    others = {"DATASET_MANIFEST_PATH": environ.get(MANIFEST_ELSEWHERE, ""), **(defaults or {})}
    asked = {name: environ.get(name) or others.get(name) or variable.default for name, variable in VARIABLES.items()}
    values: dict[str, Any] = {}
    for name, text in asked.items():
        try:
            values[name] = VARIABLES[name].kind.parse(text) if text else None
        except ValueError as error:
            problems.append(_sentence(VARIABLES[name], text, error))
    problems += _contradictions(values)
    if problems:
        raise UsageError(problems[0] if len(problems) == 1 else "\n  ".join([f"{len(problems)} variables cannot be used:", *problems]))
    return Variables(values=values, given=frozenset(name for name in VARIABLES if environ.get(name)))


def _sentence(variable: Variable, text: str, error: ValueError) -> str:
    """`MODE is 'swep'; expected one of ab, sweep, both: did you mean 'sweep'?`"""
    if isinstance(error, WrongValue):
        return f"{variable.name} is {text!r}, which {error}"
    words = variable.kind.expected.removeprefix("one of ")
    near = nearest(text.lower(), words.split(", ")) if words != variable.kind.expected else _nearest_flag(variable.kind, text)
    return f"{variable.name} is {text!r}; expected {variable.kind.expected}" + (f": did you mean '{near}'?" if near else "")


def _nearest_flag(kind: Kind, text: str) -> str | None:
    """What someone meant who wrote a flag as another program has it."""
    words = {kinds.FLAG: ("true", "false"), kinds.SWITCH: ("1", "0")}.get(kind)
    on, off = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
    return None if words is None else words[0] if text.lower() in on else words[1] if text.lower() in off else None


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    if values.get("ENABLE_LENGTH_FIXED_SLICE") and "FIXED_SLICE_SECONDS" in values and values["FIXED_SLICE_SECONDS"] is None:
        return ["FIXED_SLICE_SECONDS is not given, and ENABLE_LENGTH_FIXED_SLICE=true needs it: a number above 0, as in 2.0"]
    return []
