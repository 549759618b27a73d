"""A plan of stages: campaigns and commands that are run one after the other, with one acceptance at the end.

In: a file with the key `stages`. Out: a checked `StagedPlan`, and for each of its campaigns the file, the base and the overrides that
`load_plan` takes. What needs several plans (runs that differ in length, ranks and what they profile) is not a matrix: each stage is a
campaign with its own folder and verdict, or a command with its log.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError

from seatrial.core.errors import PlanError, did_you_mean
from seatrial.plan.load import load_plan, plan_error
from seatrial.plan.schema import Plan, StrictModel, Text
from seatrial.plan.yaml_text import Document, KeyPath, Locations, read_plan_file

NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
ACCEPTANCE = "acceptance"
PLACEHOLDER = re.compile(r"\{(\w*)\}")
PLACEHOLDERS = ("python", "output")


class Stage(StrictModel):
    """One stage: a campaign (`plan`) or a command."""

    name: str = Field(pattern=NAME, max_length=80)
    """Its name: the folder of its campaign, or `NAME.log` of its command, in the output folder."""
    plan: str | None = None
    """The campaign's plan, relative to this file."""
    command: list[Text] = Field(default_factory=list)
    """In place of a plan: program and arguments. `{python}` is seatrial's interpreter, `{output}` the output folder."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Keys of the plan and their values for this stage, as `--set` takes them."""
    after_stall: dict[str, Any] = Field(default_factory=dict)
    """The same for one more try where a run of the stage stalled; none when left out."""
    needs_gpus: int = Field(default=0, ge=0)
    """GPUs that this machine must have; with fewer the stage is not run, and recorded with that reason."""


class StagedPlan(StrictModel):
    """A plan of stages: campaigns and commands in order, then one acceptance."""

    name: str = Field(pattern=NAME, max_length=80)
    """Name of the plan."""
    stages: list[Stage] = Field(min_length=1)
    """What is run, in this order. A stage that fails does not keep the next from running."""
    base: str | None = None
    """Plan that the stages' plans build on in place of the one they extend, relative to this file."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Keys of every stage's plan and their values, as `--set` takes them; a stage's own `set` comes after."""
    set_on_one_gpu: dict[str, Any] = Field(default_factory=dict)
    """Further ones on a machine with one GPU."""
    needs_gpus: int = Field(default=0, ge=0)
    """GPUs that this machine must have for any stage; with fewer nothing is started."""
    acceptance: list[Text] = Field(default_factory=list)
    """Command after the last stage, as in `command`. Its exit code is that of the whole: 0, 2 failed, 3 inconclusive. When left out: 2 \
where a stage failed, else 3 where one was inconclusive or not run."""
    output: str | None = None
    """Folder for everything, `outputs/<name>` when left out."""

    _path: Path = PrivateAttr(default=Path())
    _locations: Locations = PrivateAttr(default_factory=Locations)

    def load(self, stage: Stage, num_gpus: int, overrides: Sequence[str] = (), *, after_stall: bool = False) -> tuple[Path, Plan]:
        """The stage's plan, checked; `overrides` come last. An error in a `set` names it and its line in this file."""
        assert stage.plan is not None
        path = self._path.parent / stage.plan
        own = self._overrides(stage, num_gpus, after_stall=after_stall)
        try:
            return path, load_plan(path, [*own, *overrides], base=self.base_path)
        except PlanError as error:
            where = own.get(str(error.file).removeprefix("--set "))
            if where is None:
                raise
            raise self._locations.error(where, f"{error.key}: {error.problem}" if error.key else error.problem) from None

    def output_folder(self, out: Path | None) -> Path:
        """`out`, else the plan's own."""
        return (out or Path(self.output or f"outputs/{self.name}")).absolute()

    @property
    def base_path(self) -> Path | None:
        return self._path.parent / self.base if self.base else None

    def _overrides(self, stage: Stage, num_gpus: int, *, after_stall: bool) -> dict[str, KeyPath]:
        """`KEY=VALUE` → where it is written; later ones come last."""
        at: KeyPath = ("stages", self.stages.index(stage))
        written: list[tuple[KeyPath, dict[str, Any]]] = [(("set",), self.set)]
        if num_gpus == 1:
            written.append((("set_on_one_gpu",), self.set_on_one_gpu))
        written.append(((*at, "set"), stage.set))
        if after_stall:
            written.append(((*at, "after_stall"), stage.after_stall))
        return {f"{key}={json.dumps(value)}": (*path, key) for path, values in written for key, value in values.items()}

    def error(self, path: KeyPath, problem: str) -> PlanError:
        return self._locations.error(path, problem)

    def located(self, path: Path, locations: Locations) -> StagedPlan:
        self._path, self._locations = path, locations
        return self


def load_stages(path: Path, document: Document | None = None) -> StagedPlan | None:
    """The plan of stages in `path`, of which `document` may have been read already; None where the file is an ordinary plan."""
    document = document or read_plan_file(path)
    if "stages" not in document.value:
        return None
    locations = Locations(str(path), document.where)
    try:
        staged = StagedPlan.model_validate_json(json.dumps(document.value)).located(path, locations)
    except ValidationError as error:
        raise plan_error(error, locations, StagedPlan) from None
    _check(staged)
    return staged


def _check(staged: StagedPlan) -> None:
    names = [stage.name for stage in staged.stages]
    for at, stage in enumerate(staged.stages):
        here: KeyPath = ("stages", at)
        if stage.name in (*names[:at], ACCEPTANCE):
            taken = "is the acceptance's own" if stage.name == ACCEPTANCE else "is the name of an earlier stage"
            raise staged.error((*here, "name"), f"'{stage.name}' {taken}; choose another")
        if (stage.plan is None) == (not stage.command):
            raise staged.error(here, "a stage is a `plan` or a `command`: give one of them")
        for key in ("set", "after_stall"):
            if stage.command and getattr(stage, key):
                raise staged.error((*here, key), "has no effect on a command; leave it out")
        _check_words(staged, stage.command, (*here, "command"))
    _check_words(staged, staged.acceptance, (ACCEPTANCE,))


def _check_words(staged: StagedPlan, argv: Sequence[str], path: KeyPath) -> None:
    for position, text in enumerate(argv):
        for name in PLACEHOLDER.findall(text):
            if name not in PLACEHOLDERS:
                raise staged.error((*path, position), f"unknown placeholder {{{name}}}; {did_you_mean(name, PLACEHOLDERS)}")


def fill(argv: Sequence[str], output: Path) -> list[str]:
    """The command with its placeholders replaced."""
    values = {"python": sys.executable, "output": str(output)}
    return [PLACEHOLDER.sub(lambda found: values[found[1]], text) for text in argv]
