"""The runs that a command or a plan requests, in one form, so that the two can be compared. In: a recorded call, or a plan file. Out: every
run with its group, flat settings, place, timing, limits and telemetry.

A call of the driver is expanded as the driver does (variables to plans, plans to runs, a run's arguments composed as train.py does); a call
of deepspeed is composed from its own arguments.
"""

from __future__ import annotations

import dataclasses
import itertools
import os.path
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from seatrial.plan.load import load_plan, plan_from_mapping
from seatrial.plan.resolve import resolve_plan
from seatrial.records.events import ENV_RANK_SCOPE, ENV_SYNC_TIMING
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial_runbooks.stage1.to_plan import plan_mappings
from seatrial_runbooks.stage1.variables import read
from seatrial_workloads.contrastive.hydra_config.compose import settings_from
from seatrial_workloads.contrastive.hydra_config.run_folder import Start
from seatrial_workloads.contrastive.settings import Settings
from tests.runbooks.blocks import ROOT
from tests.runbooks.recording import Call

PLANS = ROOT / "plans" / "stage1"
PATHS = ("dataset_root", "dataset_manifest_path", "speech_model", "text_model", "pretrained_checkpoint")


@dataclass(frozen=True)
class Run:
    """One run, without what may differ between two forms of the same work: order, names of plans, how the trainer is started."""

    group: str
    repeat: int
    settings: dict[str, Any]
    """As the trainer takes them, `steps` among them."""
    place: tuple[object, ...]
    rank_scope: str
    timing: dict[str, Any]
    limits: tuple[float | None, ...]
    """Of the start, of the whole run, and the ratio of a spike."""
    telemetry: tuple[float | None, float | None]
    """Seconds between samples of GPUs and of the host."""
    stop_on_error: bool


def of_plan(name: str) -> list[Run]:
    """The runs of a ready plan."""
    path = PLANS / f"{name}.yaml"
    return _of_campaign(resolve_plan(load_plan(path), source=str(path), cwd=ROOT))


def of_driver(call: Call) -> list[Run]:
    """The runs that the driver would start for a call's variables."""
    mappings = plan_mappings(read(call.variables), ROOT, datetime(2026, 1, 1))
    campaigns = [resolve_plan(plan_from_mapping(mapping, "driver"), source="driver", cwd=ROOT) for mapping in mappings]
    return [run for campaign in campaigns for run in _of_campaign(campaign)]


def of_launch(call: Call) -> tuple[dict[str, Any], dict[str, Any], tuple[object, ...]]:
    """Settings, timing and place of a training that is started by deepspeed."""
    at = call.argv.index("train.py")
    start = settings_from(call.argv[at + 1 :], {})
    return _flat(start.settings), _timing(start), _launch_place(call.argv[:at])


def _of_campaign(campaign: CampaignPlan) -> list[Run]:
    settings = _all_settings(campaign)
    return [_run(spec, settings[spec.group], stop_on_error=campaign.stop_on_error) for spec in campaign.runs]


def _all_settings(campaign: CampaignPlan) -> dict[str, Settings]:
    """By group. Composing takes a fifth of a second, so only the first and the last group are composed; the others differ from the first in
    the values of the axes alone."""
    specs = list({spec.group: spec for spec in campaign.runs}.values())
    if not specs[0].workload.script:
        return {spec.group: Settings(**spec.settings) for spec in specs}
    first, last = _composed(specs[0]), _composed(specs[-1])
    between = {spec.group: dataclasses.replace(first, **spec.axes) for spec in specs[1:-1]}
    return {specs[0].group: first, **between, specs[-1].group: last}


def _composed(spec: RunSpec) -> Settings:
    return settings_from(spec.workload.args, {}).settings


def _run(spec: RunSpec, settings: Settings, *, stop_on_error: bool) -> Run:
    timing = {name: getattr(spec.timing, name) for name in ("log_every", "tail_points", "sync", "eta_mode", "eta_min_samples")}
    return Run(
        group=spec.group,
        repeat=spec.repeat,
        settings=_flat(settings),
        place=(spec.place.kind, spec.place.ranks, spec.place.devices, getattr(spec.place, "hostfile", None)),
        rank_scope=spec.rank_scope,
        timing=timing,
        limits=(spec.limits.start_s, spec.limits.run_s, spec.limits.spike_ratio),
        telemetry=(spec.telemetry.gpu_s, spec.telemetry.host_s),
        stop_on_error=stop_on_error,
    )


def _flat(settings: Settings) -> dict[str, Any]:
    """Effective settings: without what another one disables; an interval beyond the last step is None."""
    flat = dataclasses.asdict(settings)
    for name in ("attn_impl", "speech_attn_impl", "text_attn_impl"):
        del flat[name]
    flat |= {"speech_attention": settings.speech_attention, "text_attention": settings.text_attention}
    if not settings.torch_compile:
        del flat["torch_compile_mode"], flat["torch_compile_dynamic"]
    if not settings.length_buckets:
        del flat["bucket_boundaries_s"]
    for name in ("validation_every_steps", "checkpoint_every_steps"):
        flat[name] = None if flat[name] is None or flat[name] >= settings.steps else flat[name]
    return flat | {name: os.path.normpath(flat[name]) for name in PATHS if flat[name] is not None}


def _timing(start: Start) -> dict[str, Any]:
    variables = {variable.name: variable.value for variable in start.variables}
    return {"rank_scope": variables[ENV_RANK_SCOPE], "sync": variables[ENV_SYNC_TIMING] == "1", "log_every": start.settings.log_every}


def _launch_place(argv: tuple[str, ...]) -> tuple[object, ...]:
    """Devices or hostfile, by their option; without ssh the hostfile only sets the number of nodes."""
    options = dict(itertools.pairwise(argv))
    if "--no_ssh" in argv:
        return ("pernode", None)
    if "--hostfile" in options:
        return ("hostfile", str(Path(options["--hostfile"])))
    return ("local", tuple(options["--include"].removeprefix("localhost:").split(",")))
