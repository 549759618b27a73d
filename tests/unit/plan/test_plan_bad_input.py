"""Plans that nobody means: bombs, numbers without end, characters no terminal shows, names that run into one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.errors import PlanError, UsageError
from seatrial.plan.load import load_plan, plan_from_mapping
from seatrial.plan.matrix import sizes_text
from seatrial.plan.names import value_names
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan

Complaint = Callable[..., str]
HEAD = "name: x\nworkload: {script: t.py, args: ['{v}']}\n"
TOO_LARGE = "a whole number beyond 64 bits, more than programs count with; make it smaller, or put it in quotes as text"
FITTING = "letters, digits and . _ + -, with a letter or digit first"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: " + "[" * 10_000, "p.yaml:1: nested too deeply to be a plan"),
        ("name: " + "[" * 60 + "]" * 60, "p.yaml:1: nested too deeply to be a plan"),
        ("\n".join(" " * depth + "a:" for depth in range(1_000)), "p.yaml:40: nested too deeply to be a plan"),
        ("name: [" + "a," * 200_000 + "]", "p.yaml:1: more than 30,000 values, which no plan has"),
        (f"{HEAD}axes: {{v: [1]}}\nsteps: {'9' * 5000}\n", f"p.yaml:4: {TOO_LARGE}"),
        (f"{HEAD}axes: {{v: [1]}}\nsteps: 0x{'f' * 5000}\n", f"p.yaml:4: {TOO_LARGE}"),
        (f"{HEAD}axes: {{v: [0x{'f' * 20}]}}\n", f"p.yaml:3: axes.v[0]: {TOO_LARGE}"),
        (f"{HEAD}axes: {{v: [1]}}\nlimits: {{run_s: {'9' * 400}}}\n", f"p.yaml:4: limits.run_s: {TOO_LARGE}"),
        (f"{HEAD}axes: {{v: [1e999]}}\n", "p.yaml:3: axes.v[0]: inf is not a number one can run with"),
        (f"{HEAD}axes: {{v: [.nan]}}\n", "p.yaml:3: axes.v[0]: nan is not a number one can run with"),
        ("name: a/../b\nworkload: dummy\n", f"p.yaml:1: name: 'a/../b' does not fit; expected {FITTING}"),
        ("name: '[red]x'\nworkload: dummy\n", f"p.yaml:1: name: '[red]x' does not fit; expected {FITTING}"),
        ('name: "a\\e[31m"\nworkload: dummy\n', "p.yaml:1: name: holds the control character 0x1b, which no plan needs; take it out"),
        (f'{HEAD}axes: {{v: ["a\\0"]}}\n', "p.yaml:3: axes.v[0]: holds the control character 0x00, which no plan needs; take it out"),
        (f'{HEAD}axes: {{v: ["\\ud800"]}}\n', "p.yaml:3: axes.v[0]: holds bytes that are not UTF-8; write or name it in UTF-8"),
        (f'{HEAD}"a\\e": 1\n', "p.yaml:3: 'a\\x1b': holds the control character 0x1b, which no plan needs; take it out"),
        (
            f"{HEAD}axes: {{v: [1], {'k' * 101}: [1]}}\n",
            f"p.yaml:3: axes.{'k' * 79}…: has 101 characters, more than the 100 of an axis; name it shorter",
        ),
        (
            f"{HEAD}axes: {{v: [1]}}\ntiming: {{window: '{'9' * 20}:'}}\n",
            f"""p.yaml:4: timing.window: '{"9" * 20}:' does not fit; expected "auto", "100:", "100:900" or ":900\"""",
        ),
        (
            "name: x\nworkload: {script: t.py, patterns: ['(?P<step>a{99999999999})']}\n",
            "p.yaml:2: workload.patterns[0]: pattern '(?P<step>a{99999999999})' is not a regular expression: "
            "the repetition number is too large",
        ),
        (
            f"{HEAD}axes: {{v: [1]}}\noutput: {'o' * 300}\n",
            "p.yaml:4: output: one of its names has 300 bytes, more than the 255 a file system takes; name it shorter",
        ),
        (f'{HEAD}axes: {{v: [1]}}\noutput: "a\\nb"\n', "p.yaml:4: output: holds a line break or a tab; name a folder without"),
        (
            f"{HEAD}axes: {{v: [1]}}\noutput: ~nobody-of-that-name/x\n",
            "p.yaml:4: output: ~nobody-of-that-name/x cannot be found: nobody's home folder is known by that name; write the whole path",
        ),
    ],
    ids=lambda value: value[:30] if len(value) > 30 else value,
)
def test_bad_plans_are_named_in_one_sentence(text: str, message: str, complaint: Complaint) -> None:
    assert complaint(text) == message


