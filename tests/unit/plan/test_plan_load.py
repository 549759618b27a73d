"""What a plan's author sees for each mistake: the whole message, with file, line, key and the nearest right word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.errors import PlanError
from seatrial.plan.load import load_plan, parse_scalars, plan_from_mapping

HEAD = "name: x\nworkload: dummy\n"
SCRIPT = 'name: x\nworkload: {script: t.py, args: ["--bs", "{bs}"]}\n'

TYPES_AND_KEYS = {
    "repeat: 2": "p.yaml:3: repeat: unknown key; did you mean 'repeats'?",
    "samples_per_step: 8": "p.yaml:3: samples_per_step: unknown key; it belongs under `workload`",
    "kind: local": "p.yaml:3: kind: unknown key; it belongs under `launcher` or under `place`",
    "quiet_s: 9": "p.yaml:3: quiet_s: unknown key; it belongs under `limits.stall`",
    "at_most: 9": "p.yaml:3: at_most: unknown key; it belongs under `criteria`",
    "limits: {repeats: 3}": "p.yaml:3: limits.repeats: unknown key; it belongs at the top of the plan",
    "limits: {start: 3}": "p.yaml:3: limits.start: unknown key; did you mean 'start_s'?",
    "axes: {micro_batch: {vals: [1]}}": "p.yaml:3: axes.micro_batch.vals: unknown key; did you mean 'values'?",
    "axes: {micro_batch: {label: mb}}": "p.yaml:3: axes.micro_batch: has no values; list at least one, or remove the axis",
    "repeats: '2'": "p.yaml:3: repeats: must be a whole number, not '2' (text); take the quotes off",
    "repeats: true": "p.yaml:3: repeats: must be a whole number, not true (true or false)",
    "repeats: 1.5": "p.yaml:3: repeats: must be a whole number, not 1.5 (a number)",
    "repeats: 0": "p.yaml:3: repeats: must be at least 1, not 0",
    "repeats: null": "p.yaml:3: repeats: must be a whole number, not null (nothing)",
    "stop_on_error: yes": "p.yaml:3: stop_on_error: must be true or false, not 'yes' (text)",
    "limits: {run_s: .inf}": "p.yaml:3: limits.run_s: must be a finite number, not inf",
    "limits: {run_s: 0}": "p.yaml:3: limits.run_s: must be above 0.0, not 0",
    "limits: {start_s: 90s}": "p.yaml:3: limits.start_s: must be a number, not '90s' (text)",
    "limits: {stall: {factr: 3}}": "p.yaml:3: limits.stall.factr: unknown key; did you mean 'factor'?",
    "limits: {stall: 60}": "p.yaml:3: limits.stall: must be a mapping of keys to values, not 60 (a whole number)",
    "limits: {stall: {factor: 1}}": "p.yaml:3: limits.stall.factor: must be at least 2.0, not 1",
    "limits: {stall: {floor_s: 0}}": "p.yaml:3: limits.stall.floor_s: must be at least 1.0, not 0",
    "limits: {stall: {quiet_s: 60}}": (
        "p.yaml:3: limits.stall.quiet_s: is for scripts of your own; a bundled workload reports its steps itself, so leave it out"
    ),
    "limits: {soft_s: null}": "p.yaml:3: limits.soft_s: must be a number, not null (nothing)",
    "limits: {memory_gib: 0}": "p.yaml:3: limits.memory_gib: must be above 0.0, not 0",
    "limits: {disk_gib: lots}": "p.yaml:3: limits.disk_gib: must be a number, not 'lots' (text)",
    "limits: {stack_signal: SIGUSR1}": "p.yaml:3: limits.stack_signal: unknown: 'SIGUSR1'; did you mean 'USR1'?",
    "limits: {stack_signal: KILL}": ("p.yaml:3: limits.stack_signal: unknown: 'KILL'; known: IO, PWR, URG, USR1, USR2, WINCH"),
    "limits: {memory_gib: 60}\ntelemetry: {host_s: null}": (
        "p.yaml:3: limits.memory_gib: is judged by the samples of host_telemetry.csv, and telemetry.host_s is null; "
        "sample the host or leave the limit out"
    ),
    "launcher: [a]": "p.yaml:3: launcher: must be a mapping of keys to values, not ['a'] (a list)",
    "launcher: torchrn": "p.yaml:3: launcher.kind: unknown: 'torchrn'; did you mean 'torchrun'?",
    "rank_by: thruput": "p.yaml:3: rank_by: unknown: 'thruput'; did you mean 'throughput'?",
    "settings: [a]": "p.yaml:3: settings: must be a mapping of names to values, not ['a'] (a list)",
    "criteria: [loss_falls]": "p.yaml:3: criteria[0]: must be a mapping of keys to values, not 'loss_falls' (text)",
    "timing: {window: 100}": "p.yaml:3: timing.window: must be text, not 100 (a whole number); put it in quotes",
    "mode: A B": "p.yaml:3: mode: 'A B' does not fit; expected small letters, digits, _ and -",
    "budget: 2 hours": "p.yaml:3: budget: '2 hours' is not a duration: write for example 90s, 15m, 2h or 1h30m",
    "prefix: " + "x" * 70: "p.yaml:3: prefix: longer than 60 characters",
}
NOT_BUILT = {
    "price_per_gpu_hour: 2.5": (
        "price_per_gpu_hour: is a known key that is not built yet; leave it out (multiply the duration of a run by your price meanwhile)"
    ),
    "place: {kind: slurm}": (
        "place.kind: 'slurm' is known but not built yet; use `kind: pernode` within a job of several nodes, `kind: local` on one"
    ),
}


@pytest.mark.parametrize("line", TYPES_AND_KEYS)
def test_a_wrong_key_or_type_is_named_with_its_line(line: str, complaint: Callable[..., str]) -> None:
    assert complaint(f"{HEAD}{line}\n") == TYPES_AND_KEYS[line]


@pytest.mark.parametrize("line", NOT_BUILT)
def test_what_is_not_built_yet_is_refused_by_name(line: str, complaint: Callable[..., str]) -> None:
    assert complaint(f"{HEAD}{line}\n") == f"p.yaml:3: {NOT_BUILT[line]}"


def test_no_unbuilt_limit_is_taken_in_silence(complaint: Callable[..., str]) -> None:
    assert "limits.restarts: is a known key that is not built yet; leave it out" in complaint(f"{HEAD}limits: {{restarts: 1}}\n")


@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
def test_no_unbuilt_place_is_taken_in_silence(kind: str, complaint: Callable[..., str]) -> None:
    assert f"'{kind}' is known but not built yet" in complaint(f"{HEAD}place: {kind}\n")


def test_required_keys(complaint: Callable[..., str]) -> None:
    assert complaint("workload: dummy\n") == "p.yaml:1: name: is required and missing"
    assert complaint("name: x\n") == "p.yaml:1: workload: is required and missing"


def test_the_first_of_several_mistakes_is_told(complaint: Callable[..., str]) -> None:
    assert complaint(f"{HEAD}repeats: no\nordr: nested\n") == "p.yaml:3: repeats: must be a whole number, not 'no' (text)"


def test_a_number_in_exponent_form_is_a_number(plan_file: Callable[..., Path]) -> None:
    plan = load_plan(plan_file("name: x\nworkload: tiny_lm\nsettings: {lr: 1e-3}\nlimits: {run_s: 1e2}\n"))

    assert plan.settings == {"lr": 0.001}
    assert plan.limits.run_s == 100.0


def test_short_and_long_forms_are_one_plan(plan_file: Callable[..., Path]) -> None:
    short = load_plan(plan_file("name: x\nworkload: dummy\nlauncher: torchrun\nplace: local\naxes: {micro_batch: [8, 16]}\n", "short.yaml"))
    long = load_plan(
        plan_file(
            "name: x\nworkload: {module: dummy}\nlauncher: {kind: torchrun}\nplace: {kind: local}\naxes: {micro_batch: {values: [8, 16]}}\n"
        )
    )

    assert short == long


def test_a_mapping_whose_keys_are_all_commented_out_is_empty(plan_file: Callable[..., Path]) -> None:
    plan = load_plan(plan_file(f"{HEAD}axes:\n#  micro_batch: [8]\nenv:\nlimits:\n"))
    assert (plan.axes, plan.env, plan.limits.start_s) == ({}, {}, 900.0)


def test_a_mapping_is_checked_as_a_file_is() -> None:
    with pytest.raises(PlanError, match=r"^the command: repeat: unknown key; did you mean 'repeats'\?$"):
        plan_from_mapping({"name": "x", "workload": "dummy", "repeat": 2}, "the command")
    with pytest.raises(PlanError, match="only a plan file can extend another"):
        plan_from_mapping({"name": "x", "workload": "dummy", "extends": "y.yaml"}, "the command")


def test_budget_takes_a_duration() -> None:
    assert plan_from_mapping({"name": "x", "workload": "dummy", "budget": "1h30m"}, "").budget == 5400.0
    assert plan_from_mapping({"name": "x", "workload": "dummy", "budget": 60}, "").budget == 60.0


def test_values_of_an_axis_typed_on_the_command_line() -> None:
    assert parse_scalars("8,16", "-P") == [8, 16]
    assert parse_scalars("1e-3, bf16, true", "-P") == [0.001, "bf16", True]
    assert parse_scalars("[a, b]", "-P") == ["a", "b"]
    with pytest.raises(PlanError, match="must be values with commas between them"):
        parse_scalars("[1], 2", "-P x=[1], 2")
