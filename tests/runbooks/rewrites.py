"""What is changed in a block before the lane runs it on two CPU cores, and why. Everything else runs as written: commands, pipes, traps,
the sampler in the background.

In: a block's text, the key of its section. Out: the text to run. A path outside the working folder that the table does not map is an
error, so that no block writes where it should not.

| what | becomes | why |
|---|---|---|
| `/code` | the working folder | the seeds' machine has the repository there |
| `/etc/deepspeed/hostfile` | `hostfile` in the working folder | on the test cluster two hosts, one slot each |
| `INCLUDE=localhost:0,1` | `INCLUDE=localhost WORLD_SIZE=2` | no GPUs here: two ranks on the CPU |
| `--include localhost:0,1` | `--num_gpus 2` | DeepSpeed counts a CPU machine as one device and would refuse the second |
| `MAX_STEPS`, `train.max_step_iterations` | 12 | enough for timing points and an ETA (sentinels: 4); added where it is missing |
| `SWEEP_LOG_EVERY`, `AB_…_LOG_EVERY`, `train.log_every_steps` | 2 | points within so few steps |
| `train.validation_every_steps`, `train.checkpoint_every_steps` and the like of 500 to 5000 | 6 | each happens once |
| `REPEATS` | 1; kept in the section of the sentinels, where the acceptance needs three; 1 for the wrapper elsewhere | time |
| micro batches | a 32nd: 128 is 4, also in names of groups; kept in the section of the sentinels | time; names still differ as they did |
| loader workers | 1; kept in the section of the sentinels | twelve of them would share two cores |
| `SWEEP_…` lists of batches, workers, prefetch, ZeRO stages | the first value; two or all in named sections | time |
| `ENABLE_TORCH_COMPILE=true`, `for compile in false true` | false | compiling for a CPU takes minutes for each slice length |
| `HEARTBEAT_EVERY_SEC` | 5 | a run is over before the thirtieth second |
| `--workers N` of the preparation | 2 | two cores |
| `NEEDS=…` | the same, and `IGNORE_NEEDS=1` | a phase B of four steps on a shared CPU does not pass |
| `seatrial run …/multinode-smoke.yaml` | without its baseline | the record's is of GPUs |
| `for attention in sdpa flash_attention_2` | the second alone | time |
| `seatrial run …/min-matrix.yaml` | the same with `--set` for the sizes above, one of its groups | time |
| `seatrial run …/multinode-….yaml` | the same with `--set` for the sizes above, one CPU rank a host | time; a CPU has no fp16 |
| `…_mainline_xxx` | the folder of section 3.1 | the seed's placeholder for a timestamp |

Data paths, weights, `CONDA_ENV`, precision, attention, telemetry, limits stay: the working folder has them under these names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

STEPS = 12
FEW_STEPS = 4
LOG_EVERY = 2
OFTEN = 6
BATCH_DIVISOR = 32
WORKERS = 1
RANKS = 2

Replacement = str | Callable[[re.Match[str]], str]


class UnknownPath(Exception):
    """A block has a path outside the working folder that the table does not map."""


@dataclass(frozen=True)
class Rewrite:
    """One row of the table."""

    pattern: str
    to: Replacement
    only: frozenset[str] = frozenset()
    """Keys of sections it is for; empty means all."""
    but: frozenset[str] = frozenset()
    """Keys of sections it is not for."""

    def applies_to(self, key: str) -> bool:
        return key not in self.but and (not self.only or key in self.only)


# First: everything after it sees paths of the working folder.
PREFIXES = (Rewrite(r"/code(?=/|\s|$)", "."),)

TWO_BATCHES = frozenset({"000 3.1"})
BOTH_ZERO_STAGES = frozenset({"001 4"})
# Unchanged, three repeats: the wrapper then finds them finished, and the acceptance has enough repeats.
SENTINELS = frozenset({"001 3.4.1"})
# Here the wrapper runs them itself, once each: too few for the acceptance.
WRAPPER = frozenset({"README Phase B: stability"})


def _assigned(names: str) -> str:
    """`NAME=VALUE` as a shell or `export` has it; the value is the group `value`."""
    return rf"(?<![\w.])(?P<name>{names})=(?P<value>[^\s\\\"']+)"


def _to(value: object) -> Callable[[re.Match[str]], str]:
    return lambda found: f"{found['name']}={value}"


def _first_values(count: int, convert: Callable[[str], object]) -> Callable[[re.Match[str]], str]:
    return lambda found: f"{found['name']}={','.join(str(convert(value)) for value in found['value'].split(',')[:count])}"


def _small_batch(value: str) -> int:
    return max(2, int(value) // BATCH_DIVISOR)


def _small_group(found: re.Match[str]) -> str:
    return f"z{found['zero']}_mb{_small_batch(found['batch'])}_nw{WORKERS}_pf"


_SMALL_PLAN = (
    f"--set place.include=null --set place.ranks={RANKS} "
    f"--set repeats=1 --set steps={STEPS + 1} --set settings.micro_batch=4 --set settings.num_workers={WORKERS} "
    f"--set settings.log_every={LOG_EVERY} --set timing.log_every={LOG_EVERY}"
)


def _small_plan(found: re.Match[str]) -> str:
    return f"{found[0]} --only z0_flash_attention_2 {_SMALL_PLAN}"


def _small_plan_of_hosts(found: re.Match[str]) -> str:
    return f"{found[0]} {_SMALL_PLAN} {_OF_HOSTS[found['plan']]}"


# What a CPU cannot do, and what a hundred thousand steps would only do after 500.
_OF_HOSTS = {
    "smoke": "--set place.hostfile=hostfile --set settings.precision=bf16 --set settings.model_load_dtype=auto "
    "--set 'criteria=[{metric: failed_runs, at_most: 0}, {metric: loss_falls, scope: every_run}]'",
    "pernode": f"--set settings.validation_every_steps={OFTEN} --set settings.checkpoint_every_steps={OFTEN}",
}


SIZES = (
    Rewrite(r"/etc/deepspeed/hostfile", "hostfile"),
    Rewrite(_assigned("INCLUDE"), f"INCLUDE=localhost WORLD_SIZE={RANKS}"),
    Rewrite(r"--include localhost:[\d,]+", f"--num_gpus {RANKS}"),
    Rewrite(_assigned("MAX_STEPS|train.max_step_iterations"), _to(STEPS), but=SENTINELS),
    Rewrite(_assigned("MAX_STEPS"), _to(FEW_STEPS), only=SENTINELS),
    Rewrite(r"(?=\./scripts/run_phaseb_4090_stability\.sh)", f"MAX_STEPS={FEW_STEPS} ", but=WRAPPER),
    Rewrite(r"(?=\./scripts/run_phaseb_4090_stability\.sh)", f"REPEATS=1 MAX_STEPS={FEW_STEPS} ", only=WRAPPER),
    Rewrite(r"(?<!\w)train\.py(?= \\\n)(?![\s\S]*max_step_iterations)", f"train.py ++train.max_step_iterations={STEPS}"),
    Rewrite(_assigned(r"(?:SWEEP|AB_OLD|AB_TUNED)_LOG_EVERY|train\.log_every_steps"), _to(LOG_EVERY)),
    Rewrite(_assigned(r"AB_\w+_(?:VALIDATION|CHECKPOINT)_EVERY|train\.(?:validation|checkpoint)_every_steps"), _to(OFTEN)),
    Rewrite(_assigned("REPEATS"), _to(1), but=SENTINELS),
    Rewrite(_assigned("SWEEP_MICRO_BATCHES"), _first_values(2, _small_batch), only=TWO_BATCHES),
    Rewrite(_assigned("SWEEP_MICRO_BATCHES"), _first_values(1, _small_batch), but=TWO_BATCHES | SENTINELS),
    Rewrite(_assigned(r"AB_MICRO_BATCH|deepspeed_config_yaml\.train_micro_batch_size_per_gpu"), _first_values(1, _small_batch)),
    Rewrite(_assigned(r"SWEEP_NUM_WORKERS(?:_LIST)?|AB_\w+_NUM_WORKERS|train\.data\.num_workers"), _to(WORKERS), but=SENTINELS),
    Rewrite(_assigned("SWEEP_PREFETCH_LIST"), _first_values(1, int)),
    Rewrite(_assigned("SWEEP_ZERO_STAGES"), _first_values(1, int), but=BOTH_ZERO_STAGES),
    Rewrite(r"z(?P<zero>\d)_mb(?P<batch>\d+)_nw\d+_pf", _small_group, but=SENTINELS | WRAPPER),
    Rewrite("ENABLE_TORCH_COMPILE=true", "ENABLE_TORCH_COMPILE=false"),
    Rewrite(r"(?<=for compile in )false true", "false"),
    Rewrite(_assigned("HEARTBEAT_EVERY_SEC"), _to(5)),
    Rewrite(r"--workers \d+", "--workers 2"),
    Rewrite(r"(?<!unset )\bNEEDS=\S+", lambda found: f"{found[0]} IGNORE_NEEDS=1"),
    Rewrite(r"_mainline_xxx/", "_mainline_2*/"),
    Rewrite(r"(?<=for attention in )sdpa flash_attention_2", "flash_attention_2"),
    Rewrite(r"seatrial run \S+/min-matrix\.yaml", _small_plan),
    Rewrite(r"seatrial run \S+/multinode-(?P<plan>smoke|pernode)\.yaml", _small_plan_of_hosts),
)

# Section 5 of seed 001 names a manifest that does not exist; the lane runs the block as written and with this correction.
CORRECTED_MANIFEST = ("LibriSpeech_16k_trim/LibriSpeech/manifest", "LibriSpeech/LibriSpeech_16k_trim/manifest")

HARMLESS = ("/dev/null", "/proc/meminfo", "/proc/loadavg")
_ABSOLUTE = re.compile(r"(?:(?P<name>[\w.+]+)=)?(?<![\w.})*])[\"']?(?P<path>/[A-Za-z][\w.-]*(?:/[\w.*-]+)*)")


def with_prefixes(text: str, key: str) -> str:
    """Paths of the seeds' machine as paths of the working folder; nothing else is changed."""
    return _applied(PREFIXES, text, key)


def rewritten(text: str, key: str) -> str:
    """The block as the lane runs it."""
    small = _applied(SIZES, with_prefixes(text, key), key)
    refuse_unknown_paths(small, key)
    return small


def refuse_unknown_paths(text: str, key: str) -> None:
    """Raise for the first absolute path that is left."""
    for found in _ABSOLUTE.finditer(text):
        if found["path"] not in HARMLESS:
            named = f"{found['name']}=" if found["name"] else ""
            raise UnknownPath(
                f"section {key}: {named}{found['path']} is outside the working folder; map it in the table of tests/runbooks/rewrites.py"
            )


def _applied(rows: tuple[Rewrite, ...], text: str, key: str) -> str:
    for row in rows:
        if row.applies_to(key):
            text = re.sub(row.pattern, row.to, text)
    return text