def test_a_path_too_long_for_the_files_under_it(complaint: Complaint) -> None:
    message = complaint(f"{HEAD}axes: {{v: [1]}}\noutput: {'/' + 'ten-bytes/' * 390}\n")
    assert message == (
        "p.yaml:4: output: the path has 3900 bytes, which leaves too little of the 4095 for the files in it; choose a shorter one"
    )


def test_ten_million_runs_are_refused_before_they_are_made(complaint: Complaint) -> None:
    axes = ", ".join(f"{name}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for name in "abcdefghijkl")
    message = complaint(
        f"name: x\nworkload: {{script: t.py, args: ['{{a}}{{b}}{{c}}{{d}}{{e}}{{f}}{{g}}{{h}}{{i}}{{j}}{{k}}{{l}}']}}\naxes: {{{axes}}}\n"
    )
    assert message == (
        "p.yaml:3: axes: a (10 values) × b (10 values) × c (10 values) × d (10 values) × e (10 values) × f (10 values) × g (10 values) "
        "× h (10 values) × 4 more axes × 1 repeat is more than a million million runs, more than 10,000; take values or repeats away"
    )


def test_of_many_axes_the_largest_are_named() -> None:
    sizes = {**{f"a{number}": 1 for number in range(9)}, "largest": 500}
    assert sizes_text(sizes, 2).startswith("largest (500 values) × a0 (1 value) × ")
    assert sizes_text(sizes, 2).endswith(" × 2 more axes × 2 repeats")


def test_values_that_look_alike_never_share_a_name() -> None:
    values = ["é" * length for length in range(1, 400)]
    assert len({name.lower() for name in value_names(values)}) == len(values)


def test_a_value_named_like_another_s_hash_is_told_apart() -> None:
    plain = value_names(["a b", "a/b"])
    names = value_names(["a b", "a/b", plain[0]])
    assert len(set(names)) == 3 and names[2] == plain[0]


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        (
            "https://example.com/x.yaml",
            "https://example.com/x.yaml is an address, and plans are read from files only; fetch it and name the file",
        ),
        (".", ". is no file; the path is relative to ."),
        ("/dev/zero", "/dev/zero is no file; the path is relative to ."),
        ('"a\\0b"', "holds the control character 0x00, which no plan needs; take it out"),
        ("x" * 300, f"{'x' * 300} cannot be read: File name too long"),
        ("p.yaml", "plans extend each other in a circle: p.yaml → p.yaml"),
    ],
)
def test_what_cannot_be_extended(extends: str, message: str, complaint: Complaint) -> None:
    assert complaint(f"name: x\nextends: {extends}\n") == f"p.yaml:2: extends: {message}"


def test_bytes_that_are_no_text_in_a_typed_command() -> None:
    mapping = {"name": "x", "workload": {"script": "caf\udce9.py"}}
    with pytest.raises(PlanError, match=r"sweep: workload\.script: holds bytes that are not UTF-8"):
        plan_from_mapping(mapping, "sweep")


def test_a_folder_whose_name_is_no_text(tmp_path: Path, resolved: Callable[..., CampaignPlan]) -> None:
    with pytest.raises(UsageError, match="has a name that is not plain UTF-8; rename it or start elsewhere"):
        resolved({"name": "x", "workload": {"script": "t.py"}}, cwd=tmp_path / "caf\udce9")


def test_out_is_checked_like_output(resolved: Callable[..., CampaignPlan]) -> None:
    with pytest.raises(PlanError, match=r"^--out: one of its names has 300 bytes"):
        resolved({"name": "x", "workload": {"script": "t.py"}}, output=Path("o" * 300))


def test_a_line_break_in_an_argument_is_the_user_s_own(plan_file: Callable[..., Path]) -> None:
    plan = load_plan(plan_file('name: x\nworkload: {script: t.py, args: ["a\\n\\tb"]}\n'))
    assert resolve(plan, source="p.yaml", cwd=Path("/")).runs[0].workload.args == ("a\n\tb",)
