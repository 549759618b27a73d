"""Every variable of the benchmark driver: default, accepted values, the setting it becomes, its help text.

In: an environment. Out: `Variables`, all checked, or a UsageError that names each invalid one. An empty value means the default. Names
similar to the driver's are refused: a sweep must not run on a default because of a typo.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from seatrial.core.errors import UsageError, nearest
from seatrial.core.ports import LAST_PORT
from seatrial_workloads.common.precision import MIXED_CHOICES
from seatrial_workloads.contrastive.hydra_config.keys import KEYS
from seatrial_workloads.contrastive.settings import Settings

_WHOLE = re.compile(r"0|[1-9][0-9]{0,11}")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
# A larger number is a typo.
MOST = 10**12


@dataclass(frozen=True)
class Kind:
    expected: str
    """Description, after `expected`."""
    parse: Callable[[str], Any]
    """Raises ValueError for an invalid text."""


class InvalidValue(ValueError):
    """A well-formed value that is not allowed; the message is the reason."""


def one_of(*choices: str) -> Kind:
    return Kind(f"one of {', '.join(choices)}", _lookup({choice: choice for choice in choices}))


def _lookup(values: Mapping[str, Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if text not in values:
            raise ValueError
        return values[text]

    return parse


def _text_where(accepts: Callable[[str], object]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not accepts(text):
            raise ValueError
        return text

    return parse


def whole(least: int, most: int = MOST) -> Kind:
    def parse(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text) else -1
        if not least <= number <= most:
            raise ValueError
        return number

    return Kind(f"a whole number, {least} or more" if most == MOST else f"a whole number from {least} to {most}", parse)


def decimal(above: float) -> Kind:
    def parse(text: str) -> float:
        number = float(text) if _DECIMAL.fullmatch(text) else above
        if number <= above:
            raise ValueError
        return number

    return Kind(f"a number above {above:g}", parse)


def number(least: float) -> Kind:
    """A decimal, also with an exponent: 1e-4."""

    def parse(text: str) -> float:
        value = float(text) if text.isascii() and text == text.strip() else math.nan
        if not least <= value < math.inf:
            raise ValueError
        return value

    return Kind(f"a number, {least:g} or more, such as 1e-4", parse)


def pair(example: str) -> Kind:
    """Two numbers, comma-separated."""

    def parse(text: str) -> tuple[float, ...]:
        values = tuple(number(0).parse(part.strip()) for part in text.split(","))
        if len(values) != 2:
            raise ValueError
        return values

    return Kind(f"two numbers, as in {example}", parse)


def list_of(item: Kind, example: str) -> Kind:
    """Comma-separated items, each once."""

    def parse(text: str) -> tuple[Any, ...]:
        items = tuple(item.parse(part.strip()) for part in text.split(","))
        twice = next((value for position, value in enumerate(items) if value in items[:position]), None)
        if twice is not None:
            raise InvalidValue(f"has {twice} twice: give each value once, and REPEATS for several runs")
        return items

    plural = item.expected.replace("a whole number", "whole numbers").replace("a number", "numbers")
    return Kind(f"comma-separated {plural}, as in {example}", parse)


FLAG = Kind("true or false", _lookup({"true": True, "false": False}))
SWITCH = Kind("0 or 1", _lookup({"0": False, "1": True}))
POSITIVE = whole(1)
NOT_NEGATIVE = whole(0)
PORT = whole(1, LAST_PORT)
POSITIVE_DECIMAL = decimal(0)
TEXT = Kind("one line of plain text", _text_where(str.isprintable))
WORD = Kind("a name of letters, digits and . _ + - /", _text_where(re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,199}").fullmatch))
PATH = Kind("a path, on one line of plain text", _text_where(str.isprintable))

OUR_PREFIX = "SWEEP_"
# Other programs may use this prefix too; similar names are taken for misspellings.
SHARED_PREFIX, SHARED_SIMILARITY = "AB_", 0.7
# Prefix of variables for settings that the original driver could not set: a name with it looks like a setting.
SETTING_PREFIX = "TRAIN_"
SIMILARITY = 0.84
# Shorter names, such as MODE, resemble too many others.
SHORTEST_NAME = 6
# Prefixes of other programs, some with similar names.
FOREIGN_PREFIXES = (
    "ACCELERATE_", "AWS_", "BASH_", "CI_", "CMAKE_", "CONDA_", "CUBLAS_", "CUDA_", "CUDNN_", "DBUS_", "DEEPSPEED_", "DOCKER_", "DS_",
    "GCC_", "GIT_", "GITHUB_", "GITLAB_", "GLOO_", "GOOGLE_", "HF_", "HYDRA_", "I_MPI_", "JUPYTER_", "KMP_", "KUBERNETES_", "LC_", "LD_",
    "MKL_", "MLFLOW_", "MODULES_", "MPI_", "MPICH_", "NCCL_", "NIX_", "NVIDIA_", "NVTE_", "OMP_", "OMPI_", "OPAL_", "OPENBLAS_", "PALS_",
    "PBS_", "PIP_", "PMI_", "PMIX_", "PYTEST_", "PYTHON", "PYTORCH_", "SEATRIAL_", "SLURM_", "SSH_", "TENSORBOARD_", "TF_",
    "TOKENIZERS_", "TORCHELASTIC_", "TORCHINDUCTOR_", "TRANSFORMERS_", "TRITON_", "UCX_", "VLLM_", "VSCODE_", "WANDB_", "XDG_", "XLA_",
)  # fmt: skip
FOREIGN_NAMES = (
    "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "DATA_ROOT", "DATASET_DIR", "DATASET_PATH", "EXPERIMENT_ID", "EXPERIMENT_NAME",
    "GROUP_WORLD_SIZE", "INCLUDE_PATH", "INCLUDES", "LIBRISPEECH_MANIFEST_PATH", "LOCAL_WORLD_SIZE", "MANIFEST_PATH", "MASTER_ADDR",
    "MASTER_HOST", "MODEL", "MODEL_PATH", "OUTPUT_DIR", "OUTPUT_PATH", "ROLE_WORLD_SIZE", "ROOT_DIR", "TIMEOUT_SEC",
)  # fmt: skip
IGNORE = "IGNORE_UNKNOWN=1 where it is another program's"
# torch has a dozen names like TORCH_COMPILE_MODE: only nearly equal ones count as misspelled.
TORCH, TORCH_SIMILARITY = "TORCH_", 0.9


def misspelled_names(environ: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A message for each unknown name that can only be a misspelling of one of the driver's; empty variables are ignored."""
    candidates = sorted(name for name, value in environ.items() if value and name not in known and not meant_by(name, known))
    suggestions = {name: _suggest(name, known) for name in candidates}
    return [f"{name} is not a variable of this driver: {guess}" for name, guess in suggestions.items() if guess]


