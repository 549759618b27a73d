"""What a plan asks of this host, as far as it can be read from the plan: ranks, GPUs, loader workers, folders.

`Need` without runs is the host in general: no plan was given.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from seatrial.options.words import long_option
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.run_spec import RunSpec

WORKER_SETTINGS = ("num_workers", "dataloader_num_workers", "workers", "nw")


@dataclass(frozen=True, kw_only=True)
class Need:
    """What the checks are made for."""

    output: Path
    """Where the campaign will write; the current folder when there is no plan."""
    runs: tuple[RunSpec, ...] = ()
    caller: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """The variables every run inherits."""

    @property
    def planned(self) -> bool:
        return bool(self.runs)

    @property
    def ranks(self) -> int:
        """The most ranks one run has; 1 without a plan."""
        return max((spec.place.ranks for spec in self.runs), default=1)

    @property
    def workers_of_a_rank(self) -> int | None:
        """The most loader workers one rank is told to have; None when no run says so."""
        return max((count for spec in self.runs if (count := loader_workers(spec)) is not None), default=None)

    @property
    def workers(self) -> int | None:
        """The most loader workers of all ranks of one run together."""
        counts = [count * spec.place.ranks for spec in self.runs if (count := loader_workers(spec)) is not None]
        return max(counts, default=None)

    def environment(self, spec: RunSpec) -> dict[str, str]:
        """What the processes of `spec` get, but for what launchers add."""
        return {**self.caller, **spec.env}


def need_of(plan: CampaignPlan) -> Need:
    """What the runs that were chosen of `plan` need."""
    return Need(output=Path(plan.output), runs=plan.chosen)


def loader_workers(spec: RunSpec) -> int | None:
    """Loader workers of one rank: by the workload's settings, an axis, or an option of the script; None when nothing says so."""
    told = [{**spec.axes, **spec.settings}.get(name) for name in WORKER_SETTINGS]
    told += [value for name, value in options(spec) if name in WORKER_SETTINGS]
    numbers = [int(value) for value in told if isinstance(value, int) or (isinstance(value, str) and value.isdigit())]
    return numbers[0] if numbers else None


def options(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """(name, value) of every `--name value` and `--name=value` among the script's arguments."""
    words = spec.workload.args
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, inline = long_option(word)
        if name:
            yield name, following if inline is None else inline


def needs_torch(spec: RunSpec) -> bool:
    """Whether a bundled workload cannot run without torch: it says so itself, or what starts it is a part of torch."""
    if not spec.workload.module:
        return False
    return bool(settings_module(spec.workload.module).NEEDS_TORCH) or spec.launcher.kind in ("torchrun", "deepspeed")


def settings_module(trainer: str) -> ModuleType:
    """Where a bundled workload keeps its settings: beside its trainer; standard library only, as plans rely on."""
    return importlib.import_module(f"{trainer.rpartition('.')[0]}.settings")


def uses_deepspeed(spec: RunSpec) -> bool:
    """Whether DeepSpeed is known to run in it: it starts the ranks, or a bundled workload is told to train with it."""
    return spec.launcher.kind == "deepspeed" or spec.settings.get("engine") == "deepspeed"


def asks_for_gpus(spec: RunSpec) -> bool:
    """Whether the plan says that this run is to use GPUs."""
    return bool(spec.place.devices) or spec.settings.get("device") == "cuda"


def may_use_gpus(spec: RunSpec) -> bool:
    """Whether it could: a script may use whatever it sees, a bundled workload says by its device."""
    return asks_for_gpus(spec) or not spec.workload.module or spec.settings.get("device") == "auto"
