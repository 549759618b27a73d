"""Plan text that is not a plan: broken YAML, duplicate keys, foreign tags, aliases that unfold without end, other encodings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.errors import PlanError
from seatrial.plan.plan_file import LARGEST_FILE_BYTES
from seatrial.plan.yaml_text import parse, read_plan_file

BROKEN = {
    "name: x\na: [1, 2\nb: 3\n": "p.yaml:3: not YAML: while parsing a flow sequence, expected ',' or ']', but got ':'",
    "name: x\na: *nowhere\n": "p.yaml:2: not YAML: found undefined alias 'nowhere'",
    "name: x\nname: y\n": "p.yaml:2: 'name' is written twice, first in line 1; keep one of them",
    "a:\n  b: 1\n  c: 2\n  b: 3\n": "p.yaml:4: 'b' is written twice, first in line 2; keep one of them",
    "8: x\n": "p.yaml:1: a key must be a word; put it in quotes",
    "a: &a {b: 1}\nc: {<<: *a}\n": "p.yaml:2: merge keys (<<) are not read; use `extends:` or write the values out",
    "a: &a [*a]\n": "p.yaml:1: its aliases unfold to more than a plan can hold; write the values out",
    "name: x\na: b\x07\n": "p.yaml:2: holds a character that YAML does not take (code 0x7)",
    "- 1\n": "p.yaml:1: a plan is a mapping of keys to values; this is a list",
    "# nothing\n": "p.yaml: the plan is empty; `seatrial init -- COMMAND…` writes one from a working command",
}


@pytest.mark.parametrize("text", BROKEN)
def test_text_that_is_no_plan(text: str, plan_file: Callable[..., Path]) -> None:
    with pytest.raises(PlanError) as caught:
        read_plan_file(plan_file(text))
    assert str(caught.value) == BROKEN[text]


@pytest.mark.parametrize("text", ["a: !!python/object/apply:os.system [x]", "a: !!set {b}", "a: !!binary aGk=", "a: !mine 1"])
def test_tags_that_would_build_something_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is not read"):
        parse(text, "p.yaml")


def test_aliases_that_unfold_to_millions_are_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(PlanError, match="unfold to more than a plan can hold"):
        parse("\n".join(lines), "p.yaml")


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(PlanError, match="nested too deeply"):
        parse("a: " + "[" * 20_000, "p.yaml")


def test_scalars_follow_yaml_1_2() -> None:
    text = "[8, 1e-3, .5, 0x10, 0o17, true, yes, on, 100:200, 2026-01-01, ~, '', 007, 1_000, -3, +4.0]"
    expected = [8, 0.001, 0.5, 16, 15, True, "yes", "on", "100:200", "2026-01-01", None, "", 7, "1_000", -3, 4.0]
    assert parse(text, "").value == expected


def test_an_alias_used_once_is_taken() -> None:
    assert parse("a: &x [1, 2]\nb: *x\n", "").value == {"a": [1, 2], "b": [1, 2]}


def test_lines_point_at_the_key() -> None:
    where = parse("a:\n  b:\n    - 1\n    - 2\n", "p.yaml").where
    assert {path: place.line for path, place in where.items()} == {(): 1, ("a",): 1, ("a", "b"): 2, ("a", "b", 0): 3, ("a", "b", 1): 4}


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo.yaml").write_text("name: x\n")
    Path("latin.yaml").write_bytes("name: x\nworkload: gr\xfcn\n".encode("latin-1"))
    Path("large.yaml").write_bytes(b"#" * (LARGEST_FILE_BYTES + 1))
    Path("folder.yaml").mkdir()
    expected = {
        "demmo.yaml": "demmo.yaml: there is no such plan; did you mean 'demo.yaml'?",
        "latin.yaml": "latin.yaml:2: not UTF-8 text (byte 20); save the plan as UTF-8",
        "large.yaml": "large.yaml: larger than 1024 KiB, which no plan is; is it the right file?",
        "folder.yaml": "folder.yaml: the plan cannot be read: it is a folder; name a YAML file",
    }
    for name, message in expected.items():
        with pytest.raises(PlanError) as caught:
            read_plan_file(Path(name))
        assert str(caught.value) == message


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_plan_file(path).value == {"name": "x"}
