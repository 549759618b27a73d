"""Checks before anything is started, with messages that name the driver's variables.

In: resolved plans and their variables. Out: nothing, or a UsageError with a line per problem. The configuration of every group is composed
as in train.py, without torch; files and folders must exist.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.cli.run import MAX_RUNS_WITHOUT_YES
from seatrial.core.errors import RefusedError, UsageError, did_you_mean, nearest
from seatrial.core.paths import CampaignPaths
from seatrial.machine.gpus import read_driver
from seatrial.records.columns import TRAINER_KEYS
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial_runbooks.stage1.to_plan import AB_GROUPS, is_on_cpu, variable_names
from seatrial_runbooks.stage1.variables import MANIFEST_VARIABLE, NO_CHECKPOINT, Variables

NEEDS_HYDRA = "train.py needs hydra-core, which this Python does not have: pip install 'seatrial[stage1]', in a checkout -e '.[stage1]'"
# Settings checked here, and therefore skipped in the trainer's own host checks.
CHECKED_HERE = ("pretrained_checkpoint", "precision", "device")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def check_runnable(plans: Sequence[CampaignPlan], variables: Variables, cwd: Path, *, dry_run: bool = False) -> list[str]:
    """Raise for everything that would fail every run of a group. In a `dry_run` missing data and weights are returned instead."""
    formats = [*_formats_without_gpu(variables)]
    # The trainer's own check would report the same format again.
    found = [] if formats else [problem for plan in plans for problem in _plan_problems(plan, variables, cwd)]
    configuration = [*formats, *(problem.text for problem in found if not problem.of_host)]
    missing = list(dict.fromkeys([*(problem.text for problem in found if problem.of_host), *_missing_weights(variables, cwd)]))
    problems = list(dict.fromkeys([*configuration, *([] if dry_run else missing)]))
    if problems:
        raise UsageError("\n  ".join(["the runs would fail:", *problems]) if len(problems) > 1 else problems[0])
    return missing


def check_gpus(plans: Sequence[CampaignPlan], variables: Variables) -> None:
    """Raise where INCLUDE names GPUs of this machine and it has none."""
    places = [run.place for plan in plans for run in plan.runs if not run.place.traits.lists_hosts and run.place.devices]
    driver = read_driver() if places else None
    if driver is not None and not driver.gpus:
        why = f" ({driver.problem})" if driver.problem else ""
        raise RefusedError(
            f"INCLUDE is {variables['INCLUDE']}, and no GPU was found on this machine{why}: use INCLUDE=localhost WORLD_SIZE="
            f"{places[0].ranks} for ranks on the CPU"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunProblem:
    text: str
    of_host: bool = False
    """Something is missing on this host; the configuration is valid."""


def check_baseline(plans: Sequence[CampaignPlan], variables: Variables) -> None:
    """Raise where BASELINE_GROUP is neither a group of these plans nor one already in the folder."""
    baseline = variables["BASELINE_GROUP"]
    groups = sorted({run.group for plan in plans for run in plan.runs})
    exists = any(CampaignPaths(Path(plan.output)).run(f"{baseline}_r1").folder.is_dir() for plan in plans)
    if "BASELINE_GROUP" in variables.given and baseline not in groups and not exists and baseline not in AB_GROUPS:
        raise UsageError(f"BASELINE_GROUP is {baseline}, and there is no such group: {did_you_mean(baseline, groups)}")


def check_run_count(plans: Sequence[CampaignPlan], yes: bool) -> None:
    runs = sum(len(plan.runs) for plan in plans)
    if runs > MAX_RUNS_WITHOUT_YES and not yes:
        raise UsageError(f"{runs:,} runs requested: add --yes to confirm, or shorten the SWEEP_ lists or REPEATS")


def settings_as_variables(text: str, names: Mapping[str, str]) -> str:
    """Replace settings and keys of train.py in a message by the driver's variables."""
    from seatrial_workloads.contrastive.hydra_config.keys import KEYS

    keys = {key: names[entry.fields[0]] for key, entry in KEYS.items() if entry.fields and entry.fields[0] in names}
    keys |= {key.lstrip("+"): names[setting] for key, setting in TRAINER_KEYS.items()} | {"train.max_step_iterations": names["steps"]}
    # A device has no variable of its own.
    keys["train.device is cpu"] = f"{names['device']} names none"
    replacements = keys | {setting: name for setting, name in names.items() if "_" in setting}
    pattern = "|".join(re.escape(term) for term in sorted(replacements, key=len, reverse=True))
    return re.sub(rf"(?<![\w.])(?:{pattern})(?![\w]|\.\w)", lambda found: replacements[found[0]], text)


