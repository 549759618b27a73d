"""Unmodified scripts under `seatrial sweep`: measured by their own log lines, by a pattern, or as a whole."""

from __future__ import annotations

import pytest

from tests.csv_files import rows_of
from tests.end_to_end.conftest import SCRIPTS
from tests.harness import Harness

LOOP = """
import sys, time
for step in range(30):
    time.sleep(0.004 * int(sys.argv[1]))
    print({line}, flush=True)
"""


@pytest.mark.torch
@pytest.mark.slow
def test_nanogpt_style_script_under_torchrun(harness: Harness) -> None:
    command = ["torchrun", "--nproc_per_node", "2", str(SCRIPTS / "nano_train.py"), "--batch_size", "{bs}", "--max_iters", "25"]
    sweep = ["sweep", "-P", "bs=4", "--repeats", "1", "--samples-per-step", "{bs}", "--", *command]
    text = harness.run(*sweep)
    (out,) = (harness.folder / "outputs").iterdir()
    assert "samples/s" in text and "bs4" in text
    harness.out = type(harness.out)(out)
    (row,) = harness.manifest()
    assert (row["source"], row["outcome"], row["world_size"]) == ("log:nanogpt", "ok", "2")
    assert rows_of(harness.out.ranked_groups)[0]["rank"] == "1"
    assert harness.run(*sweep).count("already finished") == 1


@pytest.mark.torch
@pytest.mark.slow
def test_hf_trainer_script(harness: Harness) -> None:
    command = ["python", str(SCRIPTS / "hf_train.py"), "--per_device_train_batch_size", "{bs}", "--max_steps", "25"]
    text = harness.run("sweep", "-P", "bs=2", "--repeats", "1", "--samples-per-step", "{bs}", "--out", "out", "--", *command)
    (row,) = harness.manifest()
    assert row["source"] == "log:hf_trainer" and float(row["wall_samples_per_sec"]) > 0
    assert "samples/s" in text


def test_own_pattern_and_placeholders(harness: Harness) -> None:
    (harness.folder / "loop.py").write_text(LOOP.replace("{line}", "f'tick {step} cost {1 / (step + 1):.3f}'"))
    pattern = r"tick (?P<step>\d+) cost (?P<loss>[\d.]+)"
    harness.run("sweep", "-P", "n=1,4", "--repeats", "1", "--pattern", pattern, "--out", "out", "--", "python", "loop.py", "{n}")
    rows = harness.manifest()
    assert len(rows) == 2 and all(float(row["wall_steps_per_sec"]) > 0 for row in rows)
    assert rows_of(harness.out.ranked_groups)[0]["group"] == "n1"
    assert all(float(row["last_loss"]) < float(row["first_loss"]) for row in rows)


def test_ranks_behind_a_shell_count_as_they_run(harness: Harness) -> None:
    line = "f'iter {step}: loss 1.0, time 80.00ms'"
    (harness.folder / "loop.py").write_text("import os\n" + LOOP.replace("print({line}", f"int(os.environ['RANK']) or print({line}"))
    # As a launcher starts them: each with its variables.
    command = "for rank in 0 1; do RANK=$rank WORLD_SIZE=2 python loop.py {n} & done; wait"
    sweep = ["sweep", "-P", "n=20", "--repeats", "1", "--samples-per-step", "{n}*2+1", "--out", "out", "--"]
    harness.run(*sweep, "bash", "-c", f"( {command} ) | tee log")
    (row,) = harness.manifest()
    assert (row["world_size"], row["global_batch"]) == ("2", "82")
    assert float(row["wall_samples_per_sec"]) == pytest.approx(82 * float(row["wall_steps_per_sec"]))


def test_a_script_that_prints_nothing_useful_is_timed_as_a_whole(harness: Harness) -> None:
    (harness.folder / "loop.py").write_text(LOOP.replace("{line}", "'hello'"))
    text = harness.run("sweep", "-P", "n=1,4", "--repeats", "1", "--out", "out", "--", "python", "loop.py", "{n}")
    rows = harness.manifest()
    assert {row["source"] for row in rows} == {"whole"}
    assert "whole" in text
    assert rows_of(harness.out.ranked_groups)[0]["group"] == "n1"


def test_steps_of_unlike_batches_are_not_passed_off_as_throughput(harness: Harness) -> None:
    (harness.folder / "loop.py").write_text(LOOP.replace("{line}", "f'iter {step}: loss 1.0, time 4.00ms'"))
    text = harness.run("sweep", "-P", "bs=1,4", "--repeats", "1", "--out", "out", "--", "python", "loop.py", "{bs}")
    assert "samples-per-step" in text or "samples_per_step" in text


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["-P", "bs=8,16", "--", "python", "train.py", "{nw}"], "nw"),
        (["-P", "bs=8,16", "--", "python", "train.py"], "bs"),
        (["-P", "bs=8,8", "--", "python", "train.py", "{bs}"], "8"),
        (["-P", "bs", "--", "python", "train.py", "{bs}"], "NAME="),
        (["--", "deepspeed", "--hostfile", "hosts", "train.py"], "hostfile"),
        (["--reads", "nanogtp", "--", "python", "train.py"], "nanogpt"),
        (["--pattern", "(", "--", "python", "train.py"], "regular expression"),
    ],
)
def test_wrong_use_ends_with_exit_code_1(harness: Harness, argv: list[str], says: str) -> None:
    (harness.folder / "train.py").write_text("")
    text = harness.call("sweep", *argv, code=1)
    assert says in text and "Traceback" not in text


def test_what_can_only_fail_is_refused_with_exit_code_2(harness: Harness) -> None:
    text = harness.run("sweep", "--", "python", "no_such_script.py", code=2)
    assert "no_such_script.py" in text and "Fix:" in text
    text = harness.run("sweep", "--", "no-such-program", "x", code=2)
    assert "no-such-program" in text
