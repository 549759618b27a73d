"""Plan text: read strictly with the line of every key, and written so that reading it gives the same plan."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from seatrial.core.errors import PlanError
from seatrial.plan.from_command import mapping_from_command
from seatrial.plan.load import load_plan, plan_from_mapping
from seatrial.plan.yaml_text import (
    LARGEST_FILE_BYTES,
    LARGEST_NUMBER,
    KeyPath,
    Location,
    Locations,
    dotted_key,
    parse_yaml,
    plan_yaml,
    read_plan_file,
    read_plan_text,
    refuse_unusable_values,
)
from tests.unit.plan.conftest import ANY_SPEED

BROKEN = {
    "name: x\na: [1, 2\nb: 3\n": "p.yaml:3: not YAML: while parsing a flow sequence, expected ',' or ']', but got ':'",
    "name: x\na: *nowhere\n": "p.yaml:2: not YAML: found undefined alias 'nowhere'",
    "name: x\nname: y\n": "p.yaml:2: 'name' is written twice, first in line 1",
    "a:\n  b: 1\n  c: 2\n  b: 3\n": "p.yaml:4: 'b' is written twice, first in line 2",
    "8: x\n": "p.yaml:1: a key must be text",
    "a: &a {b: 1}\nc: {<<: *a}\n": "p.yaml:2: merge keys (<<) are not supported",
    "a: &a [*a]\n": "p.yaml:1: its aliases expand to more than a plan can hold",
    "name: x\na: b\x07\n": "p.yaml:2: contains a character that YAML does not allow (code 0x7)",
    "- 1\n": "p.yaml:1: a plan is a mapping of keys to values",
    "# nothing\n": "p.yaml: the plan is empty",
}


@pytest.mark.parametrize("text", BROKEN)
def test_text_that_is_no_plan(text: str, plan_file: Callable[..., Path]) -> None:
    with pytest.raises(PlanError) as caught:
        read_plan_file(plan_file(text))
    assert str(caught.value).startswith(BROKEN[text])


@pytest.mark.parametrize("text", ["a: !!python/object/apply:os.system [x]", "a: !!set {b}", "a: !!binary aGk=", "a: !mine 1"])
def test_tags_that_would_build_something_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is not allowed"):
        parse_yaml(text, "p.yaml")


def test_aliases_that_unfold_to_millions_are_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(PlanError, match="expand to more than a plan can hold"):
        parse_yaml("\n".join(lines), "p.yaml")


def test_scalars_follow_yaml_1_2() -> None:
    text = "[8, 1e-3, .5, 0x10, 0o17, true, yes, on, 100:200, 2026-01-01, ~, '', 007, 1_000, -3, +4.0]"
    expected = [8, 0.001, 0.5, 16, 15, True, "yes", "on", "100:200", "2026-01-01", None, "", 7, "1_000", -3, 4.0]
    assert parse_yaml(text, "").value == expected


def test_an_alias_used_once_is_taken() -> None:
    assert parse_yaml("a: &x [1, 2]\nb: *x\n", "").value == {"a": [1, 2], "b": [1, 2]}


def test_lines_point_at_the_key() -> None:
    where = parse_yaml("a:\n  b:\n    - 1\n    - 2\n", "p.yaml").where
    assert {path: place.line for path, place in where.items()} == {(): 1, ("a",): 1, ("a", "b"): 2, ("a", "b", 0): 3, ("a", "b", 1): 4}


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo.yaml").write_text("name: x\n")
    Path("latin.yaml").write_bytes("name: x\nworkload: gr\xfcn\n".encode("latin-1"))
    Path("large.yaml").write_bytes(b"#" * (LARGEST_FILE_BYTES + 1))
    Path("folder.yaml").mkdir()
    expected = {
        "demmo.yaml": "demmo.yaml: no such file; did you mean 'demo.yaml'?",
        "latin.yaml": "latin.yaml:2: not UTF-8 text (byte 20); save the plan as UTF-8",
        "large.yaml": "large.yaml: larger than 1024 KiB; is it the right file?",
        "folder.yaml": "folder.yaml: cannot be read: it is a folder; name a YAML file",
    }
    for name, message in expected.items():
        with pytest.raises(PlanError) as caught:
            read_plan_file(Path(name))
        assert str(caught.value) == message


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_plan_file(path).value == {"name": "x"}


def refusal(path: Path, pipe_timeout_s: float = 0.2) -> str:
    with pytest.raises(PlanError) as caught:
        read_plan_text(path, pipe_timeout_s)
    return str(caught.value)


def test_a_device_is_no_plan() -> None:
    assert refusal(Path("/dev/zero")) == "/dev/zero: cannot be read: it is a device or a socket; name a YAML file"


def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"name: x\n" * 1000)
    os.close(writing)
    try:
        # As a shell names its end of `<(…)`.
        assert read_plan_text(Path(f"/proc/self/fd/{reading}")) == "name: x\n" * 1000
    finally:
        os.close(reading)


def test_a_pipe_that_nobody_ends_is_given_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keeper = os.open(pipe, os.O_RDWR)
    try:
        assert "a pipe that was not closed within 0.2 s" in refusal(pipe)
    finally:
        os.close(keeper)


def test_a_pipe_without_end_is_refused_by_its_size(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keeper = os.open(pipe, os.O_RDWR)

    def write() -> None:
        with open(pipe, "wb") as end:
            end.write(b"#" * (LARGEST_FILE_BYTES + 1))

    writer = threading.Thread(target=write)
    writer.start()
    assert "larger than 1024 KiB" in refusal(pipe, 10.0)
    writer.join()
    os.close(keeper)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("loop.yaml", "Too many levels of symbolic links"), ("file/x.yaml", "Not a directory"), ("x" * 300, "File name too long")],
)
def test_a_path_that_leads_nowhere_says_why(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "file").touch()
    assert f"cannot be read: {reason}; name a YAML file that you may read" in refusal(tmp_path / name)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"env": {"A": "x\x07"}}, "env.A: contains the control character 0x07"),
        ({"env": {"A\x07": "x"}}, "contains the control character 0x07"),
        ({"axes": {"bs": {"values": [1, LARGEST_NUMBER + 1]}}}, r"axes.bs\[1\]: an integer beyond 64 bits"),
        ({"seed": -LARGEST_NUMBER - 1}, "seed: an integer beyond 64 bits"),
    ],
)
def test_it_is_found_at_its_key_however_deep(value: dict[str, Any], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        refuse_unusable_values(value, Locations())


@pytest.mark.parametrize("value", [{}, [], None, LARGEST_NUMBER, -LARGEST_NUMBER, 1e300, True, ("a", ["b", {"c": "d\n"}])])
def test_the_rest_passes(value: Any) -> None:
    refuse_unusable_values(value, Locations())


BASE, CHILD = Location("base.yaml", 3), Location("child.yaml", 7)


def known() -> Locations:
    return Locations("child.yaml", {("axes",): BASE, ("axes", "bs"): CHILD, ("axes", "bs", "values", 1): Location("child.yaml", 8)})


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("axes", "bs"), CHILD),
        (("axes", "bs", "values", 1), Location("child.yaml", 8)),
        (("axes", "bs", "values", 0), CHILD),
        (("axes", "lr"), BASE),
        (("limits", "run_s"), Location("child.yaml")),
        ((), Location("child.yaml")),
    ],
)
def test_a_key_is_where_it_was_written_or_in_the_nearest_mapping_around_it(path: KeyPath, where: Location) -> None:
    assert known().of(path) == where


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("repeats",), "repeats"),
        (("axes", "bs", "values", 1), "axes.bs[1]"),
        (("axes", "bs", "bundles", "old"), "axes.bs.bundles.old"),
        (("criteria", 0, "metric"), "criteria[0].metric"),
        (("env", "a\nb"), r"env.'a\nb'"),
    ],
)
def test_a_key_as_people_write_it(path: KeyPath, text: str) -> None:
    assert dotted_key(path) == text


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
    argv = shlex.split(command)
    mapping = mapping_from_command(argv, axes=axes, repeats=2, more={"criteria": [{"metric": "loss_falls"}], "limits": {"run_s": 5}})
    text = plan_yaml(mapping, command=argv)

    assert load_plan(plan_file(text)) == plan_from_mapping(mapping, command)


@ANY_SPEED
@given(
    st.recursive(st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)), st.lists)
)
def test_any_value_comes_back(value: object) -> None:
    assert parse_yaml(plan_yaml({"value": value}), "").value == {"value": value}


@ANY_SPEED
@given(st.text(min_size=1))
def test_text_is_text_to_readers_of_older_yaml_too(value: str) -> None:
    assert yaml.safe_load(plan_yaml({"value": value})) == {"value": value}
