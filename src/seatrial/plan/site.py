"""The facts of a site, in `site.yaml`: network variables, interface, partition and account, shared root, activation.

In: `--site NAME`, else a site.yaml beside the plan. Out: the resolved plan with the site in every run. Neither a plan nor a run's hash
contains these facts: the same plan at another site is the same plan. The plan's own values take precedence.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from pydantic import Field, ValidationError

from seatrial.core.errors import UsageError, did_you_mean
from seatrial.plan.load import plan_error
from seatrial.plan.schema import StrictModel, Text
from seatrial.plan.yaml_text import Locations, read_plan_file
from seatrial.records.plan import CampaignPlan, ContainerSpec, PlaceSpec, RunSpec, SiteSpec

FILE = "site.yaml"
SITES = Path("~/.config/seatrial/sites")
_MOUNT = re.compile(r"/[^\s,:]*:/[^\s,:]*(?::[a-z+]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SlurmDefaults(StrictModel):
    """What jobs request where the plan sets nothing: some keys of records.plan.SlurmSpec, any of which may be null."""

    partition: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.,@-]+$")
    account: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.,@-]+$")
    qos: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.,@-]+$")
    constraint: str | None = None
    mem: str | None = Field(default=None, pattern=r"^\d+[KMGT]?$")
    time: str | None = None


class Container(StrictModel):
    """The image that ranks of Slurm jobs run in, by srun's plugin pyxis. Not ContainerSpec itself, whose mounts and folder are a run's."""

    image: str = Field(pattern=r"^[A-Za-z0-9_./:@#+-]+$")
    """As `srun --container-image` takes it: `nvcr.io#nvidia/pytorch:25.01-py3`, or the path of a squashfs file."""
    mounts: list[str] = Field(default_factory=list)
    """`/host/path:/path`, with `:ro` for reading only. The output folder and the run's own are mounted anyway."""
    workdir: str | None = Field(default=None, pattern=r"^/[^\s,]*$")
    """Where commands start; the folder of the run when left out."""
    python: str | None = Field(default=None, pattern=r"^/\S+$")
    """The interpreter in the image that has Seatrial; `place.python`, else this one's path, when left out."""


class Site(StrictModel):
    """One site. Not records.plan.SiteSpec itself: its keys may be null, and container and Slurm defaults go into the place of each run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=80)
    interface: str | None = Field(default=None, pattern=r"^(?:\^=?|=)?[A-Za-z0-9_.:-]{1,15}(?:,[A-Za-z0-9_.:-]{1,15})*$")
    """Network interfaces for NCCL and Gloo, in NCCL's grammar, as `place.interface`."""
    env: dict[str, Text] = Field(default_factory=dict)
    """Variables of every rank: NCCL_IB_DISABLE, NCCL_SOCKET_NTHREADS, GLOO_USE_IPV6 …"""
    shared: str | None = None
    """The root of the file system that all nodes share; a campaign of jobs must write below it."""
    activate: list[str] = Field(default_factory=list)
    """Lines of bash that ranks are started after, on every host: `source …/activate`, `module load …`, `conda activate …`."""
    container: Container | None = None
    """The image that ranks of Slurm jobs run in, by srun's plugin pyxis."""
    slurm: SlurmDefaults = Field(default_factory=SlurmDefaults)


def find_site(name: str | None, plan: Path | None) -> Path | None:
    """The site's file: by path, by name, or beside the plan; None without one, if none was requested."""
    if name is None:
        beside = plan.parent / FILE if plan else None
        return beside if beside and beside.is_file() else None
    if "/" in name or name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise UsageError(f"--site {name}: there is no such file")
        return Path(name)
    folder = SITES.expanduser()
    found = folder / f"{name}.yaml"
    if not found.is_file():
        known = sorted(path.stem for path in folder.glob("*.yaml"))
        raise UsageError(f"--site {name}: there is no {found}; {did_you_mean(name, known) if known else 'write one there, or name a file'}")
    return found


def load_site(path: Path) -> Site:
    """A PlanError names file, line and key."""
    document = read_plan_file(path)
    locations = Locations(str(path), document.where)
    unknown = next((str(key) for key in document.value if str(key) not in Site.model_fields), None)
    if unknown is not None:
        raise locations.error((unknown,), f"unknown key; {did_you_mean(unknown, Site.model_fields)}")
    try:
        site = Site.model_validate_json(json.dumps(document.value))
    except ValidationError as error:
        raise plan_error(error, locations) from None
    _check(site, locations)
    return site


def _check(site: Site, locations: Locations) -> None:
    wrong = next((name for name in site.env if not _VARIABLE.fullmatch(name) or name.startswith("SEATRIAL_")), None)
    if wrong is not None:
        raise locations.error(("env", wrong), "is not a variable that a site can set")
    for position, line in enumerate(site.activate):
        if "\n" in line:
            raise locations.error(("activate", position), "is more than one line; write each as an item of its own")
    for position, mount in enumerate(site.container.mounts if site.container else ()):
        if not _MOUNT.fullmatch(mount):
            raise locations.error(
                ("container", "mounts", position), f"'{mount}' is not a mount; write /host/path:/path or /host/path:/path:ro"
            )
    if site.shared is not None and not site.shared.startswith("/"):
        raise locations.error(("shared",), f"'{site.shared}' is not an absolute path")


def with_site(plan: CampaignPlan, site: Site, source: Path) -> CampaignPlan:
    """The plan with the site in every run; hashes stay as they are."""
    spec = SiteSpec(
        name=site.name,
        source=str(source),
        interface=site.interface or "",
        env=dict(site.env),
        shared=site.shared or "",
        activate=tuple(site.activate),
    )
    return replace(plan, runs=tuple(_run_at(run, spec, site) for run in plan.runs))


def _run_at(run: RunSpec, spec: SiteSpec, site: Site) -> RunSpec:
    place = _place_at(run.place, spec, site.slurm)
    if place.slurm is not None and site.container is not None:
        place = replace(place, slurm=replace(place.slurm, container=_container_at(run.cwd, site.container)))
    return replace(run, site=spec, place=place)


def _container_at(cwd: str, container: Container) -> ContainerSpec:
    return ContainerSpec(
        image=container.image,
        mounts=(f"{cwd}:{cwd}", *container.mounts),
        workdir=container.workdir or cwd,
        python=container.python or "",
    )


def _place_at(place: PlaceSpec, site: SiteSpec, defaults: SlurmDefaults) -> PlaceSpec:
    if place.traits.is_this_machine:
        return place
    given = place.slurm
    if given is not None:
        missing = {key: value for key, value in defaults.model_dump().items() if value and not getattr(given, key)}
        given = replace(given, **missing)
    return replace(place, interface=place.interface or site.interface, slurm=given)
