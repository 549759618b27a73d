"""Loading a plan: what its author reads for each mistake, short forms, `extends` and `--set`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.errors import PlanError, UsageError
from seatrial.plan.load import (
    LONGEST_CHAIN,
    apply_override,
    expand_short_forms,
    load_plan,
    parse_scalars,
    plan_from_mapping,
    read_with_bases,
)
from seatrial.plan.matrix import sizes_text, value_names
from seatrial.plan.reference import json_schema
from seatrial.plan.schema import RANK_MEANINGS, Plan, RankBy
from seatrial.plan.yaml_text import Locations
from seatrial.records.plan import CampaignPlan
from tests.facts import states

HEAD = "name: x\nworkload: dummy\n"
SCRIPT = 'name: x\nworkload: {script: t.py, args: ["--bs", "{bs}"]}\n'

TYPES_AND_KEYS = {
    "repeat: 2": "p.yaml:3: repeat: unknown key; did you mean 'repeats'?",
    "samples_per_step: 8": "p.yaml:3: samples_per_step: unknown key",
    "kind: local": "p.yaml:3: kind: unknown key",
    "quiet_s: 9": "p.yaml:3: quiet_s: unknown key",
    "at_most: 9": "p.yaml:3: at_most: unknown key",
    "limits: {repeats: 3}": "p.yaml:3: limits.repeats: unknown key",
    "axes: {micro_batch: {vals: [1]}}": "p.yaml:3: axes.micro_batch.vals: unknown key; did you mean 'values'?",
    "repeats: '2'": "p.yaml:3: repeats: must be a whole number, not '2' (text)",
    "repeats: true": "p.yaml:3: repeats: must be a whole number, not true (true or false)",
    "repeats: 0": "p.yaml:3: repeats: must be at least 1, not 0",
    "repeats: null": "p.yaml:3: repeats: must be a whole number, not null (nothing)",
    "stop_on_error: yes": "p.yaml:3: stop_on_error: must be true or false, not 'yes' (text)",
    "limits: {run_s: .inf}": "p.yaml:3: limits.run_s: must be a finite number, not inf",
    "limits: {run_s: 0}": "p.yaml:3: limits.run_s: must be above 0.0, not 0",
    "place: {port: 70000}": "p.yaml:3: place.port: must be at most 65535, not 70000",
    "budget: 0": "p.yaml:3: budget: must be a time above zero such as 90s, 15m or 2h, not 0",
    "limits: {start_s: 90s}": "p.yaml:3: limits.start_s: must be a number, not '90s' (text)",
    "limits: {stall: {factr: 3}}": "p.yaml:3: limits.stall.factr: unknown key; did you mean 'factor'?",
    "limits: {stall: {quiet_s: 60}}": "p.yaml:3: limits.stall.quiet_s: is for scripts of your own",
    "limits: {stack_signal: SIGUSR1}": "p.yaml:3: limits.stack_signal: unknown: 'SIGUSR1'; did you mean 'USR1'?",
    "limits: {stack_signal: KILL}": "p.yaml:3: limits.stack_signal: unknown: 'KILL'; known: IO, PWR, URG, USR1, USR2, WINCH",
    "limits: {memory_gib: 60}\ntelemetry: {host_s: null}": "p.yaml:3: limits.memory_gib: is judged by the samples of host_telemetry.csv,",
    "launcher: [a]": "p.yaml:3: launcher: must be a mapping of keys to values, not ['a'] (a list)",
    "launcher: torchrn": "p.yaml:3: launcher.kind: unknown: 'torchrn'; did you mean 'torchrun'?",
    "timing: {window: 100}": "p.yaml:3: timing.window: must be text, not 100 (a whole number)",
    "mode: A B": "p.yaml:3: mode: 'A B' does not fit",
    "budget: 2 hours": "p.yaml:3: budget: '2 hours' is not a duration: write for example 90s, 15m, 2h or 1h30m",
    "prefix: " + "x" * 70: "p.yaml:3: prefix: longer than 60 characters",
}
NOT_BUILT = {
    "price_per_gpu_hour: 2.5": "price_per_gpu_hour: is not supported yet",
    "limits: {restarts: 1}": "limits.restarts: is not supported yet",
    "place: kubernetes": "place.kind: 'kubernetes' is not supported yet",
}


@pytest.mark.parametrize("line", TYPES_AND_KEYS)
def test_a_wrong_key_or_type_is_named_with_its_line(line: str, message_of: Callable[..., str]) -> None:
    assert message_of(f"{HEAD}{line}\n").startswith(TYPES_AND_KEYS[line])


@pytest.mark.parametrize("line", NOT_BUILT)
def test_what_is_not_built_yet_is_refused_by_name(line: str, message_of: Callable[..., str]) -> None:
    assert message_of(f"{HEAD}{line}\n").startswith(f"p.yaml:3: {NOT_BUILT[line]}")


def test_required_keys(message_of: Callable[..., str]) -> None:
    assert message_of("workload: dummy\n") == "p.yaml:1: name: is required and missing"
    assert message_of("nme: x\nworkload: dummy\n") == "p.yaml:1: nme: unknown key; did you mean 'name'?", "the misspelt key comes first"
    assert message_of("name: x\n") == "p.yaml:1: workload: is required and missing"


def test_the_first_of_several_mistakes_is_reported(message_of: Callable[..., str]) -> None:
    assert message_of(f"{HEAD}repeats: no\nordr: nested\n") == "p.yaml:3: repeats: must be a whole number, not 'no' (text)"


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
    with pytest.raises(PlanError, match="must be comma-separated values"):
        parse_scalars("[1], 2", "-P x=[1], 2")


MessageOf = Callable[..., str]
SCRIPT_OF_V = "name: x\nworkload: {script: t.py, args: ['{v}']}\n"
TOO_LARGE = "an integer beyond 64 bits; make it smaller, or quote it as text"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: " + "[" * 60 + "]" * 60, "p.yaml:1: nested too deeply to be a plan"),
        ("\n".join(" " * depth + "a:" for depth in range(1_000)), "p.yaml:40: nested too deeply to be a plan"),
        ("name: [" + "a," * 200_000 + "]", "p.yaml:1: more than 30,000 values, too many for a plan"),
        (f"{SCRIPT_OF_V}steps: {'9' * 5000}\n", f"p.yaml:3: {TOO_LARGE}"),
        (f"{SCRIPT_OF_V}axes: {{v: [0x{'f' * 20}]}}\n", f"p.yaml:3: axes.v[0]: {TOO_LARGE}"),
        (f"{SCRIPT_OF_V}axes: {{v: [1e999]}}\n", "p.yaml:3: axes.v[0]: inf is not a finite number"),
        (f"{SCRIPT_OF_V}axes: {{v: [.NAN]}}\n", "p.yaml:3: axes.v[0]: nan is not a finite number"),
        ("name: a/../b\nworkload: dummy\n", "p.yaml:1: name: 'a/../b' does not fit; expected letters, digits and . _ + -"),
        ('name: "a\\e[31m"\nworkload: dummy\n', "p.yaml:1: name: contains the control character 0x1b; remove it"),
        (f'{SCRIPT_OF_V}axes: {{v: ["\\ud800"]}}\n', "p.yaml:3: axes.v[0]: contains bytes that are not UTF-8; write it in UTF-8"),
        (f'{SCRIPT_OF_V}"a\\e": 1\n', "p.yaml:3: 'a\\x1b': contains the control character 0x1b; remove it"),
        (f"{SCRIPT_OF_V}axes: {{v: [1], {'k' * 101}: [1]}}\n", f"p.yaml:3: axes.{'k' * 79}…: has 101 characters, more than the 100"),
        (f"{SCRIPT_OF_V}timing: {{window: '{'9' * 20}:'}}\n", f"p.yaml:3: timing.window: '{'9' * 20}:' does not fit; expected \"auto\""),
        (
            "name: x\nworkload: {script: t.py, patterns: ['(?P<step>a{99999999999})']}\n",
            "p.yaml:2: workload.patterns[0]: pattern '(?P<step>",
        ),
    ],
    ids=lambda value: value[:30],
)
def test_bad_plans_are_named_in_one_sentence(text: str, message: str, message_of: MessageOf) -> None:
    assert message_of(text).startswith(message)


def test_ten_million_runs_are_refused_before_they_are_made(message_of: MessageOf) -> None:
    axes = ", ".join(f"{name}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for name in "abcdefghijkl")
    message = message_of(
        f"name: x\nworkload: {{script: t.py, args: ['{{a}}{{b}}{{c}}{{d}}{{e}}{{f}}{{g}}{{h}}{{i}}{{j}}{{k}}{{l}}']}}\naxes: {{{axes}}}\n"
    )
    assert message.startswith("p.yaml:3: axes: a (10 values) × b (10 values) × ")
    assert states(message, "h (10 values)", "4 more axes", "1 repeat", "10^12 runs", "10,000")


def test_of_many_axes_the_largest_are_named() -> None:
    sizes = {**{f"a{number}": 1 for number in range(9)}, "largest": 500}
    assert sizes_text(sizes, 2).startswith("largest (500 values) × a0 (1 value) × ")
    assert sizes_text(sizes, 2).endswith(" × 2 more axes × 2 repeats")


def test_a_value_named_like_another_s_hash_is_distinguished() -> None:
    plain = value_names(["a b", "a/b"])
    names = value_names(["a b", "a/b", plain[0]])
    assert len(set(names)) == 3 and names[2] == plain[0]


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("https://example.com/x.yaml", "https://example.com/x.yaml is a URL"),
        (".", ". is not a file; the path is relative to ."),
        ('"a\\0b"', "contains the control character 0x00; remove it"),
        ("x" * 300, f"{'x' * 300} cannot be read: File name too long"),
        ("p.yaml", "circular `extends`: p.yaml → p.yaml"),
    ],
)
def test_what_cannot_be_extended(extends: str, message: str, message_of: MessageOf) -> None:
    assert message_of(f"name: x\nextends: {extends}\n").startswith(f"p.yaml:2: extends: {message}")


def test_a_folder_whose_name_is_no_text(tmp_path: Path, resolved: Callable[..., CampaignPlan]) -> None:
    with pytest.raises(UsageError, match=r"UTF-8.*rename"):
        resolved({"name": "x", "workload": {"script": "t.py"}}, cwd=tmp_path / "caf\udce9")


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"workload": "dummy"}, {"workload": {"module": "dummy"}}),
        ({"launcher": "torchrun"}, {"launcher": {"kind": "torchrun"}}),
        ({"place": "local"}, {"place": {"kind": "local"}}),
        ({"axes": {"bs": [8, 16]}}, {"axes": {"bs": {"values": [8, 16]}}}),
        ({"axes": {"bs": 8}}, {"axes": {"bs": {"values": 8}}}),
        ({"sentinel": 4}, {"sentinel": {"every": 4}}),
        ({"sentinel": True}, {"sentinel": True}),
        ({"criteria": [{"metric": "x", "baseline": "mb8"}]}, {"criteria": [{"metric": "x", "baseline": {"group": "mb8"}}]}),
        ({"criteria": ["nonsense"]}, {"criteria": ["nonsense"]}),
        ({"axes": None}, {"axes": {}}),
        ({"axes": "nonsense"}, {"axes": "nonsense"}),
        ({}, {}),
    ],
)
def test_each_short_form(short: dict[str, Any], long: dict[str, Any]) -> None:
    assert expand_short_forms(short, Locations()) == long
    assert expand_short_forms(long, Locations()) == long, "what is long already stays"


def test_what_was_given_is_not_changed() -> None:
    given = {"launcher": "torchrun", "axes": {"bs": [8]}}
    expand_short_forms(given, Locations())
    assert given == {"launcher": "torchrun", "axes": {"bs": [8]}}


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
    "limits..run_s=3": "--set limits..run_s=3: write KEY=VALUE",
    "tokens_per_step=3": "--set tokens_per_step=3: tokens_per_step: unknown key",
    "repeat=3": "--set repeat=3: repeat: unknown key; did you mean 'repeats'?",
    "repeats.x=3": "--set repeats.x=3: repeats.x: unknown key",
    "repeats=[": "--set repeats=[:1: not YAML: while parsing a flow node, expected the node content, but found '<stream end>'",
    "axes.micro_batch=[8,8]": "--set axes.micro_batch=[8,8]: axes.micro_batch[1]: the value 8 is listed twice",
    "axes.micro_bath=[8]": "--set axes.micro_bath=[8]: axes.micro_bath: unknown setting; did you mean 'micro_batch'?",
    "settings.micro_batch=8": "p.yaml:5: axes.micro_batch: is fixed by `settings.micro_batch` and varied as an axis",
    "extends=y.yaml": "--set extends=y.yaml: extends: a plan is chosen by its file, not by --set",
    "price_per_gpu_hour=1": "--set price_per_gpu_hour=1: price_per_gpu_hour: is not supported yet",
}


@pytest.mark.parametrize("override", TAKEN)
def test_a_key_is_set(override: str, plan_file: Callable[..., Path]) -> None:
    read, expected = TAKEN[override]
    assert read(load_plan(plan_file(TEXT), [override])) == expected


@pytest.mark.parametrize("override", REFUSED)
def test_a_key_that_cannot_be_set_names_the_option(override: str, message_of: Callable[..., str]) -> None:
    assert message_of(TEXT, override).startswith(REFUSED[override])


def test_a_value_where_keys_are_needed_is_reported() -> None:
    with pytest.raises(PlanError, match="'place' holds one value, not keys"):
        apply_override({"place": "local"}, Locations(), "place.ranks=2")


BASE = """\
name: base
workload: dummy
settings: {step_ms: 5, jitter_ratio: 0}
launcher: torchrun
axes:
  micro_batch: {label: batch, values: [8, 16]}
  num_workers: [0, 2]
