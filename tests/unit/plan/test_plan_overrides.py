"""`--set a.b=c` on top of a plan file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import PlanError
from seatrial.plan.load import load_plan
from seatrial.plan.locate import Locations, Where
from seatrial.plan.overrides import apply_override
from seatrial.plan.schema import Plan

TEXT = "name: x\nworkload: dummy\nlauncher: torchrun\naxes:\n  micro_batch: {label: batch, values: [8, 16]}\n"

TAKEN: dict[str, tuple[Callable[[Plan], Any], Any]] = {
    "repeats=3": (lambda plan: plan.repeats, 3),
    "settings.step_ms=1e1": (lambda plan: plan.settings, {"step_ms": 10.0}),
    "launcher=python": (lambda plan: plan.launcher.kind, "python"),
    "launcher.args=[--max-restarts, 0]": (lambda plan: (plan.launcher.kind, plan.launcher.args), ("torchrun", ["--max-restarts", "0"])),
    "axes.micro_batch=[4]": (lambda plan: (plan.axes["micro_batch"].label, plan.axes["micro_batch"].values), ("batch", [4])),
    "axes.micro_batch.label=m": (lambda plan: (plan.axes["micro_batch"].label, plan.axes["micro_batch"].values), ("m", [8, 16])),
    "axes.place.ranks=[1, 2]": (lambda plan: list(plan.axes), ["micro_batch", "place.ranks"]),
    "axes={}": (lambda plan: plan.axes, {}),
    "env.OMP_NUM_THREADS=1": (lambda plan: plan.env, {"OMP_NUM_THREADS": "1"}),
    "workload.env.A=b": (lambda plan: plan.workload.env, {"A": "b"}),
    "place.include=localhost:0,1": (lambda plan: plan.place.include, "localhost:0,1"),
    "limits.start_s=null": (lambda plan: plan.limits.start_s, None),
    "budget=2h": (lambda plan: plan.budget, 7200.0),
    "output=": (lambda plan: plan.output, None),
}
REFUSED = {
    "repeats": "--set repeats: write KEY=VALUE, as in repeats=3 or axes.micro_batch=[8,16]",
    "=3": "--set =3: write KEY=VALUE, as in repeats=3 or axes.micro_batch=[8,16]",
    "tokens_per_step=3": "--set tokens_per_step=3: tokens_per_step: unknown key; it belongs under `workload`",
    "repeat=3": "--set repeat=3: repeat: unknown key; did you mean 'repeats'?",
    "limit.run_s=3": "--set limit.run_s=3: limit: unknown key; did you mean 'limits'?",
    "limits.runs=3": "--set limits.runs=3: limits.runs: unknown key; did you mean 'run_s'?",
    "repeats.x=3": "--set repeats.x=3: repeats.x: unknown key; 'repeats' is set as a whole",
    "repeats='3'": "--set repeats='3': repeats: must be a whole number, not '3' (text); take the quotes off",
    "repeats=[": "--set repeats=[:1: not YAML: while parsing a flow node, expected the node content, but found '<stream end>'",
    "axes.micro_batch=[8,8]": (
        "--set axes.micro_batch=[8,8]: axes.micro_batch[1]: the value 8 is there twice; repeats are asked for with `repeats`"
    ),
    "axes.micro_bath=[8]": "--set axes.micro_bath=[8]: axes.micro_bath: unknown setting; did you mean 'micro_batch'?",
    "settings.micro_batch=8": "p.yaml:5: axes.micro_batch: is fixed by `settings.micro_batch` and varied as an axis; keep one of the two",
    "extends=y.yaml": "--set extends=y.yaml: extends: a plan is chosen by its file, not by --set",
    "price_per_gpu_hour=1": "--set price_per_gpu_hour=1: price_per_gpu_hour: is a known key that is not built yet; leave it out",
    "telemetry.gpus=1": "--set telemetry.gpus=1: telemetry.gpus: unknown key; did you mean 'gpu_s'?",
}


@pytest.mark.parametrize("override", TAKEN)
def test_a_key_is_set(override: str, plan_file: Callable[..., Path]) -> None:
    read, expected = TAKEN[override]
    assert read(load_plan(plan_file(TEXT), [override])) == expected


@pytest.mark.parametrize("override", REFUSED)
def test_a_key_that_cannot_be_set_names_the_option(override: str, complaint: Callable[..., str]) -> None:
    assert complaint(TEXT, override).startswith(REFUSED[override])


def test_the_last_of_two_wins(plan_file: Callable[..., Path]) -> None:
    assert load_plan(plan_file(TEXT), ["repeats=2", "repeats=5"]).repeats == 5


def test_the_mapping_beneath_stays_and_the_key_lies_in_the_option() -> None:
    below: dict[str, Any] = {"limits": {"run_s": 1, "term_s": 2}}
    lines = Locations("p.yaml", {("limits",): Where("p.yaml", 3), ("limits", "run_s"): Where("p.yaml", 4)})
    assert apply_override(below, lines, "limits.run_s=5") == {"limits": {"run_s": 5, "term_s": 2}}
    assert below == {"limits": {"run_s": 1, "term_s": 2}}
    assert lines.of(("limits", "run_s")) == Where("--set limits.run_s=5")
    assert lines.of(("limits", "term_s")) == Where("p.yaml", 3)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("repeats", "write KEY=VALUE"),
        ("=3", "write KEY=VALUE"),
        ("limits..run_s=3", "write KEY=VALUE"),
        ("extends=a.yaml", "a plan is chosen by its file"),
        ("limits.rn_s=3", "limits.rn_s: unknown key; did you mean 'run_s'?"),
        ("repeats.x=3", "'repeats' is set as a whole"),
    ],
)
def test_what_cannot_be_set_says_how(override: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        apply_override({}, Locations(), override)
    assert str(caught.value).startswith(f"--set {override}: ") and says in str(caught.value)


def test_a_value_where_keys_are_needed_is_said() -> None:
    with pytest.raises(PlanError, match="'place' holds one value, not keys"):
        apply_override({"place": "local"}, Locations(), "place.ranks=2")
