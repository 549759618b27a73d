"""Keys that contradict each other, axes and bundles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seatrial.core.errors import PlanError
from seatrial.plan.checks import (
    RUN_NAMES,
    SET_FOR_EACH_RANK,
    check_axes,
    check_plan,
)
from seatrial.plan.load import load_plan
from seatrial.plan.schema import Axis, Place, Plan, Workload
from seatrial.records.plan import CampaignPlan
from tests.facts import states

HEAD = "name: x\nworkload: dummy\n"
SCRIPT = 'name: x\nworkload: {script: t.py, args: ["--bs", "{bs}"]}\n'

BUNDLED = {
    "axes: {micro_batch: []}": "axes.micro_batch: has no values",
    "axes: {micro_batch: [8, 8]}": "axes.micro_batch[1]: the value 8 is listed twice",
    "axes: {step_ms: [8, 8.0]}": "axes.step_ms[1]: the value 8.0 is listed twice: the setting is a float",
    "axes: {micro_batch: 8}": "axes.micro_batch: must be a list, as in [a, b], not 8 (a whole number)",
    "axes: {micro_batch: [8, [9]]}": "axes.micro_batch[1]: must be one value (text, number, true or false), not a list",
    "axes: {micro-batch: [8]}": "axes.micro-batch: an axis name may only contain letters, digits and _",
    "axes: {group: [8]}": "axes.group: {group} is filled by Seatrial",
    "axes: {micro_bath: [8]}": "axes.micro_bath: unknown setting; did you mean 'micro_batch'?",
    "axes: {micro_batch: [8, x]}": "axes.micro_batch[1]: must be a whole number, not 'x' (text)",
    "axes: {place.ranks: [1, 0]}": "axes.place.ranks[1]: must be a number of ranks, 1 or more, not 0",
    "axes: {place.rank: [1]}": "axes.place.rank: unknown axis; did you mean 'place.ranks'?",
    "axes: {env.A-B: [1]}": "axes.env.A-B: is not a name for an environment variable (letters, digits and _)",
    "{settings: {micro_batch: 4}, axes: {micro_batch: [8]}}": "axes.micro_batch: is fixed by `settings.micro_batch` and varied as an axis",
    "{place: {ranks: 2}, axes: {place.ranks: [1]}}": "axes.place.ranks: is fixed by `place.ranks` and varied as an axis",
    "{steps: 4, axes: {steps: [8]}}": "axes.steps: is fixed by `steps` and varied as an axis",
    "{env: {A: 4}, axes: {env.A: [8]}}": "axes.env.A: is fixed by `env.A` and varied as an axis",
    "axes: {micro_batch: {label: a, values: [8]}, num_workers: {label: a, values: [0]}}": "axes.num_workers.label: 'a' is the label of",
    "settings: {micro_batches: 3}": "settings.micro_batches: unknown setting; did you mean 'micro_batch'?",
    "settings: {warmup_steps: -1}": "settings.warmup_steps: warmup_steps is -1",
    "axes: {warmup_steps: [1, -1]}": "axes.warmup_steps: warmup_steps is -1",
    "{settings: {steps: 3}, steps: 4}": "steps: 4 here and 3 in settings",
    "lane: {micro_bach: 8}": "lane.micro_bach: is neither an axis nor a setting here; did you mean 'micro_batch'?",
    "lane: {micro_batch: '8'}": "lane.micro_batch: must be a whole number, not '8' (text)",
    "place: {include: 'node1:0,1'}": "place.include: 'node1' is another host",
    "place: {include: 'localhost:0,1', ranks: 3}": "place.ranks: 3 ranks, but include names 2 GPUs (localhost:0,1)",
    "{place: {include: 'localhost:0,1'}, axes: {place.ranks: [2, 4]}}": "axes.place.ranks: 4 ranks, but include names 2 GPUs",
    "{place: {include: 'localhost:0'}, env: {CUDA_VISIBLE_DEVICES: 1}}": "env.CUDA_VISIBLE_DEVICES: is set from place.include",
    "env: {A-B: 1}": "env.A-B: is not a name for an environment variable (letters, digits and _)",
    "env: {SEATRIAL_RUN_DIR: x}": "env.SEATRIAL_RUN_DIR: is set for each rank at its start",
    "{launcher: torchrun, env: {RANK: 0}}": "env.RANK: is set for each rank at its start",
    "env: {A: true}": 'env.A: must be text: put it in quotes, "true"',
    "launcher: {kind: torchrun, args: [--nproc-per-node=2]}": "launcher.args[0]: '--nproc-per-node=2' is set by Seatrial: use place.ranks",
    "launcher: command": "launcher.kind: 'command' starts a program of your own",
    "launcher: {kind: deepspeed, args: [--num_gpus=2]}": "launcher.args[0]: '--num_gpus=2' is set by Seatrial: use place.ranks",
    "launcher: {kind: deepspeed, args: [--save_pid, -i, 'localhost:0']}": "launcher.args[1]: '-i' is set by Seatrial: use place.include",
    "{launcher: deepspeed, place: {include: 'localhost:GPU-0a'}}": "place.include: launcher deepspeed takes GPUs by number, not 'GPU-0a'",
    "{launcher: deepspeed, place: {include: 'localhost:3,1'}}": "place.include: launcher deepspeed takes GPUs in rising order",
    "{launcher: deepspeed, env: {RANK: 0}}": "env.RANK: is set for each rank at its start",
    "axes: {v: {bundles: {a: {micro_batch: 4}}, values: [1]}}": "axes.v: `values` cannot be combined with `bundles`, whose names are used",
    "axes: {v: {label: w, bundles: {a: {micro_batch: 4}}}}": "axes.v: `label` cannot be combined with `bundles`, whose names are used as",
    "axes: {place.ranks: {bundles: {a: {micro_batch: 4}}}}": "axes.place.ranks: takes values, not bundles",
    "axes: {v: {bundles: {a b: {micro_batch: 4}}}}": "axes.v.bundles.a b: a bundle name may only contain letters, digits and . _ + -,",
    "axes: {v: {bundles: {a: {}}}}": "axes.v.bundles.a: is empty",
    "axes: {v: {bundles: {a: {seed: 1}, A: {seed: 2}}}}": "axes.v: two of its values would both be named A",
    "axes: {v: {bundles: {a: {seed: 1}, a_b: {seed: 2}}}, w: {bundles: {b_c: {micro_batch: 8}, c: {micro_batch: 9}}}}": (
        "axes.v: two of its values would both be named a_b_c"
    ),
    "axes: {v: {bundles: {a: {micro_batch: 4}, b: {micro_batch: 4, seed: 1}}}}": "axes.v.bundles.b: 'seed' is in only one of 'a' and 'b'",
    "axes: {v: {bundles: {a: {micro_batsh: 4}}}}": "axes.v.bundles.a.micro_batsh: unknown setting; did you mean 'micro_batch'?",
    "axes: {v: {bundles: {a: {micro_batch: x}}}}": "axes.v.bundles.a.micro_batch: must be a whole number, not 'x' (text)",
    "{settings: {micro_batch: 2}, axes: {v: {bundles: {a: {micro_batch: 4}}}}}": "axes.v.bundles.a.micro_batch: is fixed by",
    "axes: {v: {bundles: {a: {micro_batch: 4}}}, micro_batch: [2]}": "axes.v.bundles.a.micro_batch: is varied by axis 'micro_batch' too",
    "axes: {v: {bundles: {a: {micro_batch: 4}}}, w: {bundles: {b: {micro_batch: 4}}}}": "axes.w.bundles.b.micro_batch: is varied by axis",
    "place: {port: 29500, port_base: 29600}": "place.port_base: cannot be combined with place.port",
    "{launcher: {kind: deepspeed, args: [--master_port=29500]}, place: {port: 29500}}": "place.port: cannot be combined with the port in",
    "timing: {window: '200:100'}": "timing.window: '200:100' is empty: the first step must be below the last",
    "timing: {window: soon}": "timing.window: 'soon' does not fit",
    "{steps: 10, timing: {log_every: 50}}": "timing.log_every: 50 is larger than steps (10): no timing point would be recorded",
    "criteria: [{metric: loss_falls, at_most: 0}]": "criteria[0]: loss_falls takes no bound",
    "criteria: [{metric: startup_s, scope: campaign, at_most: 1}]": "criteria[0].scope: startup_s has no scope 'campaign'; known:",
    "criteria: [{metric: startup_s, at_least: 2, at_most: 1}]": "criteria[0]: at_least 2.0 is above at_most 1.0: nothing could pass",
    "output: 'out/{tme}'": "output: {tme} cannot stand here",
    "output: ''": "output: is empty",
    "workload: {module: dummy, args: [x]}": "workload.args: is for scripts of your own",
    "workload: {script: t.py, module: dummy}": "workload: names both `module` and `script`",
    "workload: {args: []}": "workload: names neither `module` nor `script`",
    "workload: tiny_ml": "workload.module: no workload 'tiny_ml'; did you mean 'tiny_lm'?",
}
OF_SCRIPTS = {
    "{}": "workload.args[1]: {bs} is not an axis or setting of the plan; known: group, repeat, run, seed (for braces of your own write {{",
    "axes: {bs: [8], nw: [2]}": "axes.nw: nothing uses it: put {nw} into workload.args where its value belongs, or remove the axis",
    "axes: {bs: [8, '8']}": "axes.bs[1]: the value '8' is listed twice",
    "{settings: {a: 1}, axes: {bs: [8]}}": "settings.a: nothing uses it: put {a} into workload.args where its value belongs, or remove it",
    "{settings: {run: 1}, axes: {bs: [8]}}": "settings.run: {run} is filled by Seatrial",
    "{settings: {steps: 1}, axes: {bs: [8]}}": "settings.steps: belongs to the plan's own key `steps`",
    "{axes: {v: {bundles: {a: {nw: 1}}}, bs: [8]}}": "axes.v.bundles.a.nw: nothing uses it: put {nw} into workload.args where its value",
    "{axes: {v: {bundles: {a: {seed: 1}}}, bs: [8]}}": "axes.v.bundles.a.seed: {seed} is filled by Seatrial",
    "{settings: {l-r: 1}, axes: {bs: [8]}}": "settings.l-r: may only contain letters, digits and _",
    "workload: {script: t.py, args: ['{']}": "workload.args[0]: a lone '{' in '{': write '{{' for the brace itself",
    "workload: {script: t.py, args: ['{steps}']}": "workload.args[0]: {steps} cannot be filled: the plan sets no `steps`",
    "workload: {script: ' '}": "workload.script: is empty",
    "workload: {script: t.py, reads: hftrainer}": "workload.reads: unknown log format 'hftrainer'; did you mean 'hf_trainer'?",
    "{workload: {script: t.py, samples_per_step: '{bs}'}, axes: {bs: [8]}}": "axes.bs: nothing uses it: put {bs} into workload.args where",
    "{axes: {bs: [8, x]}, workload: {script: t.py, args: ['{bs}'], samples_per_step: '{bs}'}}": "workload.samples_per_step: {bs} is 'x'",
    "workload: {script: t.py, samples_per_step: [8]}": "workload.samples_per_step: must be a number above zero, or a product or sum",
    "workload: {script: t.py, tokens_per_step: 'bs*2'}": "workload.tokens_per_step: 'bs*2' cannot be read from 'bs*2' on: write {bs}",
    "workload: {script: t.py, tokens_per_step: '2*('}": "workload.tokens_per_step: '2*(' ends too early",
    "workload: {script: t.py, tokens_per_step: '__import__(2)'}": "workload.tokens_per_step: '__import__(2)' cannot be read from",
    "{axes: {bs: [8]}, workload: {script: t.py, args: ['{bs}'], tokens_per_step: '{bz}*64'}}": (
        "workload.tokens_per_step: {bz} is not an axis or setting of the plan; did you mean 'bs'?"
    ),
    "{axes: {bs: [8, 2.5]}, workload: {script: t.py, args: ['{bs}'], tokens_per_step: '{bs}*64'}}": (
        "workload.tokens_per_step: {bs} is '2.5' in one group; it must be a whole number"
    ),
    "{axes: {bs: [8, 0]}, workload: {script: t.py, args: ['{bs}'], tokens_per_step: '{bs}*64'}}": (
        "workload.tokens_per_step: {bs}*64 is 0 in one group; it must be above zero"
    ),
    "{axes: {hub: [none, hf_abcdefghijklmnop]}, workload: {script: t.py, args: ['{hub}']}}": "axes.hub[1]: looks like a secret, and an",
    "{launcher: {kind: command, args: [-u]}, axes: {bs: [8]}}": "launcher.args: has no meaning for launcher 'command'",
}


def _text(head: str, line: str) -> str:
    """`line` after `head`; a flow mapping stands for several keys, and a workload of its own replaces the head's."""
    parts = _split_top(line[1:-1]) if line.startswith("{") else [line]
    own_workload = any(part.startswith("workload:") for part in parts)
    return "\n".join(["name: x", *([] if own_workload else head.splitlines()[1:]), *parts]) + "\n"


