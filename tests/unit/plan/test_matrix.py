"""Groups and runs: names, order, placeholders, the sentinel, and what the axes vary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.plan.load import plan_from_mapping
from seatrial.plan.matrix import LONGEST_GROUP, group_name, insert_sentinel_runs, labels_of, run_name, run_order, value_names, varied_names
from seatrial.plan.placeholders import PlaceholderProblem, escape, fill, names_in, rename, value_text
from seatrial.plan.resolve import estimate_time, resolve_plan
from seatrial.plan.run_hash import group_key, run_hash
from seatrial.records.plan import CampaignPlan
from tests.facts import states
from tests.unit.plan.conftest import ANY_SPEED

SCALARS = st.one_of(st.text(max_size=12), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False))


def test_labels() -> None:
    names = [
        "zero_stage",
        "micro_batch",
        "num_workers",
        "prefetch_factor",
        "lr",
        "precision",
        "weight_decay",
        "place.ranks",
        "env.OMP_NUM_THREADS",
        "block_size",
        "batch_size",
    ]
    labels = ["z", "mb", "nw", "pf", "lr", "precision", "weight-decay", "ranks", "OMP-NUM-THREADS", "block-size", "bs"]
    assert list(labels_of(dict.fromkeys(names)).values()) == labels


def test_labels_that_would_be_alike_are_whole_names() -> None:
    assert labels_of({"bs": None, "batch_size": None, "lr": None}) == {"bs": "bs", "batch_size": "batch-size", "lr": "lr"}
    assert labels_of({"max_batch": "mb", "micro_batch": None}) == {"max_batch": "mb", "micro_batch": "micro-batch"}


def test_the_seeds_names() -> None:
    assert group_name("", [("z", "0"), ("mb", "160"), ("nw", "8"), ("pf", "4")]) == "z0_mb160_nw8_pf4"
    assert group_name("sweep", [("z", "0")]) == group_name("sweep_", [("z", "0")]) == "sweep_z0"
    assert run_name("z0_mb160", 2) == "z0_mb160_r2"


def test_labels_and_values_do_not_run_together() -> None:
    assert group_name("", [("precision", "bf16"), ("top5", "3"), ("x", "-1")]) == "precision-bf16_top5-3_x-1"


def test_values_are_safe_and_stay_apart() -> None:
    assert value_names([8, 0.001, True, None, "a/b c", ""]) == ["8", "0.001", "true", "null", "a-b-c", "empty"]
    alike = value_names(["a/b", "a:b", "c"])
    assert [name[:4] for name in alike[:2]] == ["a-b-", "a-b-"]
    assert len(set(alike)) == 3


def test_a_long_name_is_cut_and_keeps_its_identity() -> None:
    one, other = (group_name("", [("data", "x" * 200 + end)]) for end in "ab")
    assert len(one) == len(other) == LONGEST_GROUP
    assert one != other


@ANY_SPEED
@given(st.lists(SCALARS, min_size=1, max_size=8, unique_by=lambda value: (type(value).__name__, value)))
def test_any_values_make_different_file_names(values: list[object]) -> None:
    names = value_names(values)  # type: ignore[arg-type]
    assert len({name.lower() for name in names}) == len(values)
    assert all(re.fullmatch(r"[A-Za-z0-9.+-]+", name) for name in names)


def test_values_that_look_alike_behind_a_label_get_different_names() -> None:
    assert len({group_name("", [("bs", value)]) for value in value_names(["a_", "_a_"])}) == 2


COUNTS = st.integers(min_value=1, max_value=12)
SEEDS = st.integers()


@ANY_SPEED
@given(COUNTS, COUNTS, SEEDS)
def test_every_round_holds_every_group_once(groups: int, repeats: int, seed: int) -> None:
    runs = run_order(range(groups), repeats, "interleaved", seed)

    assert Counter(runs) == Counter((group, repeat) for group in range(groups) for repeat in range(1, repeats + 1))
    rounds = [runs[start : start + groups] for start in range(0, len(runs), groups)]
    assert [{repeat for _, repeat in one_round} for one_round in rounds] == [{repeat} for repeat in range(1, repeats + 1)]
    assert all(sorted(group for group, _ in one_round) == list(range(groups)) for one_round in rounds)


@ANY_SPEED
@given(COUNTS, COUNTS, SEEDS)
def test_a_seed_gives_one_order_and_more_repeats_leave_it(groups: int, repeats: int, seed: int) -> None:
    once = run_order(range(groups), repeats, "interleaved", seed)
    more = run_order(range(groups), repeats + 2, "interleaved", seed)

    assert once == run_order(range(groups), repeats, "interleaved", seed)
    assert more[: len(once)] == once


def test_seeds_and_rounds_differ() -> None:
    orders = {tuple(group for group, _ in run_order(range(20), 1, "interleaved", seed)) for seed in range(10)}
    assert len(orders) == 10

    runs = [group for group, _ in run_order(range(20), 2, "interleaved", 0)]
    assert runs[:20] != runs[20:]


def test_nested_runs_all_repeats_of_a_group_in_a_row() -> None:
    assert run_order("ab", 2, "nested", 5) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert run_order("ab", 2, "rounds", 0) == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


Resolved = Callable[..., CampaignPlan]
MATRIX: dict[str, Any] = {
    "name": "x",
    "workload": "dummy",
    "axes": {"micro_batch": [8, 16], "num_workers": [0, 2]},
    "order": "rounds",
}
HEAD = "name: x\nworkload: dummy\naxes: {micro_batch: [8, 16]}\n"


@pytest.mark.parametrize(
    ("runs", "every", "expected"),
    [
        ("abcd", 2, "1ab2cd3"),
        ("abcd", 3, "1abc2d3"),
        ("abcd", 4, "1abcd2"),
        ("abcd", 9, "1abcd2"),
        ("abc", 1, "1a2b3c4"),
        ("a", 4, "1a2"),
    ],
)
def test_it_is_first_last_and_after_every_so_many(runs: str, every: int, expected: str) -> None:
    assert "".join(insert_sentinel_runs(runs, every, str)) == expected


def test_its_runs_are_among_the_others(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": 2})

    assert [run.run for run in plan.runs] == [
        "sentinel_r1",
        "mb8_nw0_r1",
        "mb8_nw2_r1",
        "sentinel_r2",
        "mb16_nw0_r1",
        "mb16_nw2_r1",
        "sentinel_r3",
    ]
    assert (plan.sentinel_group, plan.sentinel_every) == ("mb8_nw0", 2)
    watching = [run for run in plan.runs if run.mode == "sentinel"]
    assert {(run.group, run.lane) for run in watching} == {("sentinel", False)}
    assert [run.repeat for run in watching] == [1, 2, 3]


def test_it_does_the_group_s_work_and_is_no_repeat_of_it(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": {"every": 4}})
    watching, first = plan.runs[0], plan.runs[1]

    assert (watching.settings, watching.axes, watching.workload, watching.place) == (
        first.settings,
        first.axes,
        first.workload,
        first.place,
    )
    assert watching.group_key != first.group_key and watching.hash != first.hash
    assert len({run.hash for run in plan.runs}) == len(plan.runs)


def test_it_changes_nothing_in_the_other_runs(resolved: Resolved) -> None:
    with_it = [run for run in resolved({**MATRIX, "sentinel": 2}).runs if run.mode != "sentinel"]
    assert with_it == list(resolved(MATRIX).runs)


def test_more_repeats_leave_its_earlier_runs_finished(resolved: Resolved) -> None:
    once = {run.run: run.hash for run in resolved({**MATRIX, "sentinel": 2}).runs}
    twice = {run.run: run.hash for run in resolved({**MATRIX, "sentinel": 2, "repeats": 2}).runs}
    assert once.items() <= twice.items()


@pytest.mark.parametrize(
    ("sentinel", "expected"),
    [
        ({"every": 4, "group": "mb16_nw2"}, "mb16_nw2"),
        ({"every": 4, "settings": {"num_workers": 2}}, "mb8_nw2"),
        ({"every": 4, "settings": {"num_workers": 2, "micro_batch": 16}}, "mb16_nw2"),
        ({"every": 4}, "mb8_nw0"),
    ],
)
def test_the_group_is_chosen_by_name_or_by_values(sentinel: dict[str, Any], expected: str, resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": sentinel})
    assert plan.sentinel_group == expected
    chosen = next(run for run in plan.runs if run.group == expected)
    assert plan.runs[0].settings == chosen.settings


def test_of_a_script(resolved: Resolved) -> None:
    workload = {"script": "t.py", "args": ["--bs", "{bs}", "--out", "{run}"]}
    plan = resolved({"name": "x", "workload": workload, "axes": {"bs": [8, 16]}, "sentinel": 2, "order": "rounds"})
    assert [run.workload.args for run in plan.runs] == [
        ("--bs", "8", "--out", "sentinel_r1"),
        ("--bs", "8", "--out", "bs8_r1"),
        ("--bs", "16", "--out", "bs16_r1"),
        ("--bs", "8", "--out", "sentinel_r2"),
    ]
    assert len({run.group_key for run in plan.runs}) == 3


def test_only_leaves_it_out_unless_it_is_asked_for(resolved: Resolved) -> None:
    keys = {**MATRIX, "sentinel": 2}
    assert resolved(keys, only=["mb8_*"]).selected == ("mb8_nw0_r1", "mb8_nw2_r1")
    assert resolved(keys, only=["sentinel"]).selected == ("sentinel_r1", "sentinel_r2", "sentinel_r3")


def test_it_counts_in_the_estimate_and_survives_the_file(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": 2, "limits": {"run_s": 10}})
    known = estimate_time(plan, {plan.runs[1].group_key: 5.0})
    assert (known.runs, known.groups, known.total_s, known.at_most_s) == (7, 5, 35.0, 70.0)


def test_none_takes_off_what_a_plan_below_has(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": None})
    assert (plan.sentinel_group, plan.sentinel_every, len(plan.runs)) == ("", None, 4)


WRONG = {
    "sentinel: true": "sentinel: must be a mapping of keys to values, not true (true or false)",
    "sentinel: {every: 4, group: mb9}": "sentinel.group: no group of this plan is called 'mb9'; did you mean 'mb8'?",
    "sentinel: {every: 4, group: mb8, settings: {micro_batch: 8}}": "sentinel.settings: and `group` both say which group it is",
    "sentinel: {every: 4, settings: {micro_bach: 8}}": "sentinel.settings.micro_bach: is not an axis of this plan; did you mean",
    "sentinel: {every: 4, settings: {micro_batch: 9}}": "sentinel.settings.micro_batch: 9 is not a value of the axis",
    "mode: sentinel": "mode: 'sentinel' is the mode of the runs that the key `sentinel` adds",
}


@pytest.mark.parametrize("line", WRONG)
def test_one_that_cannot_be_run_is_refused(line: str, message_of: Callable[..., str]) -> None:
    assert message_of(f"{HEAD}{line}\n").startswith(f"p.yaml:4: {WRONG[line]}")


def test_a_group_of_its_name_is_in_the_way(message_of: Callable[..., str]) -> None:
    text = "name: x\nworkload: dummy\naxes: {kind: {bundles: {sentinel: {micro_batch: 8}, other: {micro_batch: 9}}}}\nsentinel: 4\n"
    assert states(message_of(text), "p.yaml:4: sentinel: ", "prefix")


def varied(mapping: dict[str, Any]) -> tuple[str, ...]:
    return varied_names(plan_from_mapping({"name": "p", **mapping}, "here"))


def of_script(*args: str, **more: Any) -> tuple[str, ...]:
    return varied({"workload": {"script": "train.py", "args": list(args)}, **more})


def test_axes_and_the_settings_of_bundles_are_varied() -> None:
    bundles = {"old": {"step_ms": 5, "data_wait_ms": 1}, "new": {"step_ms": 4, "data_wait_ms": 0}}
    axes = {"variant": {"bundles": bundles}, "micro_batch": [8], "place.ranks": [1, 2], "env.NCCL_DEBUG": ["WARN", "INFO"]}
    assert varied({"workload": "dummy", "axes": axes}) == ("NCCL_DEBUG", "data_wait_ms", "micro_batch", "step_ms")
    assert varied({"workload": "dummy", "settings": {"micro_batch": 8}}) == ()


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("--trainer.detect-anomaly", "{x}"), "detect_anomaly"),
        (("--detect_anomaly={x}", "--lr", "1"), "detect_anomaly"),
        (("train.nvtx={x}",), "nvtx"),
        (("--lr=1", "{x}"), None),
    ],
)
def test_an_option_that_an_axis_fills_in_is_varied(args: tuple[str, ...], option: str | None) -> None:
    assert of_script(*args, axes={"x": [0, 1]}) == tuple(sorted({"x", *([option] if option else [])}))


def test_options_and_variables_that_come_of_an_axis_are_varied() -> None:
    assert of_script("{flag}", axes={"flag": ["--nvtx=1", "--quiet"]}) == ("flag", "nvtx", "quiet")
    assert of_script("{a}", axes={"v": {"bundles": {"x": {"a": "--nvtx"}, "y": {"a": ""}}}}) == ("a", "nvtx")
    assert of_script(env={"NCCL_DEBUG": "{said}", "OTHER": "1"}, axes={"said": ["WARN", "INFO"]}) == ("NCCL_DEBUG", "said")


def test_what_is_varied_reaches_the_run_and_no_hash() -> None:
    plan = plan_from_mapping({"name": "p", "workload": "dummy", "axes": {"micro_batch": [8, 16]}}, "here")
    run = resolve_plan(plan, source="here", cwd=Path("/")).runs[0]
    plain = replace(run, varied=())
    assert run.varied == ("micro_batch",) and (run_hash(run), group_key(run)) == (run_hash(plain), group_key(plain))


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


def test_values_are_written_as_a_plan_writes_them() -> None:
    assert fill("{a}/{b}/{c}/{d}/{e}", {"a": 8, "b": 1e-5, "c": True, "d": None, "e": "x y"}) == "8/1e-05/true/null/x y"


def test_doubled_braces_are_braces() -> None:
    assert fill('{{"lr": {lr}}}', {"lr": 0.1}) == '{"lr": 0.1}'
    assert fill("{{{a}}}", {"a": 1}) == "{1}"
    assert names_in("{{a}} {b} {c} {b}") == ["b", "c"]


@pytest.mark.parametrize("text", ["{", "}", "a}", '{"lr": 1}', "{a b}", "{}", "{0}"])
def test_a_lone_brace_is_named(text: str) -> None:
    with pytest.raises(PlaceholderProblem, match="for the brace itself"):
        names_in(text)


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(PlaceholderProblem, match=r"no value for \{b\}"):
        fill("{b}", {"a": 1})


@ANY_SPEED
@given(st.text())
def test_an_escaped_text_comes_back_whole(text: str) -> None:
    assert fill(escape(text), {}) == text
    assert names_in(escape(text)) == []


@ANY_SPEED
@given(st.lists(st.tuples(st.text(), NAMES, st.integers())))
def test_every_placeholder_is_filled_and_nothing_else_changes(pieces: list[tuple[str, str, int]]) -> None:
    values = {name: number for _, name, number in pieces}
    template = "".join(f"{escape(text)}{{{name}}}" for text, name, _ in pieces)

    assert fill(template, values) == "".join(f"{text}{value_text(values[name])}" for text, name, _ in pieces)
    assert names_in(template) == list(dict.fromkeys(name for _, name, _ in pieces))


@ANY_SPEED
@given(st.lists(st.tuples(st.text(), NAMES)), NAMES)
def test_renaming_a_placeholder_leaves_the_rest(pieces: list[tuple[str, str]], old: str) -> None:
    template = "".join(f"{escape(text)}{{{name}}}" for text, name in pieces)
    renamed = "".join(f"{escape(text)}{{{'place.ranks' if name == old else name}}}" for text, name in pieces)

    assert rename(template, old, "place.ranks") == renamed