def variables_of_group(group: str, variables: Variables) -> dict[str, str]:
    """Setting → the variable that sets it for this group."""
    names = variable_names(AB_GROUPS.get(group, "SWEEP_"))
    for setting, one, several in (
        ("num_workers", "SWEEP_NUM_WORKERS", "SWEEP_NUM_WORKERS_LIST"),
        ("prefetch_factor", "SWEEP_PREFETCH_FACTOR", "SWEEP_PREFETCH_LIST"),
    ):
        if group not in AB_GROUPS and variables[several] is None:
            names[setting] = one
    if "DATASET_MANIFEST_PATH" not in variables.given:
        names["dataset_manifest_path"] = MANIFEST_VARIABLE
    return names


def _plan_problems(plan: CampaignPlan, variables: Variables, cwd: Path) -> Iterator[RunProblem]:
    try:
        from seatrial_workloads.contrastive.hydra_config.compose import settings_from
        from seatrial_workloads.contrastive.hydra_config.to_settings import ConfigurationError, with_key_names
    except ImportError as error:
        raise UsageError(NEEDS_HYDRA) from error
    base = None
    for spec in {run.group: run for run in plan.runs}.values():
        names = variables_of_group(spec.group, variables)
        try:
            # Composing takes 0.1 s: other groups differ only in flat settings, which are checked the same way.
            base = settings_from(spec.workload.args, {}).settings if base is None else dataclasses.replace(base, **_flat(spec, base))
        except (ConfigurationError, ValueError) as error:
            problem = with_key_names(str(error))
            source = "EXPERIMENT: " if problem.startswith("there is no experiment") else ""
            yield RunProblem(text=settings_as_variables(f"{source}{problem}", names))
            continue
        # GPUs of other hosts are checked there.
        gpus = spec.place.ranks if spec.place.traits.lists_hosts else len(spec.place.devices)
        found = base.host_problems(num_gpus=gpus, cwd=cwd)
        yield from (
            RunProblem(text=f"{names[setting]}: {settings_as_variables(problem, names)}", of_host=True)
            for setting, problem in found
            if setting not in CHECKED_HERE
        )


def _flat(spec: RunSpec, base: Any) -> dict[str, Any]:
    fields = {field.name for field in dataclasses.fields(base)}
    return {name: value for name, value in {**spec.settings, **spec.axes}.items() if name in fields}


def _missing_weights(variables: Variables, cwd: Path) -> Iterator[str]:
    checkpoint = variables["PRETRAINED_CKPT"]
    if checkpoint != NO_CHECKPOINT and not (cwd / checkpoint).is_file():
        yield f"PRETRAINED_CKPT is {checkpoint}, and there is no such file: correct it, or use {NO_CHECKPOINT}"
    for name in ("SPEECH_MODEL_PATH", "TEXT_MODEL_PATH"):
        problem = _model_problem(variables[name], cwd)
        if problem:
            yield f"{name} is {variables[name]}, and there is no such folder: {problem}"


def _model_problem(source: str, cwd: Path) -> str:
    """What to do about a missing model; empty if it exists or may be a hub id."""
    from seatrial_workloads.contrastive.settings import CONFIG_NAMES

    if source in CONFIG_NAMES or (cwd / source).is_dir():
        return ""
    near = nearest(source, CONFIG_NAMES)
    if near:
        return f"did you mean '{near}'?"
    if _HUB_ID.fullmatch(source) and not (cwd / source.partition("/")[0]).exists():
        return ""
    return "put its weights there, or use base or tiny for random weights"


def _formats_without_gpu(variables: Variables) -> Iterator[str]:
    if not is_on_cpu(variables):
        return
    for name, others in (("PRECISION_MODE", "auto or bf16"), ("MODEL_LOAD_DTYPE", "auto, bf16 or fp32")):
        if variables[name] == "fp16":
            yield f"{name} is fp16, and INCLUDE={variables['INCLUDE']} runs on the CPU, which does not support it: use {others}"