def _split_top(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()]


def _without_place(message: str) -> str:
    place, _, rest = message.partition(": ")
    assert place.startswith("p.yaml:"), message
    return rest


@pytest.mark.parametrize("line", BUNDLED)
def test_keys_of_a_bundled_workload_that_contradict_each_other(line: str, message_of: Callable[..., str]) -> None:
    assert _without_place(message_of(_text(HEAD, line))).startswith(BUNDLED[line])


@pytest.mark.parametrize("line", OF_SCRIPTS)
def test_keys_of_a_script_that_contradict_each_other(line: str, message_of: Callable[..., str]) -> None:
    assert _without_place(message_of(_text(SCRIPT, line))).startswith(OF_SCRIPTS[line])


def test_the_line_of_a_value_in_a_long_list(message_of: Callable[..., str]) -> None:
    assert message_of("name: x\nworkload: dummy\naxes:\n  micro_batch:\n    - 8\n    - 16\n    - 8\n").startswith(
        "p.yaml:7: axes.micro_batch[2]: the value 8 is listed twice"
    )


def test_a_pattern_that_is_no_regular_expression(message_of: Callable[..., str]) -> None:
    message = message_of("name: x\nworkload:\n  script: t.py\n  patterns:\n    - 'step (?P<step>'\n")
    assert message.startswith("p.yaml:5: workload.patterns[0]: pattern 'step (?P<step>' is not a regular expression:")


