"""Keeping rows, listing them, naming them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.cli.history import _plain, _throughput
from seatrial.cli.main import run_command
from seatrial.history.rows import Row
from seatrial.records.comparison import Side, SideRun
from tests.unit.campaign.compared_campaign import write_compared


def test_add_list_pin_unpin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ["--history", str(tmp_path / "h.jsonl")]
    out = str(write_compared(tmp_path / "out", {"a": [10.0, 10.1], "b": [12.0, 12.1]}).folder)
    assert run_command(["history", "list", *file]) == 0
    assert "no rows yet" in capsys.readouterr().out
    assert run_command(["history", "add", out, *file]) == 0
    assert run_command(["history", "add", out, *file]) == 0
    assert run_command(["history", "pin", "2", "base", *file]) == 0
    capsys.readouterr()
    assert run_command(["history", "list", "--json", *file]) == 0
    stdout, stderr = capsys.readouterr()
    assert [(row["row"], row["group"], row["names"], row["runs"]) for row in json.loads(stdout)["rows"]] == [
        (1, "a", [], 2),
        (2, "b", ["base"], 2),
    ]
    assert "base" in stderr and "node-1, Example GPU" in stderr
    assert run_command(["history", "unpin", "base", *file]) == 0
    assert run_command(["history", "unpin", "base", *file]) == 1
    assert "none is known here" in capsys.readouterr().err


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ["--history", str(tmp_path / "h.jsonl")]
    empty = str(write_compared(tmp_path / "out", {"a": [10.0]}, failed=["a_r1"]).folder)
    for words, says in (
        (["history", "add", str(tmp_path / "nowhere")], "holds no campaign"),
        (["history", "add", empty], "nothing to keep"),
        (["history", "add", empty, "--group", "x"], "has no group 'x'"),
        (["history", "pin", "1", "base"], "no row 1"),
    ):
        assert run_command([*words, *file]) == 1
        assert says in capsys.readouterr().err


def test_a_name_that_moves_and_lines_that_are_lost_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    file = ["--history", str(path)]
    out = str(write_compared(tmp_path / "out", {"a": [10.0, 10.1], "z:boom:": [12.0, 12.1]}).folder)
    run_command(["history", "add", out, *file])
    run_command(["history", "pin", "1", "base", *file])
    capsys.readouterr()
    assert run_command(["history", "pin", "2", "base", *file]) == 0
    assert capsys.readouterr().out == "row 2 (z:boom:) is history:base; row 1 (a) was until now\n"
    path.write_text(path.read_text() + "torn\n")
    assert run_command(["history", "list", "--json", *file]) == 0
    stdout, stderr = capsys.readouterr()
    told = json.loads(stdout)
    assert told["unreadable_lines"] == 1 and "1 line of" in stderr and ":boom:" in stderr
    assert (told["rows"][0]["metric"], round(told["rows"][0]["throughput"], -1)) == ("samples_per_s", 790)
    assert "samples/s" in stderr
    assert run_command(["history", "add", out, *file]) == 0
    assert "1 line of" in capsys.readouterr().out.replace("\n", " ")


def test_a_folder_is_no_file_of_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(write_compared(tmp_path / "out", {"a": [10.0, 10.1]}).folder)
    assert run_command(["history", "add", out, "--history", str(tmp_path)]) == 1
    assert "nothing was kept" in capsys.readouterr().err


def side(*figures: dict[str, float]) -> Side:
    runs = tuple(
        SideRun(run=f"a_r{number}", repeat=number, started_t=0.0, figures=dict(of_run)) for number, of_run in enumerate(figures, 1)
    )
    return Side(name="out:a", group="a", source="out", runs=runs)


def test_the_throughput_of_a_row_is_what_all_its_runs_have() -> None:
    both = side({"samples_per_s": 10.0, "tokens_per_s": 100.0}, {"tokens_per_s": 100.0})
    assert _throughput(both) == {"metric": "tokens_per_s", "throughput": pytest.approx(100.0), "unit": "tokens/s"}
    assert _throughput(side()) == {"metric": None, "throughput": None, "unit": None}
    assert _throughput(side({}))["metric"] is None


def test_a_row_for_machines_is_plain() -> None:
    row = _plain(Row(number=3, added_t=1.0, side=side({"steps_per_s": 2.0}), names=("base",)))
    assert (row["row"], row["names"], row["group"], row["runs"], row["throughput"]) == (3, ["base"], "a", 1, 2.0)
    json.dumps(row)