def _suggest(name: str, known: Collection[str]) -> str | None:
    """The suggestion for this name; None for another program's."""
    upper = name.upper()
    if upper in known:
        return f"did you mean {upper}?"
    if upper.startswith(OUR_PREFIX):
        near = nearest(upper, sorted(known), 0.6)
        return f"did you mean {near}?" if near else "--help lists them all"
    if upper.startswith(SHARED_PREFIX):
        near = nearest(upper, sorted(one for one in known if one.startswith(SHARED_PREFIX)), SHARED_SIMILARITY)
        return f"did you mean {near}?" if near else None
    if upper.startswith(SETTING_PREFIX):
        settings = sorted(one.removeprefix(SETTING_PREFIX) for one in known if one.startswith(SETTING_PREFIX))
        near = nearest(upper.removeprefix(SETTING_PREFIX), settings, 0.6)
        return f"did you mean {SETTING_PREFIX}{near}?" if near else None
    if upper in FOREIGN_NAMES or upper.startswith(FOREIGN_PREFIXES) or (name != upper and "_" not in name):
        return None
    likeness = TORCH_SIMILARITY if upper.startswith(TORCH) else SIMILARITY
    near = nearest(upper, sorted(one for one in known if len(one) >= SHORTEST_NAME), likeness)
    return f"did you mean {near}?" if near else None


