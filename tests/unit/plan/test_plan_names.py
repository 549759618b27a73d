"""Names of groups and runs."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from seatrial.plan.names import LONGEST_GROUP, group_name, labels_of, run_name, value_names

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
    ]
    assert list(labels_of(dict.fromkeys(names)).values()) == ["z", "mb", "nw", "pf", "lr", "precision", "wd", "ranks", "ont"]


def test_labels_that_would_be_alike_are_whole_names() -> None:
    assert labels_of({"max_batch": None, "micro_batch": None, "lr": None}) == {
        "max_batch": "max-batch",
        "micro_batch": "micro-batch",
        "lr": "lr",
    }
    assert labels_of({"max_batch": "mb", "micro_batch": None}) == {"max_batch": "mb", "micro_batch": "micro-batch"}


def test_the_seeds_names() -> None:
    assert group_name("", [("z", "0"), ("mb", "160"), ("nw", "8"), ("pf", "4")]) == "z0_mb160_nw8_pf4"
    assert group_name("sweep", [("z", "0")]) == group_name("sweep_", [("z", "0")]) == "sweep_z0"
    assert run_name("z0_mb160", 2) == "z0_mb160_r2"


def test_without_axes_the_prefix_is_the_name() -> None:
    assert group_name("", []) == "base"
    assert group_name("old_like", []) == "old_like"


def test_words_and_numbers_do_not_run_together() -> None:
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


@given(st.lists(SCALARS, min_size=1, max_size=8, unique_by=lambda value: (type(value).__name__, value)))
def test_any_values_make_different_file_names(values: list[object]) -> None:
    names = value_names(values)  # type: ignore[arg-type]
    assert len({name.lower() for name in names}) == len(values)
    assert all(re.fullmatch(r"[A-Za-z0-9.+-]+", name) for name in names)


def test_values_that_only_look_alike_behind_a_label_are_told_apart() -> None:
    names = {group_name("", [("bs", value)]) for value in value_names(["a_", "_a_"])}
    assert len(names) == 2
