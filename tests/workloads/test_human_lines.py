"""Lines for people."""

from __future__ import annotations

import re

from seatrial.log_lines import compile_patterns, values_in
from seatrial.paths import AttemptPaths
from seatrial.records.log_formats import READY
from seatrial_workloads.common.human_lines import HumanLines


def test_rank_0_says_the_seed_s_line_to_stdout_and_train_log(tmp_path, capsys):
    with HumanLines(tmp_path / "run", rank=0, wall=lambda: 1794713095.1939) as lines:
        lines.step(50, 3.27104)
    where, said = capsys.readouterr().out.splitlines()
    assert where.endswith(f" - seatrial - INFO - Writing to {tmp_path / 'run'}")
    assert re.fullmatch(r"2026-11-1\d \d\d:\d\d:55,193 - seatrial - INFO - Step 50: Loss 3\.2710", said)
    assert AttemptPaths(tmp_path / "run").train_log.read_text().splitlines() == [where, said]
    assert values_in(said, compile_patterns(READY["seed"].lines)) == {"step": 50.0, "loss": 3.271}


def test_other_ranks_are_silent(tmp_path, capsys):
    with HumanLines(tmp_path / "run", rank=1) as lines:
        lines.step(1, 1.0)
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "run").exists()


def test_a_second_run_in_the_folder_goes_on_with_the_log(tmp_path):
    for _ in range(2):
        with HumanLines(tmp_path, rank=0) as lines:
            lines.say("hello")
    assert AttemptPaths(tmp_path).train_log.read_text().count("hello") == 2