def test_a_matrix_beyond_the_limit_is_refused_with_its_numbers(message_of: Callable[..., str]) -> None:
    values = ", ".join(str(number) for number in range(1, 12))
    message = message_of(f"{HEAD}axes: {{micro_batch: [{values}], num_workers: [{values}]}}\nrepeats: 100\n")
    assert message.startswith("p.yaml:3: axes: ")
    assert states(message, "micro_batch (11 values)", "num_workers (11 values)", "100 repeats", "12,100 runs", "10,000")


def test_the_least_that_a_plan_can_say_is_right() -> None:
    check_plan(Plan(name="x", workload=Workload(module="dummy")))
    check_plan(Plan(name="x", workload=Workload(script="t.py", args=[f"{{{name}}}" for name in RUN_NAMES])))


@pytest.mark.parametrize("name", SET_FOR_EACH_RANK)
def test_a_single_plain_process_may_set_any_variable(name: str) -> None:
    check_plan(Plan(name="x", workload=Workload(script="t.py"), env={name: "0"}))
    with pytest.raises(PlanError, match=f"^env.{name}: is set for each rank"):
        check_plan(Plan(name="x", workload=Workload(script="t.py"), env={name: "0"}, place=Place(ranks=2)))


BUNDLES = Axis(bundles={"old": {"lr": 0.1, "bs": 8}, "new": {"lr": 0.2, "bs": 16}})


