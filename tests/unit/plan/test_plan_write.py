"""The text `seatrial init` writes: whole, commented, and read back as the same plan."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from seatrial.plan.from_command import mapping_from_command
from seatrial.plan.load import load_plan, plan_from_mapping
from seatrial.plan.write import plan_yaml
from seatrial.plan.yaml_text import parse

GOLDEN = """\
# Made from: torchrun --nproc_per_node 2 train.py --batch-size 8 --num-workers=0 --lr 1e-3
# Note: look twice
# Look at the matrix with `seatrial plan show FILE`, run it with `seatrial run FILE`.

name: train

# What is run. {AXIS}, {steps}, {run}, {group}, {repeat} and {seed} are filled in; {{ and }} are braces.
workload:
  script: train.py
  args: ["--batch-size", "8", "--num-workers=0", "--lr", "1e-3"]

# How processes start: python, torchrun, deepspeed, or command for any other program.
launcher:
  kind: torchrun
  program: [torchrun]

# Where they run. For GPUs write {kind: local, include: "localhost:0,1"} instead of ranks.
place:
  kind: local
  ranks: 2

# No axes yet: this runs one group. To compare settings, name values and put {NAME} into workload.args in their place:
# axes:
#   batch_size: [8, 16]    # batch size; in args "--batch-size", "{batch_size}"
#   num_workers: [0, 2]    # loader workers; in args "--num-workers={num_workers}"

# How often each group is run; two or more give an interval.
repeats: 2

# Everything the campaign writes; {time} may stand in it. The same folder again resumes.
output: outputs/train

# What must hold for PASS; without this, that no run fails.
# criteria:
#   - {metric: failed_runs, at_most: 0}
#   - {metric: loss_falls, scope: every_run}
"""


def test_the_whole_text() -> None:
    command = shlex.split("torchrun --nproc_per_node 2 train.py --batch-size 8 --num-workers=0 --lr 1e-3")
    mapping = mapping_from_command(command, repeats=2, name="train", output="outputs/train")
    assert plan_yaml(mapping, command=command, notes=["look twice"]) == GOLDEN


COMMANDS: list[tuple[str, dict[str, list[Any]]]] = [
    ("torchrun --nproc_per_node 2 train.py --bs {bs} --workers {nw}", {"bs": [8, 16], "nw": [0, 2]}),
    ("python -u train.py --lr {lr} --opt {opt}", {"lr": [1e-3, 3e-4], "opt": ["adamw", "yes", "8", "a b", "x: y", "#1", ""]}),
    ("torchrun --nproc_per_node {np} train.py", {"np": [1, 2]}),
    ("deepspeed --include localhost:0,1 train.py --bs {bs}", {"bs": [8, 16]}),
    ("A=true B=1e-3 ./train.sh '{{\"a\": [1, 2]}}' 'it'\"'\"'s' 'naïve ✓' '- x' 'null'", {}),
    ("accelerate launch train.py", {}),
    ("python t.py 'tab\there' 'line\nbreak' '\u2028'", {}),
]


@pytest.mark.parametrize(("command", "axes"), COMMANDS)
def test_the_text_loads_as_the_same_plan(command: str, axes: dict[str, list[Any]], plan_file: Callable[..., Path]) -> None:
    words = shlex.split(command)
    mapping = mapping_from_command(words, axes=axes, repeats=2, more={"criteria": [{"metric": "loss_falls"}], "limits": {"run_s": 5}})
    text = plan_yaml(mapping, command=words)

    assert load_plan(plan_file(text)) == plan_from_mapping(mapping, command)


@given(
    st.recursive(st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)), st.lists)
)
def test_any_value_comes_back(value: object) -> None:
    assert parse(plan_yaml({"value": value}), "").value == {"value": value}


@given(st.text(min_size=1))
def test_text_is_text_to_readers_of_older_yaml_too(value: str) -> None:
    assert yaml.safe_load(plan_yaml({"value": value})) == {"value": value}
