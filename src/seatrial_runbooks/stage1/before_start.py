"""What cannot work is told before anything is started, by the names of the variables that say it.

In: resolved plans and the variables they came from. Out: nothing, or a UsageError with a sentence for each problem. The configuration of
every group is composed as train.py itself would, without torch; files and folders are looked for.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.cli.before_start import RUNS_WITHOUT_ASKING
from seatrial.errors import UsageError, did_you_mean, nearest
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.run_spec import HOSTFILE, RunSpec
from seatrial_runbooks.stage1.place import is_on_cpu
from seatrial_runbooks.stage1.to_plan import AB_GROUPS
from seatrial_runbooks.stage1.trainer_words import KEYS, sources
from seatrial_runbooks.stage1.variables import MANIFEST_ELSEWHERE, NO_CHECKPOINT, Variables

NEEDS_HYDRA = "train.py needs hydra-core, which this Python does not have: pip install -e '.[stage1]' in the checkout"
# What is looked at here, in words of its own: left out of what the trainer says of its host.
OWN_WORDS = ("pretrained_checkpoint", "precision", "device")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def refuse_what_cannot_work(plans: Sequence[CampaignPlan], variables: Variables, cwd: Path) -> None:
    """Raise for everything that would end every run of a group."""
    formats = [*_formats_without_gpu(variables)]
    # A format that is no good here would be told again, in words of the trainer's.
    of_plans = [] if formats else [problem for plan in plans for problem in _of_plan(plan, variables, cwd)]
    problems = dict.fromkeys([*formats, *of_plans, *_missing_weights(variables, cwd)])
    if problems:
        raise UsageError("\n  ".join(["this cannot be run:", *problems]) if len(problems) > 1 else next(iter(problems)))


def refuse_unknown_baseline(plans: Sequence[CampaignPlan], variables: Variables) -> None:
    """Raise where BASELINE_GROUP names no group of these plans, nor one that an earlier command left in the folder."""
    asked = variables["BASELINE_GROUP"]
    groups = sorted({run.group for plan in plans for run in plan.runs})
    there = any(CampaignPaths(Path(plan.output)).run(f"{asked}_r1").folder.is_dir() for plan in plans)
    if "BASELINE_GROUP" in variables.given and asked not in groups and not there and asked not in AB_GROUPS:
        raise UsageError(f"BASELINE_GROUP is {asked}, and no group has that name: {did_you_mean(asked, groups)}")


def refuse_unasked(plans: Sequence[CampaignPlan], yes: bool) -> None:
    """Raise where there are so many runs that `--yes` must say they are meant."""
    runs = sum(len(plan.runs) for plan in plans)
    if runs > RUNS_WITHOUT_ASKING and not yes:
        raise UsageError(f"{runs:,} runs are asked for: add --yes if that is meant, or shorten the SWEEP_ lists or REPEATS")


def in_variables(text: str, names: Mapping[str, str]) -> str:
    """A sentence about settings or keys of train.py, with the variables that give them in their place."""
    keys = {key.lstrip("+"): names[setting] for key, setting in KEYS.items()} | {"train.max_step_iterations": names["steps"]}
    said = keys | {setting: name for setting, name in names.items() if "_" in setting}
    pattern = "|".join(re.escape(word) for word in sorted(said, key=len, reverse=True))
    return re.sub(rf"(?<![\w.])(?:{pattern})(?![\w]|\.\w)", lambda found: said[found[0]], text)


def names_for(group: str, variables: Variables) -> dict[str, str]:
    """Setting → the variable that gives it to this group."""
    names = sources(AB_GROUPS.get(group, "SWEEP_"))
    for setting, one, several in (
        ("num_workers", "SWEEP_NUM_WORKERS", "SWEEP_NUM_WORKERS_LIST"),
        ("prefetch_factor", "SWEEP_PREFETCH_FACTOR", "SWEEP_PREFETCH_LIST"),
    ):
        if group not in AB_GROUPS and variables[several] is None:
            names[setting] = one
    if "DATASET_MANIFEST_PATH" not in variables.given:
        names["dataset_manifest_path"] = MANIFEST_ELSEWHERE
    return names


def _of_plan(plan: CampaignPlan, variables: Variables, cwd: Path) -> Iterator[str]:
    try:
        from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError
        from seatrial_workloads.contrastive.hydra_config.compose import settings_from
        from seatrial_workloads.contrastive.hydra_config.to_settings import in_typed_words
    except ImportError as error:
        raise UsageError(NEEDS_HYDRA) from error
    base = None
    for spec in {run.group: run for run in plan.runs}.values():
        names = names_for(spec.group, variables)
        try:
            # Composing takes a tenth of a second: the other groups differ in flat settings only, and these are checked alike.
            base = settings_from(spec.workload.args, {}).settings if base is None else dataclasses.replace(base, **_flat(spec, base))
        except (ConfigurationError, ValueError) as error:
            yield in_variables(_with_experiment(in_typed_words(str(error))), names)
            continue
        # GPUs of other hosts are asked for on those.
        gpus = spec.place.ranks if spec.place.kind == HOSTFILE else len(spec.place.devices)
        found = base.host_problems(num_gpus=gpus, cwd=cwd)
        yield from (f"{names[setting]}: {in_variables(sentence, names)}" for setting, sentence in found if setting not in OWN_WORDS)


def _flat(spec: RunSpec, base: Any) -> dict[str, Any]:
    fields = {field.name for field in dataclasses.fields(base)}
    return {name: value for name, value in {**spec.settings, **spec.axes}.items() if name in fields}


def _with_experiment(text: str) -> str:
    """`there is no experiment 'x'` speaks of a variable too."""
    return f"EXPERIMENT: {text}" if text.startswith("there is no experiment") else text


def _missing_weights(variables: Variables, cwd: Path) -> Iterator[str]:
    checkpoint = variables["PRETRAINED_CKPT"]
    if checkpoint != NO_CHECKPOINT and not (cwd / checkpoint).is_file():
        yield f"PRETRAINED_CKPT is {checkpoint}, and there is no such file: correct it, or give {NO_CHECKPOINT} to start without"
    for name in ("SPEECH_MODEL_PATH", "TEXT_MODEL_PATH"):
        problem = _model_problem(variables[name], cwd)
        if problem:
            yield f"{name} is {variables[name]}, and there is no such folder: {problem}"


def _model_problem(source: str, cwd: Path) -> str:
    """What to do about a model that is not there; empty for one that is, or that may be on a hub."""
    from seatrial_workloads.contrastive.settings import CONFIG_NAMES

    if source in CONFIG_NAMES or (cwd / source).is_dir():
        return ""
    near = nearest(source, CONFIG_NAMES)
    if near:
        return f"did you mean '{near}'?"
    if _HUB_ID.fullmatch(source) and not (cwd / source.partition("/")[0]).exists():
        return ""
    return "put its weights there, or give base or tiny for random weights of that shape"


def _formats_without_gpu(variables: Variables) -> Iterator[str]:
    if not is_on_cpu(variables):
        return
    for name, others in (("PRECISION_MODE", "auto or bf16"), ("MODEL_LOAD_DTYPE", "auto, bf16 or fp32")):
        if variables[name] == "fp16":
            yield f"{name} is fp16, and INCLUDE={variables['INCLUDE']} runs on the CPU, which cannot train in it: use {others}"
