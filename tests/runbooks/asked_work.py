"""The work that a command or a plan asks for, in one form, so that the two can be compared. In: a call as `recording` saw it, or a plan
file. Out: `Work`: every run with its group, flat settings, place, timing, limits and telemetry.

A call of the driver goes the way the driver goes (variables to plans, plans to runs, a run's words composed as train.py does); a call of
deepspeed is composed from its own words.
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
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.events import ENV_RANK_SCOPE, ENV_SYNC_TIMING
from seatrial.records.run_spec import RunSpec
from seatrial_runbooks.stage1.to_plan import plan_mappings
from seatrial_runbooks.stage1.variables import read
from seatrial_workloads.contrastive.hydra_config.compose import Start, settings_from
from seatrial_workloads.contrastive.settings import Settings
from tests.runbooks.blocks import ROOT
from tests.runbooks.recording import Call

PLANS = ROOT / "plans" / "stage1"
PATHS = ("dataset_root", "dataset_manifest_path", "speech_model", "text_model", "pretrained_checkpoint")


@dataclass(frozen=True)
class Run:
    """One run, without what two forms of the same work may differ in: order, names of plans, how the trainer is started."""

    group: str
    repeat: int
    settings: dict[str, Any]
    """As the trainer takes them, `steps` among them."""
    place: tuple[object, ...]
    rank_scope: str
    timing: dict[str, Any]
    limits: tuple[float | None, ...]
    """Of the start, of the whole run, and the ratio of an alarm."""
    telemetry: tuple[float | None, float | None]
    """Seconds between samples of GPUs and of the host."""
    stop_on_error: bool


def of_plan(name: str) -> list[Run]:
    """The runs of a ready plan."""
    path = PLANS / f"{name}.yaml"
    return _of_campaign(resolve(load_plan(path), source=str(path), cwd=ROOT))


def of_driver(call: Call) -> list[Run]:
    """The runs that the driver would make of a call's variables."""
    mappings = plan_mappings(read(call.variables), ROOT, datetime(2026, 1, 1))
    campaigns = [resolve(plan_from_mapping(mapping, "driver"), source="driver", cwd=ROOT) for mapping in mappings]
    return [run for campaign in campaigns for run in _of_campaign(campaign)]


def of_launch(call: Call) -> tuple[dict[str, Any], dict[str, Any], tuple[object, ...]]:
    """Settings, timing and place of a training that deepspeed starts by itself."""
    at = call.words.index("train.py")
    start = settings_from(call.words[at + 1 :], {})
    return _flat(start.settings), _said_timing(start), _launch_place(call.words[:at])


def _of_campaign(campaign: CampaignPlan) -> list[Run]:
    settings = _all_settings(campaign)
    return [_run(spec, settings[spec.group], stop_on_error=campaign.stop_on_error) for spec in campaign.runs]


def _all_settings(campaign: CampaignPlan) -> dict[str, Settings]:
    """By group. Composing takes a fifth of a second: it is done for the first and the last group, and the others, whose words differ in
    the values of the axes alone, are the first one with these."""
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
    """Settings as they act: what another one switches off is left out, an interval beyond the last step is never."""
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


def _said_timing(start: Start) -> dict[str, Any]:
    variables = {variable.name: variable.value for variable in start.variables}
    return {"rank_scope": variables[ENV_RANK_SCOPE], "sync": variables[ENV_SYNC_TIMING] == "1", "log_every": start.settings.log_every}


def _launch_place(words: tuple[str, ...]) -> tuple[object, ...]:
    """Devices or hostfile, by the option that says so; without ssh the hostfile only says how many nodes there are."""
    options = dict(itertools.pairwise(words))
    if "--no_ssh" in words:
        return ("pernode", None)
    if "--hostfile" in options:
        return ("hostfile", str(Path(options["--hostfile"])))
    return ("local", tuple(options["--include"].removeprefix("localhost:").split(",")))
