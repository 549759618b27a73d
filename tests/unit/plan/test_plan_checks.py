"""Keys that are right by themselves and wrong together: one whole message for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seatrial.errors import PlanError
from seatrial.plan.checks import RUN_NAMES, SET_FOR_EACH_RANK, check, names_that_reach_the_run, templates
from seatrial.plan.schema import Launcher, Place, Plan, Workload

HEAD = "name: x\nworkload: dummy\n"
SCRIPT = 'name: x\nworkload: {script: t.py, args: ["--bs", "{bs}"]}\n'

BUNDLED = {
    "axes: {micro_batch: []}": "axes.micro_batch: has no values; list at least one, or remove the axis",
    "axes: {micro_batch: [8, 8]}": "axes.micro_batch[1]: the value 8 is there twice; repeats are asked for with `repeats`",
    "axes: {step_ms: [8, 8.0]}": "axes.step_ms[1]: the value 8.0 is there twice: the setting is a number with a point",
    "axes: {micro_batch: 8}": "axes.micro_batch: must be a list, as in [a, b], not 8 (a whole number)",
    "axes: {micro_batch: [8, [9]]}": "axes.micro_batch[1]: must be one value (text, number, true or false), not a list",
    "axes: {micro_batch: [.nan]}": "axes.micro_batch[0]: nan is not a number one can run with",
    "axes: {micro-batch: [8]}": "axes.micro-batch: an axis is named with letters, digits and _",
    "axes: {group: [8]}": "axes.group: {group} is filled by Seatrial; give the axis another name",
    "axes: {micro_bath: [8]}": "axes.micro_bath: unknown setting; did you mean 'micro_batch'?",
    "axes: {micro_batch: [8, x]}": "axes.micro_batch[1]: must be a whole number, not 'x' (text)",
    "axes: {place.ranks: [1, 0]}": "axes.place.ranks[1]: must be a number of ranks, 1 or more, not 0",
    "axes: {place.rank: [1]}": "axes.place.rank: unknown axis; did you mean 'place.ranks'?",
    "axes: {env.A-B: [1]}": "axes.env.A-B: is not a name for an environment variable (letters, digits and _)",
    "{settings: {micro_batch: 4}, axes: {micro_batch: [8]}}": (
        "axes.micro_batch: is fixed by `settings.micro_batch` and varied as an axis; keep one of the two"
    ),
    "{steps: 4, axes: {steps: [8]}}": "axes.steps: is fixed by `steps` and varied as an axis; keep one of the two",
    "{env: {A: 4}, axes: {env.A: [8]}}": "axes.env.A: is fixed by `env.A` and varied as an axis; keep one of the two",
    "axes: {micro_batch: {label: a, values: [8]}, num_workers: {label: a, values: [0]}}": (
        "axes.num_workers.label: 'a' is the label of axis 'micro_batch' too; give each its own"
    ),
    "settings: {micro_batches: 3}": "settings.micro_batches: unknown setting; did you mean 'micro_batch'?",
    "settings: {micro_batch: '8'}": "settings.micro_batch: must be a whole number, not '8' (text); take the quotes off",
    "settings: {slow_rank: 1.5}": "settings.slow_rank: must be a whole number or null, not 1.5 (a number)",
    "settings: {warmup_steps: -1}": "settings.warmup_steps: warmup_steps is -1; it must be 0 or more",
    "axes: {warmup_steps: [1, -1]}": "axes.warmup_steps: warmup_steps is -1; it must be 0 or more (with warmup_steps=-1)",
    "{settings: {steps: 3}, steps: 4}": "steps: 4 here and 3 in settings; keep one of the two",
    "lane: {micro_bach: 8}": "lane.micro_bach: is neither an axis nor a setting here; did you mean 'micro_batch'?",
    "lane: {micro_batch: 99}": "lane: no group is on the main lane (micro_batch = 99); name values that the plan runs",
    "place: {include: 'node1:0,1'}": (
        "place.include: 'node1' is another host; write `kind: hostfile` to run on those of a hostfile, or localhost:0,1 for GPUs of this "
        "machine"
    ),
    "place: {include: 'localhost@node2:0'}": (
        "place.include: 'node2' is another host; write `kind: hostfile` to run on those of a hostfile, or localhost:0,1 for GPUs of this "
        "machine"
    ),
    "place: {include: 'localhost:0@localhost:1'}": (
        "place.include: 'localhost:0@localhost:1' names several hosts that are all this machine; write localhost:0,1"
    ),
    "place: {include: 'localhost:0,a'}": (
        "place.include: 'a' is not a GPU id in 'localhost:0,a'; write numbers with commas between them, localhost:0,1"
    ),
    "place: {include: localhost}": "place.include: 'localhost' names no GPUs; write localhost:0 or localhost:0,1",
    "place: {include: 'localhost:1,1'}": "place.include: 'localhost:1,1' names a GPU twice",
    "place: {include: 'localhost:0,1', ranks: 3}": (
        "place.ranks: 3 ranks, but include names 2 GPUs (localhost:0,1); leave ranks out or make them agree"
    ),
    "{place: {include: 'localhost:0,1'}, axes: {place.ranks: [2, 4]}}": (
        "axes.place.ranks: 4 ranks, but include names 2 GPUs (localhost:0,1)"
    ),
    "{place: {include: 'localhost:0'}, env: {CUDA_VISIBLE_DEVICES: 1}}": (
        "env.CUDA_VISIBLE_DEVICES: is set from place.include; keep one of the two"
    ),
    "env: {A-B: 1}": "env.A-B: is not a name for an environment variable (letters, digits and _)",
    "env: {SEATRIAL_RUN_DIR: x}": "env.SEATRIAL_RUN_DIR: is set for each rank when it is started; leave it out",
    "{launcher: torchrun, env: {RANK: 0}}": "env.RANK: is set for each rank when it is started; leave it out",
    "env: {A: true}": 'env.A: must be text: put it in quotes, "true"',
    "launcher: {kind: torchrun, args: [--nproc-per-node=2]}": (
        "launcher.args[0]: '--nproc-per-node=2' is Seatrial's to give: place.ranks says how many ranks there are"
    ),
    "launcher: command": "launcher.kind: 'command' starts a program of your own; a bundled workload needs python, torchrun or deepspeed",
    "launcher: {kind: deepspeed, args: [--num_gpus=2]}": (
        "launcher.args[0]: '--num_gpus=2' is Seatrial's to give: place.ranks says how many ranks there are"
    ),
    "launcher: {kind: deepspeed, args: [--save_pid, -i, 'localhost:0']}": (
        "launcher.args[1]: '-i' is Seatrial's to give: place.include says which GPUs there are"
    ),
    "launcher: {kind: deepspeed, args: [-H, hosts]}": (
        "launcher.args[0]: '-H' is not taken: `place: {kind: hostfile, hostfile: FILE}` says which hosts there are"
    ),
    "launcher: {kind: deepspeed, args: [--log_level, error]}": (
        "launcher.args[0]: '--log_level' is not taken: Seatrial counts deepspeed's own lines of the ranks that ended well, since its exit "
        "code 0 does not tell; leave it out"
    ),
    "{launcher: deepspeed, place: {include: 'localhost:GPU-0a'}}": (
        "place.include: launcher deepspeed takes GPUs by number, not 'GPU-0a'; write localhost:0,1 (`nvidia-smi -L` lists them)"
    ),
    "{launcher: deepspeed, place: {include: 'localhost:3,1'}}": (
        "place.include: launcher deepspeed takes GPUs in rising order; write localhost:1,3"
    ),
    "{launcher: deepspeed, env: {RANK: 0}}": "env.RANK: is set for each rank when it is started; leave it out",
    "axes: {v: {bundles: {a: {micro_batch: 4}}, values: [1]}}": (
        "axes.v: `values` has no meaning beside `bundles`, whose names stand for themselves"
    ),
    "axes: {v: {label: w, bundles: {a: {micro_batch: 4}}}}": (
        "axes.v: `label` has no meaning beside `bundles`, whose names stand for themselves"
    ),
    "axes: {place.ranks: {bundles: {a: {micro_batch: 4}}}}": (
        "axes.place.ranks: takes values, not bundles; name the axis of bundles with a word of your own"
    ),
    "axes: {v: {bundles: {a b: {micro_batch: 4}}}}": (
        "axes.v.bundles.a b: a bundle is named with letters, digits and . _ + -, as it stands in names of folders"
    ),
    "axes: {v: {bundles: {a: {}}}}": "axes.v.bundles.a: is empty; name the settings it stands for",
    "axes: {v: {bundles: {a: {micro_batch: 4}, b: {micro_batch: 4, seed: 1}}}}": (
        "axes.v.bundles.b: 'seed' stands in only one of 'a' and 'b'; give each bundle the same settings"
    ),
    "axes: {v: {bundles: {a: {micro_batsh: 4}}}}": "axes.v.bundles.a.micro_batsh: unknown setting; did you mean 'micro_batch'?",
    "axes: {v: {bundles: {a: {micro_batch: x}}}}": "axes.v.bundles.a.micro_batch: must be a whole number, not 'x' (text)",
    "{settings: {micro_batch: 2}, axes: {v: {bundles: {a: {micro_batch: 4}}}}}": (
        "axes.v.bundles.a.micro_batch: is fixed by `settings.micro_batch` and varied as an axis; keep one of the two"
    ),
    "axes: {v: {bundles: {a: {micro_batch: 4}}}, micro_batch: [2]}": (
        "axes.v.bundles.a.micro_batch: is varied by axis 'micro_batch' too; keep one of the two"
    ),
    "axes: {v: {bundles: {a: {micro_batch: 4}}}, w: {bundles: {b: {micro_batch: 4}}}}": (
        "axes.w.bundles.b.micro_batch: is varied by axis 'v' too; keep one of the two"
    ),
    "place: {port: 29500, port_base: 29600}": "place.port_base: has no meaning beside place.port; keep one of the two",
    "{launcher: {kind: deepspeed, args: [--master_port=29500]}, place: {port: 29500}}": (
        "place.port: has no meaning beside the port in launcher.args; keep one of the two"
    ),
    "{launcher: deepspeed, place: {kind: hostfile, ranks: 4}}": (
        "place.hostfile: name the file that lists the hosts, such as /etc/deepspeed/hostfile"
    ),
    "{launcher: deepspeed, place: {hostfile: hosts}}": ("place.hostfile: belongs to `kind: hostfile`; leave it out to run on this machine"),
    "timing: {window: '200:100'}": "timing.window: '200:100' is empty: the first step must be below the last",
    "timing: {window: soon}": 'timing.window: \'soon\' does not fit; expected "auto", "100:", "100:900" or ":900"',
    "{steps: 10, timing: {log_every: 50}}": ("timing.log_every: 50 is larger than steps (10): no timing point would be recorded; lower it"),
    "criteria: [{metric: failed_run, at_most: 0}]": "criteria[0].metric: unknown metric 'failed_run'; did you mean 'failed_runs'?",
    "criteria: [{metric: failed_runs}]": "criteria[0]: failed_runs needs a bound: add at_most or at_least",
    "criteria: [{metric: loss_falls, at_most: 0}]": "criteria[0]: loss_falls holds or does not; leave at_most and at_least out",
    "criteria: [{metric: startup_s, scope: campaign, at_most: 1}]": (
        "criteria[0].scope: startup_s is not looked at by 'campaign'; known: every_group, every_run, winner"
    ),
    "criteria: [{metric: startup_s, at_least: 2, at_most: 1}]": "criteria[0]: at_least 2.0 is above at_most 1.0: nothing could pass",
    "output: 'out/{tme}'": "output: {tme} cannot stand here; only {time} can",
    "output: ''": "output: is empty; name a folder or leave the key out",
    "workload: {module: dummy, args: [x]}": (
        "workload.args: is for scripts of your own; a bundled workload takes `settings` and reports its steps itself"
    ),
    "workload: {module: dummy, samples_per_step: 8}": (
        "workload.samples_per_step: is for scripts of your own; a bundled workload takes `settings` and reports its steps itself"
    ),
    "workload: {script: t.py, module: dummy}": (
        "workload: names both `module` and `script`; give a bundled workload or a script of your own"
    ),
    "workload: {args: []}": "workload: names neither `module` nor `script`; give a bundled workload or a script of your own",
    "workload: tiny_ml": "workload.module: there is no workload 'tiny_ml'; did you mean 'tiny_lm'?",
}
OF_SCRIPTS = {
    "{}": (
        "workload.args[1]: {bs} is no axis or setting of the plan; known: group, repeat, run, seed (for braces of your own write {{ and }})"
    ),
    "axes: {bs: [8], nw: [2]}": "axes.nw: nothing uses it: put {nw} into workload.args where its value belongs, or remove the axis",
    "axes: {bs: [8, '8']}": "axes.bs[1]: the value '8' is there twice; repeats are asked for with `repeats`",
    "{settings: {a: 1}, axes: {bs: [8]}}": (
        "settings.a: nothing uses it: put {a} into workload.args where its value belongs, or remove it"
    ),
    "{settings: {bs: 1}, axes: {bs: [8]}}": "axes.bs: is fixed by `settings.bs` and varied as an axis; keep one of the two",
    "{settings: {run: 1}, axes: {bs: [8]}}": "settings.run: {run} is filled by Seatrial; give it another name",
    "{settings: {steps: 1}, axes: {bs: [8]}}": "settings.steps: belongs to the plan's own key `steps`",
    "{axes: {v: {bundles: {a: {nw: 1}}}, bs: [8]}}": (
        "axes.v.bundles.a.nw: nothing uses it: put {nw} into workload.args where its value belongs, or remove it"
    ),
    "workload: {script: t.py, args: '--bs 8'}": "workload.args: must be a list, as in [a, b], not '--bs 8' (text)",
    "workload: {script: t.py, args: ['{']}": "workload.args[0]: a lone '{' in '{': write '{{' for the brace itself",
    "workload: {script: t.py, args: ['{steps}']}": "workload.args[0]: {steps} cannot be filled: the plan does not say `steps`",
    "workload: {script: ' '}": "workload.script: is empty; name a script or program",
    "workload: {script: t.py, reads: hftrainer}": "workload.reads: unknown log format 'hftrainer'; did you mean 'hf_trainer'?",
    "{workload: {script: t.py, samples_per_step: '{bs}'}, axes: {bs: [8]}}": (
        "axes.bs: nothing uses it: put {bs} into workload.args where its value belongs, or remove the axis"
    ),
    "{axes: {bs: [8, x]}, workload: {script: t.py, args: ['{bs}'], samples_per_step: '{bs}'}}": (
        "workload.samples_per_step: {bs} is 'x' in one group; it must be a number above zero in all of them"
    ),
    "workload: {script: t.py, samples_per_step: '{bs} * 2'}": (
        "workload.samples_per_step: must be a number above zero or one placeholder such as \"{bs}\", not '{bs} * 2'"
    ),
    "{axes: {hub: [none, hf_abcdefghijklmnop]}, workload: {script: t.py, args: ['{hub}']}}": (
        "axes.hub[1]: looks like a secret, and an axis's values become folder names; put it into the environment and leave it out of "
        "the plan"
    ),
    "{launcher: {kind: command, args: [-u]}, axes: {bs: [8]}}": (
        "launcher.args: has no meaning for launcher 'command'; put the words in workload.script and workload.args"
    ),
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
def test_keys_of_a_bundled_workload_that_cannot_stand_together(line: str, complaint: Callable[..., str]) -> None:
    assert _without_place(complaint(_text(HEAD, line))) == BUNDLED[line]


@pytest.mark.parametrize("line", OF_SCRIPTS)
def test_keys_of_a_script_that_cannot_stand_together(line: str, complaint: Callable[..., str]) -> None:
    assert _without_place(complaint(_text(SCRIPT, line))) == OF_SCRIPTS[line]


def test_the_line_of_a_value_in_a_long_list(complaint: Callable[..., str]) -> None:
    assert complaint("name: x\nworkload: dummy\naxes:\n  micro_batch:\n    - 8\n    - 16\n    - 8\n").startswith(
        "p.yaml:7: axes.micro_batch[2]: the value 8 is there twice"
    )


def test_a_pattern_that_is_no_regular_expression(complaint: Callable[..., str]) -> None:
    message = complaint("name: x\nworkload:\n  script: t.py\n  patterns:\n    - 'step (?P<step>'\n")
    assert message.startswith("p.yaml:5: workload.patterns[0]: pattern 'step (?P<step>' is not a regular expression:")


def test_a_matrix_beyond_the_limit_is_refused_with_its_numbers(complaint: Callable[..., str]) -> None:
    values = ", ".join(str(number) for number in range(1, 12))
    message = complaint(f"{HEAD}axes: {{micro_batch: [{values}], num_workers: [{values}]}}\nrepeats: 100\n")
    assert message == (
        "p.yaml:3: axes: micro_batch (11 values) × num_workers (11 values) × 100 repeats is 12,100 runs, more than 10,000; "
        "take values or repeats away"
    )


def test_what_a_single_plain_process_may_set(resolved: Callable[..., object]) -> None:
    assert resolved({"name": "x", "workload": {"script": "t.py"}, "env": {"RANK": 0, "WORLD_SIZE": 1}})


def whole(**keys: object) -> Plan:
    workload = Workload(script="{run}.py", args=["--bs", "{bs}"], env={"A": "{lr}"}, samples_per_step="{n}", tokens_per_step=7)
    return Plan(name="x", workload=workload, launcher=Launcher(kind="torchrun", args=["--x={seed}"]), env={"B": "{group}"}, **keys)


def test_every_text_with_placeholders_is_found_with_its_key() -> None:
    assert dict(templates(whole())) == {
        ("workload", "script"): "{run}.py",
        ("workload", "args", 0): "--bs",
        ("workload", "args", 1): "{bs}",
        ("launcher", "args", 0): "--x={seed}",
        ("workload", "env", "A"): "{lr}",
        ("env", "B"): "{group}",
        ("workload", "samples_per_step"): "{n}",
    }
    assert list(templates(Plan(name="x", workload=Workload(module="dummy")))) == []


def test_what_only_counts_samples_reaches_no_run() -> None:
    assert names_that_reach_the_run(whole()) == {"run", "bs", "seed", "lr", "group"}


def test_the_least_that_a_plan_can_say_is_right() -> None:
    check(Plan(name="x", workload=Workload(module="dummy")))
    check(Plan(name="x", workload=Workload(script="t.py", args=[f"{{{name}}}" for name in RUN_NAMES])))


@pytest.mark.parametrize("name", SET_FOR_EACH_RANK)
def test_a_single_plain_process_may_be_told_what_it_likes(name: str) -> None:
    check(Plan(name="x", workload=Workload(script="t.py"), env={name: "0"}))
    with pytest.raises(PlanError, match=f"^env.{name}: is set for each rank"):
        check(Plan(name="x", workload=Workload(script="t.py"), env={name: "0"}, place=Place(ranks=2)))