def script(axes: dict[str, Axis] | None = None, **keys: Any) -> Plan:
    return Plan(name="x", workload=Workload(script="t.py"), axes=axes or {}, **keys)


def bundled(axes: dict[str, Axis], **keys: Any) -> Plan:
    return Plan(name="x", workload=Workload(module="dummy"), axes=axes, **keys)


def test_what_reaches_the_script_passes() -> None:
    check_axes(script({"bs": Axis(values=[8]), "env.A": Axis(values=[1]), "place.ranks": Axis(values=[1, 2])}), {"bs"})
    check_axes(script({"kind": BUNDLES}), {"lr", "bs"})
    check_axes(script(), set())
    check_axes(bundled({"micro_batch": Axis(values=[8, "8", True, 1])}), set())


Resolved = Callable[..., CampaignPlan]

VARIANTS = {"old_like": {"micro_batch": 4, "seed": 1}, "tuned": {"micro_batch": 8, "seed": 2}}
AB: dict[str, Any] = {
    "name": "x",
    "workload": "dummy",
    "axes": {"variant": {"bundles": VARIANTS}},
    "repeats": 2,
    "order": "rounds",
}
SCRIPT_VARIANTS: dict[str, Any] = {
    "name": "x",
    "workload": {"script": "train.py", "args": ["--bs={micro_batch}", "--lr={lr}", "--det={deterministic}", "--v={variant}"]},
    "settings": {"deterministic": True},
    "axes": {"variant": {"bundles": {"a": {"micro_batch": 4}, "b": {"micro_batch": 8}}}, "lr": [0.1]},
    "order": "nested",
}


