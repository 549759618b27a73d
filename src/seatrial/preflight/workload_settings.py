"""What the settings of a bundled workload ask of this host, in the workload's own judgement.

A workload's `Settings` may have `host_problems(self, *, num_gpus: int, cwd: Path) -> list[tuple[str, str]]`: the settings that cannot
work here, each with a sentence that says why and what would. It is asked once for each set of settings, before anything is started.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seatrial.machine.gpus import DEVICE_FILE, Driver, is_certain, read_driver, visible_gpus
from seatrial.preflight.need import Need, settings_module
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec

HOOK = "host_problems"

SETTING = Question(
    name="setting {key}",
    looks_at="what a bundled workload itself says of its settings on this host, such as a precision that its device does not have",
    prevents="the same complaint of {workload}, from every rank, after the start",
    fix="change {key} in `settings` or its axis, or run where it can be had",
    refuses=True,
)
QUESTIONS = (SETTING,)


def checks(need: Need) -> Iterator[Check]:
    asked = [spec for spec in need.runs if judges_its_host(spec)]
    if not asked:
        return
    driver = read_driver()
    certain = is_certain(driver, DEVICE_FILE.exists())
    told = {(spec.workload.name, *problem): None for spec in unlike(need, asked, driver) for problem in problems_of(need, spec, driver)}
    for workload, key, sentence in told:
        # Where nobody can tell how many GPUs there are, the workload judged by too little.
        yield SETTING.answer(False, sentence.rstrip("."), refuses=certain, key=key, workload=workload)


def judges_its_host(spec: RunSpec) -> bool:
    """Whether its workload says itself which settings cannot work here."""
    return spec.workload.module is not None and hasattr(settings_module(spec.workload.module).Settings, HOOK)


def unlike(need: Need, specs: list[RunSpec], driver: Driver) -> list[RunSpec]:
    """One run for each set of settings and GPUs: repeats would be told the same."""
    return list({_asked_with(need, spec, driver): spec for spec in specs}.values())


def problems_of(need: Need, spec: RunSpec, driver: Driver) -> list[tuple[str, str]]:
    """(setting, sentence) of what cannot work."""
    owner = settings_module(str(spec.workload.module)).Settings
    found: list[tuple[str, str]] = getattr(owner(**spec.settings), HOOK)(num_gpus=_num_gpus(need, spec, driver), cwd=Path(spec.cwd))
    return found


def _asked_with(need: Need, spec: RunSpec, driver: Driver) -> tuple[object, ...]:
    return (spec.workload.module, tuple(sorted(spec.settings.items())), _num_gpus(need, spec, driver), spec.cwd)


def _num_gpus(need: Need, spec: RunSpec, driver: Driver) -> int:
    """GPUs that its ranks see."""
    return len(visible_gpus(driver.gpus, spec.place.devices, need.environment(spec)))
