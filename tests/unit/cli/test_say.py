"""Words for people and a line for machines."""

from __future__ import annotations

import json

import pytest

from seatrial.cli.say import people, print_json, print_lines, write_lines


def test_with_json_people_read_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(people(), ["to stdout"])
    print_lines(people(as_json=True), ["to stderr"])
    print_json({"a": [1, None]})
    said = capsys.readouterr()
    assert (said.out, said.err) == ('to stdout\n{"a": [1, null]}\n', "to stderr\n")


def test_names_in_lines_are_no_markup_and_long_ones_are_not_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = ["[red]mb8[/red] :boom:", "x" * 50, ""]
    print_lines(people(), lines)
    assert capsys.readouterr().out == "\n".join(lines) + "\n"


def test_lines_can_be_written_untouched(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = ["[red]mb8\twith a tab", "x" * 50, "trailing  "]
    write_lines(lines)
    write_lines(["to stderr"], as_json=True)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("\n".join(lines) + "\n", "to stderr\n")


def test_a_plain_console_takes_no_markup_either(capsys: pytest.CaptureFixture[str]) -> None:
    people(plain=True, soft_wrap=True).print("[bold]as typed :boom:")
    assert capsys.readouterr().out == "[bold]as typed :boom:\n"


@pytest.mark.parametrize(("ensure_ascii", "text"), [(True, '"\\u2713"\n'), (False, '"✓"\n')])
def test_the_machines_line_is_one_line(ensure_ascii: bool, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json("✓", ensure_ascii=ensure_ascii)
    assert capsys.readouterr().out == text
    print_json({"text": "two\nlines"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and json.loads(out) == {"text": "two\nlines"}