def test_a_bundle_names_its_group_and_sets_its_settings(resolved: Resolved) -> None:
    plan = resolved(AB)

    assert [run.run for run in plan.runs] == ["old_like_r1", "tuned_r1", "old_like_r2", "tuned_r2"]
    assert plan.axes == {"variant": ("old_like", "tuned")}
    assert plan.runs[1].axes == {"variant": "tuned"}
    assert (plan.runs[1].settings["micro_batch"], plan.runs[1].settings["seed"]) == (8, 2)
    assert plan.runs[1].labels == {"variant": ""}


def test_two_bundles_with_the_same_settings_are_two_groups(resolved: Resolved) -> None:
    plan = resolved({**AB, "axes": {"variant": {"bundles": {"a": {"seed": 1}, "b": {"seed": 1}}}}})

    assert len({run.group_key for run in plan.runs}) == 2


def test_bundles_combine_with_axes_and_prefix(resolved: Resolved) -> None:
    plan = resolved({**AB, "axes": {**AB["axes"], "num_workers": [0, 2]}, "prefix": "ab", "repeats": 1})

    assert [run.group for run in plan.runs] == ["ab_old_like_nw0", "ab_old_like_nw2", "ab_tuned_nw0", "ab_tuned_nw2"]


def test_a_scripts_fixed_values_and_bundles_fill_its_arguments(resolved: Resolved) -> None:
    plan = resolved(SCRIPT_VARIANTS)

    assert plan.runs[0].workload.args == ("--bs=4", "--lr=0.1", "--det=true", "--v=a")
    assert plan.runs[0].settings == {"deterministic": True, "micro_batch": 4}
    assert plan.runs[0].axes == {"variant": "a", "lr": 0.1}


def test_a_bundle_may_be_on_the_lane(resolved: Resolved) -> None:
    plan = resolved({**AB, "lane": {"micro_batch": 8}})

    assert {run.group: run.lane for run in plan.runs} == {"old_like": False, "tuned": True}


def test_bundles_are_replaced_by_an_override(plan_file: Callable[..., Any]) -> None:
    path = plan_file("name: x\nworkload: dummy\naxes: {v: {bundles: {a: {seed: 1}}}}\n")

    assert load_plan(path, ["axes.v.bundles={b: {seed: 2}}"]).axes["v"].bundles == {"b": {"seed": 2}}