criteria:
  - {metric: failed_runs, at_most: 0}
limits: {run_s: 60}
"""


def test_mappings_are_merged_and_everything_else_replaced(plan_file: Callable[..., Path]) -> None:
    plan_file(BASE, "shared/base.yaml")
    text = (
        "extends: shared/base.yaml\nname: child\nsettings: {step_ms: 9}\nlauncher: {args: [--max-restarts, 0]}\n"
        "axes: {micro_batch: [32]}\ncriteria: []\n"
    )
    plan = load_plan(plan_file(text))

    assert plan.name == "child"
    assert plan.settings == {"step_ms": 9, "jitter_ratio": 0}
    assert (plan.launcher.kind, plan.launcher.args) == ("torchrun", ["--max-restarts", "0"])
    assert {name: (axis.label, axis.values) for name, axis in plan.axes.items()} == {
        "micro_batch": (None, [32]),
        "num_workers": (None, [0, 2]),
    }
    assert plan.criteria == []
    assert plan.limits.run_s == 60


def test_another_workload_takes_the_place_of_the_one_beneath(plan_file: Callable[..., Path]) -> None:
    plan_file("name: base\nworkload: {module: dummy, env: {A: 1}}\n", "base.yaml")
    plan = load_plan(plan_file("extends: base.yaml\nworkload: {script: train.py}\n"))

    assert (plan.workload.module, plan.workload.script, plan.workload.env) == (None, "train.py", {"A": "1"})


def test_null_takes_a_value_back(plan_file: Callable[..., Path]) -> None:
    plan_file('name: base\nworkload: dummy\nplace: {include: "localhost:0"}\n', "base.yaml")
    plan = load_plan(plan_file("extends: base.yaml\nplace: {include: null, ranks: 4}\n"))

    assert (plan.place.include, plan.place.ranks) == (None, 4)


def test_an_error_points_into_the_file_that_holds_the_key(plan_file: Callable[..., Path]) -> None:
    plan_file("name: base\nworkload: dummy\n\nlimits:\n  run_s: 60\n  strt_s: 3\n", "base.yaml")
    with pytest.raises(PlanError) as caught:
        load_plan(plan_file("extends: base.yaml\nlimits: {run_s: 5}\n"))
    assert states(str(caught.value), "base.yaml:6: limits.strt_s: ", "'start_s'")

    plan_file("name: base\nworkload: dummy\nlimits: {run_s: 60}\n", "base.yaml")
    with pytest.raises(PlanError) as caught:
        load_plan(plan_file("extends: base.yaml\n\nlimits: {run_s: soon}\n"))
    assert str(caught.value) == "p.yaml:3: limits.run_s: must be a number, not 'soon' (text)"


def test_plans_that_extend_each_other_are_named(plan_file: Callable[..., Path]) -> None:
    plan_file("extends: c.yaml\n", "b.yaml")
    plan_file("extends: b.yaml\n", "c.yaml")
    with pytest.raises(PlanError) as caught:
        load_plan(plan_file("extends: b.yaml\n"))
    assert states(str(caught.value), "c.yaml:1: extends: ", "b.yaml → c.yaml → b.yaml")


def test_a_plan_that_is_not_there_and_a_name_that_is_none(plan_file: Callable[..., Path]) -> None:
    with pytest.raises(PlanError, match=r"^p.yaml:2: extends: .*gone.yaml"):
        load_plan(plan_file("name: x\nextends: gone.yaml\n"))
    with pytest.raises(PlanError, match=r"^p.yaml:1: extends: .*path of another plan"):
        load_plan(plan_file("extends: [a.yaml]\n"))


def test_a_chain_without_end_is_cut_off(plan_file: Callable[..., Path]) -> None:
    plan_file("name: last\n", f"{LONGEST_CHAIN + 1}.yaml")
    for number in range(1, LONGEST_CHAIN + 1):
        plan_file(f"extends: {number + 1}.yaml\n", f"{number}.yaml")
    with pytest.raises(PlanError, match=f"more than {LONGEST_CHAIN} plans extend one another"):
        read_with_bases(Path("1.yaml"))
    assert read_with_bases(Path("2.yaml"))[0] == {"name": "last"}


def test_every_key_is_described() -> None:
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        for key, entry in part["properties"].items():
            assert entry.get("description"), key
            assert entry["description"].endswith("."), key


def test_short_forms_are_taken() -> None:
    properties: dict[str, Any] = json_schema()["properties"]
    assert properties["launcher"]["anyOf"] == [{"$ref": "#/$defs/Launcher"}, {"enum": ["python", "torchrun", "deepspeed", "command"]}]
    assert properties["workload"]["anyOf"] == [{"$ref": "#/$defs/Workload"}, {"type": "string"}]
    assert properties["axes"]["additionalProperties"]["anyOf"][1]["type"] == "array"
    assert {"type": "integer", "minimum": 1} in properties["sentinel"]["anyOf"]


def test_criteria_are_listed_by_name() -> None:
    criterion = json_schema()["$defs"]["CriterionPart"]
    assert criterion["oneOf"] == [{"required": ["metric"]}, {"required": ["ready"]}]
    assert "failed_runs" in criterion["properties"]["metric"]["anyOf"][0]["enum"]
    assert "stage1_stability" in criterion["properties"]["ready"]["anyOf"][0]["enum"]
    assert {"type": "string"} in criterion["properties"]["baseline"]["anyOf"]


def test_every_order_has_a_meaning() -> None:
    assert set(RANK_MEANINGS) == set(RankBy.__args__)  # type: ignore[attr-defined]