def setting_names(environ: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A message for each unknown name that looks like a setting and may be another program's, with the driver's own name."""
    mode, messages = environ.get("MODE") or AB, []
    for name in sorted(name for name, value in environ.items() if value and name not in known):
        if meant := meant_by(name, known):
            messages.append(f"{name} is not a variable of this driver: {_how_to_set(meant, mode)}")
        elif name.upper().startswith(SETTING_PREFIX) and not _suggest(name, known):
            messages.append(f"{name} is not a variable of this driver: --help lists them all")
    return messages


def meant_by(name: str, known: Collection[str]) -> str:
    """The setting or the driver's variable that another program's name for it means, in any case: the setting itself, a key of train.py
    (its last part), a synonym, or one of these with a filler such as USE_; empty for any other name."""
    upper = name.upper()
    if upper in FOREIGN_NAMES or upper in known:
        return ""
    words = upper.split("_")
    while len(words) > 1 and words[0] in FILLERS:
        words = words[1:]
    plain = "_".join(words[:-1] if len(words) > 1 and words[-1] in VERSIONS else words)
    for text in (upper, plain):
        meant = SYNONYMS.get(text) or KEY_NAMES.get(text) or (text.lower() if text.lower() in SETTINGS else "")
        if meant:
            return meant
    return plain if plain != upper and plain in known and len(plain) >= SHORTEST_NAME else ""


def _how_to_set(meant: str, mode: str) -> str:
    """`use SWEEP_ZERO_STAGES`: what sets it in this mode; both groups of MODE=ab have a variable of their own."""
    if meant in BY_MODE:
        return f"use {BY_MODE[meant][AB if mode == AB else SWEEP]}"
    if meant == GLOBAL_BATCH:
        return f"use {BY_MODE['micro_batch'][AB if mode == AB else SWEEP]}, the batch of one rank"
    if meant == ACCUMULATION:
        return "the trainer does not accumulate gradients"
    if meant == CHECKPOINTING:
        return "the trainer does not recompute activations"
    return f"use {SETTING_VARIABLES.get(meant, meant)}"


def shortened_names(environ: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A message for each name that lacks one part of a driver's: PRECISION, TAIL_POINTS. Only a warning, since other programs may use
    such names."""
    messages = []
    others = (*FOREIGN_PREFIXES, TORCH)
    candidates = (name for name, value in environ.items() if value and name not in known and not meant_by(name, known))
    for name in sorted(name for name in candidates if not name.startswith(others)):
        parts = set(name.split("_"))
        meant = [one for one in known if parts < set(one.split("_")) and len(one.split("_")) == len(name.split("_")) + 1]
        if meant:
            messages.append(f"{name} is not a variable of this driver and has no effect; did you mean {' or '.join(meant)}?")
    return messages


AB, SWEEP, BOTH = "ab", "sweep", "both"
NO_CHECKPOINT = "none"
MAX_REPEATS = 10_000
# The trainer's own default for the manifest; read here so that the tables and the run's hash include it.
MANIFEST_VARIABLE = "LIBRISPEECH_MANIFEST_PATH"
ATTENTION = one_of("auto", "eager", "sdpa", "flash_attention_2")
COMPILE_MODE = one_of("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WHOLE_NUMBERS = list_of(NOT_NEGATIVE, "0,1")
COUNTS = list_of(POSITIVE, "128,160")
SECONDS = list_of(POSITIVE_DECIMAL, "1.0,1.5,2.0")


@dataclass(frozen=True)
class Variable:
    name: str
    default: str
    """The default as text; empty for none."""
    kind: Kind
    becomes: str
    """The plan's key, the trainer's setting, or another use."""
    text: str
    """Help line."""


def _group(prefix: str, values: str) -> tuple[Variable, ...]:
    """The nine variables of a group of MODE=ab; for the sweep the first six, which are not axes."""
    given = values.split()
    defaults = dict(zip(list(_GROUP_VARIABLES)[: len(given)], given, strict=True))
    return tuple(Variable(f"{prefix}{name}", defaults[name], *_GROUP_VARIABLES[name]) for name in defaults)


_GROUP_VARIABLES: dict[str, tuple[Kind, str, str]] = {
    "LOG_EVERY": (POSITIVE, "settings.log_every, timing.log_every", "Steps between two log lines."),
    "VALIDATION_EVERY": (POSITIVE, "settings.validation_every_steps", "Steps between two validations; beyond the last step for none."),
    "CHECKPOINT_EVERY": (POSITIVE, "settings.checkpoint_every_steps", "Steps between two checkpoints; beyond the last step for none."),
    "DETERMINISTIC": (FLAG, "settings.deterministic", "Only deterministic algorithms."),
    "CUDNN_BENCHMARK": (FLAG, "settings.cudnn_benchmark", "Let cuDNN time its algorithms and keep the fastest."),
    "WALL_CLOCK_BREAKDOWN": (FLAG, "settings.wall_clock_breakdown", "Let DeepSpeed time its own phases, which synchronises."),
    "ZERO_STAGE": (whole(0, 3), "settings.zero_stage", "DeepSpeed ZeRO stage."),
    "NUM_WORKERS": (NOT_NEGATIVE, "settings.num_workers", "Loader workers per rank."),
    "PREFETCH_FACTOR": (POSITIVE, "settings.prefetch_factor", "Batches each worker prefetches."),
}

SETTINGS = frozenset(field.name for field in fields(Settings))
# Settings that the original driver could not set. Passed on only where given; the experiment has their values otherwise.
PART_LIST = Kind(
    "true, false, all, none, equal, or a list of parts", _text_where(re.compile(r"(equal:)?[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*").fullmatch)
)
TRAINER_VARIABLES: dict[str, tuple[tuple[str, ...], Kind, str]] = {
    "TRAIN_SEED": (("seed",), NOT_NEGATIVE, "Seed of weights, order, slices and masks."),
    "TRAIN_ENGINE": (("engine",), one_of("deepspeed", "ddp"), "Training engine."),
    "TRAIN_RESUME_FROM": (("resume_from",), PATH, "A checkpoint or run folder to resume from."),
    "TRAIN_GATHER_NEGATIVES": (("gather_negatives",), FLAG, "Use the utterances of all ranks as negatives."),
    "TRAIN_MASK_TIME_PROB": (("mask_time_prob",), number(0), "Share of audio frames masked in training."),
    "SPEECH_MODEL_REVISION": (("speech_revision",), WORD, "Commit, tag or branch of a speech model from the hub."),
    "TEXT_MODEL_REVISION": (("text_revision",), WORD, "Commit, tag or branch of a text model from the hub."),
    "FAST_PATHS": (("fast_paths",), PART_LIST, "The trainer's own speed-ups: which parts are used; without it, equal."),
    "MIXED_PRECISION": (
        ("mixed_precision",),
        one_of(*MIXED_CHOICES),
        "How bf16 and fp16 are used; without it, in a way that ZeRO 0 and 1 both have.",
    ),
    "TRAIN_MIN_MAX_AUDIO_SECOND": (("min_slice_s", "max_slice_s"), pair("1.0,3.0"), "Shortest and longest random slice."),
    "TRAIN_LR": (("lr",), number(0), "Learning rate of Adam at the end of the warm-up."),
    "TRAIN_BETAS": (("beta1", "beta2"), pair("0.8,0.999"), "The two betas of Adam."),
    "TRAIN_EPS": (("eps",), number(0), "The epsilon of Adam."),
    "TRAIN_WEIGHT_DECAY": (("weight_decay",), number(0), "The weight decay of Adam."),
    "TRAIN_WARMUP_STEPS": (("warmup_steps",), NOT_NEGATIVE, "Warm-up steps of the learning rate."),
    "TRAIN_SCHEDULE_STEPS": (("schedule_steps",), POSITIVE, "Steps until the learning rate reaches its minimum."),
    "TRAIN_MIN_LR_RATIO": (("min_lr_ratio",), number(0), "Minimum learning rate as a share of the highest."),
    "TRAIN_GRADIENT_CLIPPING": (("gradient_clipping",), number(0), "Maximum gradient norm."),
    "TRAIN_TORCH_ADAM": (("torch_adam",), FLAG, "true for torch's Adam, false for DeepSpeed's FusedAdam."),
    "TRAIN_OVERLAP_COMM": (("overlap_comm",), FLAG, "Overlap ZeRO communication with the backward pass."),
    "TRAIN_BUCKET_SIZE": (("bucket_size",), POSITIVE, "Elements per ZeRO collective."),
    "TRAIN_EVAL_BATCH_SIZE": (("eval_batch_size",), POSITIVE, "Utterances per validation batch."),
    "TRAIN_EVAL_BATCHES": (("eval_batches",), POSITIVE, "Most batches per validation."),
    "TRAIN_EVAL_SEQUENTIAL": (("eval_sequential",), FLAG, "Validate in file order."),
    "TRAIN_CHECKPOINT_KEEP": (("checkpoint_keep",), POSITIVE, "Checkpoints kept."),
    "TRAIN_CHECKPOINT_EXCLUDE_FROZEN": (("checkpoint_exclude_frozen",), FLAG, "Leave the frozen encoders out of checkpoints."),
    "TRAIN_CHECKPOINT_TAG_STYLE": (("checkpoint_tag_style",), one_of("iter", "global_step"), "Name of a checkpoint folder."),
}
# A setting that this version of the trainer lacks is not a variable either.
TRAINER_VARIABLES = {name: entry for name, entry in TRAINER_VARIABLES.items() if set(entry[0]) <= SETTINGS}

SECTIONS: dict[str, tuple[Variable, ...]] = {
    "Runs": (
        Variable(
            "MODE", AB, one_of(AB, SWEEP, BOTH), "mode", "ab compares old_like with tuned, sweep runs a matrix, both is ab, then sweep."
        ),
        Variable("OUTPUT_ROOT", "", PATH, "output", "Output folder; outputs/bench_stage1_ab_<time> if omitted."),
        Variable("EXPERIMENT", "limit_longest_1-3_stage1_bf16", WORD, "+experiment=", "Base configuration of train.py."),
        Variable(
            "INCLUDE",
            "localhost:0,1,2,3",
            TEXT,
            "place.include",
            "GPUs of this machine, or of HOSTFILE's hosts (node1:0,1@node2:0,1); hosts alone, with WORLD_SIZE, for CPU ranks.",
        ),
        Variable(
            "HOSTFILE", "", PATH, "place.hostfile", "Run on the hosts of this file (`host slots=n` lines); on all of them without INCLUDE."
        ),
        Variable("WORLD_SIZE", "0", NOT_NEGATIVE, "place.ranks", "Ranks; 0 counts the GPUs of INCLUDE, or the slots of HOSTFILE."),
        Variable("REPEATS", "3", whole(1, MAX_REPEATS), "repeats", "Runs of each group."),
        Variable("MAX_STEPS", "5000", POSITIVE, "steps", "Number of the last step: steps 0 to MAX_STEPS run, one more than this."),
        Variable("ORDER", "nested", one_of("nested", "interleaved"), "order", "nested (ab in rounds) or interleaved in shuffled rounds."),
        Variable(
            "RESUME_RUNS",
            "true",
            FLAG,
            "--again and --from-start when false",
            "Skip runs already finished in OUTPUT_ROOT; a single run that was stopped goes on from its last checkpoint.",
        ),
        Variable("STOP_ON_ERROR", "0", SWITCH, "stop_on_error", "1 stops at the first failed run."),
        Variable("BASELINE_GROUP", "old_like", WORD, "baseline", "Baseline of speedup_vs_baseline."),
        Variable("NEEDS", "", PATH, "needs", "Folder of a phase B that must have passed here before anything starts; none if omitted."),
        Variable("IGNORE_NEEDS", "0", SWITCH, "--ignore-needs", "1 starts although NEEDS has not passed; recorded as a warning."),
        Variable(
            "IGNORE_UNKNOWN",
            "0",
            SWITCH,
            "the driver's checks",
            "1 warns of names that look like settings and may be another program's; else refused. Misspelled names of its own always are.",
        ),
        Variable("DRY_RUN", "0", SWITCH, "--dry-run", "1 prints plans and commands and starts nothing; data and weights may be missing."),
        Variable("CONDA_ENV", "", TEXT, "the interpreter", "Conda environment, by name or folder, whose Python runs everything."),
    ),
    "Limits and output": (
        Variable("RUN_TIMEOUT_SEC", "0", NOT_NEGATIVE, "limits.run_s", "Timeout of a run; 0 for none."),
        Variable("MAX_WAIT_TRAIN_LOG_SEC", "900", NOT_NEGATIVE, "limits.start_s", "Timeout for the first step; 0 for none."),
        Variable("STALL_ALERT_RATIO", "2.0", decimal(1), "limits.spike_ratio", "Warn when steps become this many times slower."),
        Variable("HEARTBEAT_EVERY_SEC", "30", NOT_NEGATIVE, "--heartbeat", "Seconds between two heartbeat lines; 0 for none."),
        Variable("FAILURE_DUMP_TAIL", "true", FLAG, "the driver's output", "Print the last log lines of a failed run."),
        Variable("FAIL_TAIL_LINES", "80", POSITIVE, "the driver's output", "Number of those lines per log."),
        Variable("DRIVER_LOG_PATH", "", PATH, "the driver's log", "Append the output to this file; its folder is created."),
        Variable("MASTER_PORT_BASE", "29650", PORT, "place.port_base", "First of 200 ports tried in order."),
        Variable("MASTER_PORT", "", PORT, "place.port", "Use this port; if taken, the run fails as port_in_use."),
        Variable(
            "MANIFEST_WRITE_RETRIES",
            "3",
            POSITIVE,
            "nothing",
            "No effect: failed writes are always retried, then written to the fallback folder.",
        ),
        Variable("MANIFEST_WRITE_RETRY_SLEEP_SEC", "2", NOT_NEGATIVE, "nothing", "No effect."),
        Variable("MANIFEST_FALLBACK_PATH", "", PATH, "SEATRIAL_FALLBACK_DIR", "Its folder takes writes that fail elsewhere."),
    ),
    "Data and models": (
        Variable("DATASET_ROOT", "data/LibriSpeech/LibriSpeech", PATH, "settings.dataset_root", "A LibriSpeech tree."),
        Variable(
            "DATASET_MANIFEST_PATH",
            "",
            PATH,
            "settings.dataset_manifest_path",
            "Its manifest; default $LIBRISPEECH_MANIFEST_PATH, else the tree is scanned.",
        ),
        Variable("DATASET_USE_TRIM", "false", FLAG, "settings.dataset_use_trim", "Trim silence while loading."),
        Variable("DATASET_OFFLINE_TRIMMED", "true", FLAG, "settings.dataset_offline_trimmed", "The tree was trimmed offline."),
        Variable(
            "PRETRAINED_CKPT",
            "data/weights/csa/ckpt_epoch_8.pth",
            PATH,
            "settings.pretrained_checkpoint",
            f"Pretrained weights of the full model; {NO_CHECKPOINT} for none.",
        ),
        Variable(
            "SPEECH_MODEL_PATH", "data/weights/wav2vec2-base", PATH, "settings.speech_model", "wav2vec2: a folder, a hub id, base or tiny."
        ),
        Variable(
            "TEXT_MODEL_PATH", "data/weights/bert-base-uncased", PATH, "settings.text_model", "BERT: a folder, a hub id, base or tiny."
        ),
    ),
    "Timing": (
        Variable("ENABLE_CUDA_SYNC_TIMING", "false", FLAG, "timing.sync", "Synchronise with the GPU after every phase: exact but slower."),
        Variable("TIMING_RANK_SCOPE", "rank0", one_of("rank0", "all"), "rank_scope", "Ranks that write steps and TimingRank lines."),
        Variable("TAIL_TIMING_POINTS", "20", POSITIVE, "timing.tail_points", "Timing points in the tail columns."),
        Variable("ENABLE_ETA_LOGGING", "true", FLAG, "timing.eta_mode", "Print TimingETA lines."),
        Variable("ETA_DISTRIBUTED_MODE", "rank0", one_of("rank0", "global_max"), "timing.eta_mode", "Rank whose speed the ETA uses."),
        Variable("ETA_MIN_SAMPLES", "10", POSITIVE, "timing.eta_min_samples", "Timed steps before the first ETA; at least 2."),
    ),
    "Precision and kernels": (
        Variable("PRECISION_MODE", "auto", one_of("auto", "bf16", "fp16"), "settings.precision", "Number format; auto decides by the GPU."),
        Variable(
            "MODEL_LOAD_DTYPE",
            "auto",
            one_of("auto", "bf16", "fp16", "fp32"),
            "settings.model_load_dtype",
            "Number format of frozen weights.",
        ),
        Variable("ATTN_IMPL", "auto", ATTENTION, "both below", "Attention of both encoders."),
        Variable("SPEECH_ATTN_IMPL", "", ATTENTION, "settings.speech_attn_impl", "Attention of the speech encoder; default ATTN_IMPL."),
        Variable("TEXT_ATTN_IMPL", "", ATTENTION, "settings.text_attn_impl", "Attention of the text encoder; default ATTN_IMPL."),
        Variable("ENABLE_TF32", "true", FLAG, "settings.tf32", "Allow TF32 for fp32 matmuls on CUDA."),
        Variable(
            "MATMUL_PRECISION",
            "high",
            one_of("high", "medium", "highest"),
            "settings.matmul_precision",
            "torch's float32 matmul precision.",
        ),
        Variable("ENABLE_TORCH_COMPILE", "false", FLAG, "settings.torch_compile", "Use torch.compile."),
        Variable("TORCH_COMPILE_MODE", "max-autotune", COMPILE_MODE, "settings.torch_compile_mode", "Mode of torch.compile."),
        Variable("TORCH_COMPILE_DYNAMIC", "true", FLAG, "settings.torch_compile_dynamic", "Compile for dynamic shapes."),
    ),
    "Slice length": (
        Variable("ENABLE_LENGTH_FIXED_SLICE", "false", FLAG, "settings.fixed_slice_s", "Fixed slice length; needs FIXED_SLICE_SECONDS."),
        Variable("FIXED_SLICE_SECONDS", "", POSITIVE_DECIMAL, "settings.fixed_slice_s", "The fixed length."),
        Variable("ENABLE_LENGTH_BUCKET", "false", FLAG, "settings.length_buckets", "Batch slices of similar length."),
        Variable(
            "LENGTH_BUCKET_BOUNDARIES_SEC", "1.0,1.5,2.0,2.5,3.0", SECONDS, "settings.bucket_boundaries_s", "Upper bounds of the buckets."
        ),
    ),
    "Telemetry": (
        Variable("ENABLE_GPU_TELEMETRY", "true", FLAG, "telemetry.gpu_s", "Write gpu_telemetry.csv."),
        Variable("GPU_TELEMETRY_INTERVAL_SEC", "2", POSITIVE, "telemetry.gpu_s", "Seconds between two samples."),
        Variable("ENABLE_HOST_TELEMETRY", "false", FLAG, "telemetry.host_s", "Write host_telemetry.csv."),
        Variable("HOST_TELEMETRY_INTERVAL_SEC", "2", POSITIVE, "telemetry.host_s", "Seconds between two samples."),
    ),
    "MODE=ab": (
        Variable("AB_MICRO_BATCH", "128", POSITIVE, "settings.micro_batch", "Utterances per rank and step."),
        *_group("AB_OLD_", "1 500 500 true false true 1 2 2"),
        *_group("AB_TUNED_", "20 5000 5000 false false false 1 2 2"),
    ),
    "MODE=sweep": (
        Variable("SWEEP_ZERO_STAGES", "0,1", list_of(whole(0, 3), "0,1"), "axes.zero_stage", "DeepSpeed ZeRO stages."),
        Variable("SWEEP_MICRO_BATCHES", "128,160,192", COUNTS, "axes.micro_batch", "Utterances per rank and step."),
        Variable("SWEEP_NUM_WORKERS", "2", NOT_NEGATIVE, "axes.num_workers", "Loader workers per rank, one value."),
        Variable("SWEEP_NUM_WORKERS_LIST", "", WHOLE_NUMBERS, "axes.num_workers", "The same, several values; overrides the single one."),
        Variable("SWEEP_PREFETCH_FACTOR", "2", POSITIVE, "axes.prefetch_factor", "Batches each worker prefetches, one value."),
        Variable(
            "SWEEP_PREFETCH_LIST",
            "",
            list_of(POSITIVE, "2,4"),
            "axes.prefetch_factor",
            "The same, several values; overrides the single one.",
        ),
        *_group("SWEEP_", "100 1000000 1000000 false false false"),
    ),
}
SECTIONS["Other settings of the trainer, by the experiment where not given"] = tuple(
    Variable(name, "", kind, ", ".join(f"settings.{setting}" for setting in settings), text)
    for name, (settings, kind, text) in TRAINER_VARIABLES.items()
)
VARIABLES: dict[str, Variable] = {variable.name: variable for section in SECTIONS.values() for variable in section}


# Setting → its variable, for those that one variable sets in both modes.
SETTING_VARIABLES = {
    **{setting: name for name, (settings, _, _) in TRAINER_VARIABLES.items() for setting in settings},
    **{
        variable.becomes.removeprefix("settings."): variable.name
        for variable in VARIABLES.values()
        if variable.becomes.startswith("settings.")
        and not variable.name.startswith(("AB_", "SWEEP_", "ENABLE_LENGTH_FIXED"))
        and "," not in variable.becomes
    },
    "steps": "MAX_STEPS",
    "device": "INCLUDE (localhost for the CPU)",
    "attn_impl": "ATTN_IMPL",
    "fixed_slice_s": "ENABLE_LENGTH_FIXED_SLICE=true and FIXED_SLICE_SECONDS",
}
# Setting → its variable in each mode.
BY_MODE = {
    **{
        setting: {AB: f"AB_OLD_{ending} and AB_TUNED_{ending}", SWEEP: f"SWEEP_{ending}"}
        for ending, (_, becomes, _) in _GROUP_VARIABLES.items()
        for setting in [becomes.partition(",")[0].removeprefix("settings.")]
    },
    "micro_batch": {AB: "AB_MICRO_BATCH", SWEEP: "SWEEP_MICRO_BATCHES"},
    "zero_stage": {AB: "AB_OLD_ZERO_STAGE and AB_TUNED_ZERO_STAGE", SWEEP: "SWEEP_ZERO_STAGES"},
    "num_workers": {AB: "AB_OLD_NUM_WORKERS and AB_TUNED_NUM_WORKERS", SWEEP: "SWEEP_NUM_WORKERS_LIST"},
    "prefetch_factor": {AB: "AB_OLD_PREFETCH_FACTOR and AB_TUNED_PREFETCH_FACTOR", SWEEP: "SWEEP_PREFETCH_LIST"},
}
GLOBAL_BATCH, ACCUMULATION, CHECKPOINTING = "global batch", "gradient accumulation", "gradient checkpointing"
"""Settings without a variable of the driver."""
# Words around a setting's name that do not change its meaning.
FILLERS, VERSIONS = ("ENABLE", "USE", "WITH", "TRAIN", "NUM"), ("2", "V2")
# The last parts of train.py's keys; a single word, such as stage, is too common.
KEY_NAMES = {
    key.rpartition(".")[2].upper(): entry.fields[0] for key, entry in KEYS.items() if entry.fields and "_" in key.rpartition(".")[2]
}
# What other programs call a setting, or a variable.
SYNONYMS = {
    **dict.fromkeys(("BATCH_SIZE", "BATCH_SIZES", "MICRO_BATCHES", "MICRO_BATCH_SIZE", "TRAIN_BATCH_SIZE", "MBS"), "micro_batch"),
    **dict.fromkeys(("PER_DEVICE_BATCH_SIZE", "PER_DEVICE_TRAIN_BATCH_SIZE", "BATCH_SIZE_PER_GPU"), "micro_batch"),
    **dict.fromkeys(("ZERO", "ZEROSTAGE", "ZERO_STAGES", "DEEPSPEED_STAGE", "DS_STAGE", "DS_ZERO_STAGE"), "zero_stage"),
    **dict.fromkeys(("WORKERS", "NUM_WORKERS_LIST", "DATALOADER_WORKERS", "DATALOADER_NUM_WORKERS"), "num_workers"),
    **dict.fromkeys(("PREFETCH", "PREFETCH_LIST"), "prefetch_factor"),
    **dict.fromkeys(("MAX_ITERS", "MAX_ITERATIONS", "TOTAL_STEPS"), "steps"),
    **dict.fromkeys(("DTYPE", "BF16", "FP16", "AMP"), "precision"),
    **dict.fromkeys(
        ("FLASH_ATTN", "FLASH_ATTENTION", "ATTN", "ATTENTION", "ATTENTION_IMPL", "ATTENTION_IMPLEMENTATION", "ATTN_IMPLEMENTATION"),
        "attn_impl",
    ),
    **dict.fromkeys(("ATTENTION_BACKEND", "ATTN_BACKEND", "FLASH", "SDPA"), "attn_impl"),
    **dict.fromkeys(("SPEECH_ATTN", "SPEECH_ATTENTION"), "speech_attn_impl"),
    **dict.fromkeys(("TEXT_ATTN", "TEXT_ATTENTION"), "text_attn_impl"),
    **dict.fromkeys(("COMPILE",), "torch_compile"),
    **dict.fromkeys(("ALLOW_TF32",), "tf32"),
    **dict.fromkeys(("LEARNING_RATE",), "lr"),
    **dict.fromkeys(("FIXED_SLICE", "FIXED_SLICE_S", "FIXED_SLICE_SEC", "SLICE_SECONDS"), "fixed_slice_s"),
    **dict.fromkeys(("LENGTH_BUCKET",), "length_buckets"),
    **dict.fromkeys(("MIXED",), "mixed_precision"),
    **dict.fromkeys(("GPUS", "NGPUS", "N_GPUS", "GPU_IDS", "NPROC_PER_NODE"), "INCLUDE, such as localhost:0,1"),
    **dict.fromkeys(("TAIL_POINTS",), "TAIL_TIMING_POINTS"),
    **dict.fromkeys(("OUTPUT",), "OUTPUT_ROOT"),
    **dict.fromkeys(("PRETRAINED_PATH",), "SPEECH_MODEL_PATH or TEXT_MODEL_PATH"),
    **dict.fromkeys(("GLOBAL_BATCH", "GLOBAL_BATCH_SIZE"), GLOBAL_BATCH),
    **dict.fromkeys(("GRADIENT_ACCUMULATION", "GRADIENT_ACCUMULATION_STEPS", "GRAD_ACCUM_STEPS"), ACCUMULATION),
    **dict.fromkeys(("GRAD_ACCUM", "ACCUM_STEPS", "GAS"), ACCUMULATION),
    **dict.fromkeys(("GRADIENT_CHECKPOINTING", "ACTIVATION_CHECKPOINTING"), CHECKPOINTING),
    **dict.fromkeys(("CUDA_GRAPH", "CUDA_GRAPHS"), "FAST_PATHS, of whose parts text_graph and tower_graph are CUDA graphs"),
}


@dataclass(frozen=True, kw_only=True)
class Variables:
    """The value of every variable, and which of them were set."""

    values: Mapping[str, Any]
    """Values by name; None where there is neither a value nor a default."""
    given: frozenset[str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read(environ: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> Variables:
    """Every variable's value; `defaults` override the table's."""
    problems = misspelled_names(environ, VARIABLES)
    problems += [] if environ.get("IGNORE_UNKNOWN") == "1" else [f"{text}; {IGNORE}" for text in setting_names(environ, VARIABLES)]
    others = {"DATASET_MANIFEST_PATH": environ.get(MANIFEST_VARIABLE, ""), **(defaults or {})}
    texts = {name: environ.get(name) or others.get(name) or variable.default for name, variable in VARIABLES.items()}
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = VARIABLES[name].kind.parse(text) if text else None
        except ValueError as error:
            problems.append(_describe_error(VARIABLES[name], text, error))
    problems += _contradictions(values)
    if problems:
        raise UsageError(problems[0] if len(problems) == 1 else "\n  ".join([f"{len(problems)} variables are invalid:", *problems]))
    return Variables(values=values, given=frozenset(name for name in VARIABLES if environ.get(name)))


def _describe_error(variable: Variable, text: str, error: ValueError) -> str:
    """`MODE is 'swep'; expected one of ab, sweep, both: did you mean 'sweep'?`"""
    if isinstance(error, InvalidValue):
        return f"{variable.name} is {text!r}, which {error}"
    choices = variable.kind.expected.removeprefix("one of ")
    near = nearest(text.lower(), choices.split(", ")) if choices != variable.kind.expected else _nearest_flag(variable.kind, text)
    return f"{variable.name} is {text!r}; expected {variable.kind.expected}" + (f": did you mean '{near}'?" if near else "")


def _nearest_flag(kind: Kind, text: str) -> str | None:
    """The right spelling of a flag written as in other programs."""
    spellings = {FLAG: ("true", "false"), SWITCH: ("1", "0")}.get(kind)
    on, off = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
    return None if spellings is None else spellings[0] if text.lower() in on else spellings[1] if text.lower() in off else None


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    if values.get("ENABLE_LENGTH_FIXED_SLICE") and "FIXED_SLICE_SECONDS" in values and values["FIXED_SLICE_SECONDS"] is None:
        return ["FIXED_SLICE_SECONDS is missing, but ENABLE_LENGTH_FIXED_SLICE=true needs it: a number above 0, such as 2.0"]
    return []


WIDTH = 120
WHAT = """\
Stage 1 benchmark: runs train.py over a matrix of settings, watches every run, ranks the groups.
Exit codes: 0 every run succeeded, 1 wrong use or an error, 2 a run failed or a check refused to start, 3 runs are missing,
130 interrupted.
"""
USAGE = """\
NAME=VALUE … ./scripts/{name} [--dry-run] [--yes] [--help]

{what}
Configured by variables; unset or empty ones have their defaults. Run the same command again to resume.

  --dry-run  Print plans and commands and start nothing.
  --yes      Confirm more than 1,000 runs.
"""
EXAMPLES = """\
Examples:
  MODE=sweep INCLUDE=localhost:0,1 SWEEP_ZERO_STAGES=0 SWEEP_MICRO_BATCHES=160,192 OUTPUT_ROOT=outputs/x ./scripts/{name}
  INCLUDE=localhost WORLD_SIZE=2 SPEECH_MODEL_PATH=tiny TEXT_MODEL_PATH=tiny PRETRAINED_CKPT=none MAX_STEPS=20 ./scripts/{name} --dry-run"""


def help_text(name: str, what: str = WHAT, defaults: Mapping[str, str] | None = None) -> str:
    """The help text; `defaults` override the table's."""
    own = defaults or {}
    parts = [f"{title}\n{''.join(_entry(variable, own) for variable in variables)}" for title, variables in SECTIONS.items()]
    return "\n".join([USAGE.format(name=name, what=what), *parts, EXAMPLES.format(name=name)])


def _entry(variable: Variable, own: Mapping[str, str]) -> str:
    value = own.get(variable.name, variable.default)
    default = f"default {value}" if value else "no default"
    text = f"{variable.text} Takes {variable.kind.expected}; {default}. Becomes: {variable.becomes}."
    indent = " " * 6
    body = textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return f"  {variable.name}\n{body}\n"
