"""`seatrial diagnose`: any job's logs, from one file, several, a folder or stdin; what is printed and how it exits."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.main import run_command
from seatrial.records.signatures.registry import advice_without_plan, general, signatures
from seatrial.results.diagnose import find_logs
from tests.facts import states
from tests.recorded.labelled_logs import FOLDER, LabelledLog, failing_logs

LOGS = FOLDER.parent / "logs"
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in load',
    "    raise ValueError(name)",
    "ValueError: no shard 7",
]


def write(folder: Path, **files: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, lines in files.items():
        (folder / name.replace("__", ".")).write_text("\n".join(lines) + "\n")
    return folder


def diagnosed(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, dict[str, Any], list[str]]:
    """Exit code, JSON, and what a person sees."""
    code = run_command(["diagnose", *map(str, args), "--json"])
    shown = capsys.readouterr()
    return code, json.loads(shown.out.splitlines()[-1]), shown.err.splitlines()


def text_of(shown: list[str]) -> str:
    """What was wrapped, in one line."""
    return " ".join(" ".join(shown).split())


@pytest.fixture(scope="module")
def labelled() -> dict[str, LabelledLog]:
    return {log.name: log for log in failing_logs()}


def test_a_failure_behind_tee_has_cause_rank_lines_and_advice(capsys: pytest.CaptureFixture[str]) -> None:
    code, report, shown = diagnosed(capsys, FOLDER / "torchrun_nan.log")
    found = report["diagnosis"]
    assert code == 2
    assert (found["outcome"], found["cause"], found["rank"], found["line"]) == ("failed", "nan", 1, 14)
    assert shown[0].startswith("FAILED  nan on rank 1: ValueError: loss is nan at step 2")
    assert any("line 18, in fail" in line for line in shown)
    assert any(line.startswith("do ") for line in shown)
    assert len(shown) <= 25


def test_a_rank_that_printed_nothing_is_shown_with_the_last_lines_of_the_others(
    labelled: dict[str, LabelledLog], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.log").write_bytes(labelled["written/torchrun_exit_code"].files["job.log"])
    code, report, shown = diagnosed(capsys, tmp_path / "job.log")
    assert (code, report["diagnosis"]["rank"]) == (2, 2)
    assert shown[0].startswith("FAILED  exit_code: rank 2 ended first, with exit code 7")
    # Not the report, of which the headline has it all.
    assert not any("exitcode" in line for line in shown[1:])


def test_every_recorded_failure_fits_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted(FOLDER.glob("*.log")):
        code, _, shown = diagnosed(capsys, path, "--exit-code", "1")
        assert code == 2, path
        assert len(shown) <= 25, path


@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("hf_trainer.log", [], 0),
        ("hf_trainer_quiet.log", [], 0),
        ("nanogpt.log", [], 3),
        ("nanogpt.log", ["--exit-code", "0"], 0),
        ("nanogpt.log", ["--steps", "60"], 0),
        ("nanogpt.log", ["--exit-code", "-9"], 2),
        ("nanogpt.log", ["--exit-code", "137"], 2),
        ("torchtitan.log", ["--exit-code", "0"], 0),
    ],
)
def test_the_exit_code_says_whether_the_log_shows_a_good_end(
    name: str, args: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diagnosed(capsys, LOGS / name, *args)[0] == code


@pytest.mark.parametrize(
    ("end", "args", "codes"),
    [
        ([], ["--exit-code", "0"], (3, 0)),
        (["Training finished."], [], (3, 0)),
        (["Training finished."], ["--exit-code", "0"], (3, 0)),
        ([], [], (3, 0)),
    ],
)
def test_steps_that_were_asked_for_and_not_reached(
    end: list[str], args: list[str], codes: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [f"step {step}: loss {5 - step / 10}" for step in range(30)]
    folder = write(tmp_path, early__log=[*steps[:12], *end], whole__log=[*steps, *end])
    for name, code in zip(("early.log", "whole.log"), codes, strict=True):
        found_code, _, shown = diagnosed(capsys, folder / name, "--steps", "30", *args)
        assert found_code == code
        if end or args:
            assert ("the last step in the log is 11; 30 were requested" in text_of(shown)) == (code == 3)
    # Twice 15 are 30 only if they are epochs.
    twice = write(tmp_path, twice__log=[*steps[:15], *steps[:15], *end]) / "twice.log"
    code, _, shown = diagnosed(capsys, twice, "--steps", "30", "--exit-code", "0")
    assert code == 3 and "30 were requested; the step numbers start over" in text_of(shown)


def of_100(*steps: int) -> list[str]:
    return [f"step {number}/100 loss {5 - number / 50:.3f}" for number in steps]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (of_100(*range(1, 13)), 3),
        ([f"[10:00:{number}] INFO Iter: [{number}/100] lr 1e-4" for number in range(10, 22)], 3),
        (of_100(*range(1, 101)), 0),
        (of_100(*range(100)), 0),
        (of_100(*range(0, 100, 10)), 0),
        ([f"epoch {epoch}/3 {line}" for epoch in (1, 2, 3) for line in of_100(*range(100))], 0),
        ([f"epoch {epoch}/10 loss 2.5" for epoch in range(1, 5)], 0),
        ([*of_100(*range(1, 13)), "Early stopping: no better loss for 5 steps"], 0),
        ([*of_100(*range(1, 12)), "Early stopping: no better loss for 5 steps", *of_100(12)], 0),
        ([*of_100(*range(1, 101)), *(f"eval {line}" for line in of_100(*range(1, 13)))], 0),
        ([*of_100(*range(1, 13)), "Training finished."], 0),
    ],
)
def test_the_number_of_steps_that_each_line_names(lines: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how, _, shown = diagnosed(capsys, write(tmp_path, job__log=lines) / "job.log", "--exit-code", "0")
    assert how == code
    assert (" of 100" in shown[0]) == (code == 3)


@pytest.mark.parametrize("code", [[], ["--exit-code", "0"]])
def test_a_training_that_begins_after_a_good_end_needs_one_of_its_own(
    code: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [f"step {number} loss {5 - number / 20:.3f}" for number in range(30)]
    twice = [*steps, "Training finished.", "=== run 2", *steps]
    folder = write(tmp_path, cut__log=twice[:-18], whole__log=twice, late__log=[*steps, "Training finished.", *steps[-2:]])
    how, found, shown = diagnosed(capsys, folder / "cut.log", "--steps", "30", *code)
    assert (how, found["diagnosis"]["cause"]) == (3, "unknown")
    assert states(text_of(shown), "step 11", "another")
    assert diagnosed(capsys, folder / "whole.log", "--steps", "30", *code)[0] == 0
    assert diagnosed(capsys, folder / "late.log", "--steps", "30", *code)[0] == 0


def test_steps_that_no_log_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, silent__log=["loading"], said__log=["loading", "Training finished."])
    assert diagnosed(capsys, folder / "silent.log", "--exit-code", "0", "--steps", "30")[0] == 3
    assert diagnosed(capsys, folder / "silent.log", "--exit-code", "0")[0] == 0
    assert diagnosed(capsys, folder / "said.log", "--exit-code", "0", "--steps", "30")[0] == 0


STEPS = "".join(f"step {step}: loss 2.{900 - step}\n" for step in range(1, 21))
BARS = "".join(f" {done}%|##  | {done}/100 [00:10<01:30,  1.0it/s]\n" for done in (10, 20, 30, 40))
ITERATION = "iteration {}/ 1000 | consumed samples: 420000 | elapsed time per iteration (ms): 420.1 | lm loss: 2.1E+00 |\n"
WORKER = """Process ForkProcess-2:
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap
    self.run()
KeyboardInterrupt
"""
PROGRAM = """Traceback (most recent call last):
  File "/srv/job/train.py", line 31, in <module>
    evaluate()
KeyboardInterrupt
"""
GRACEFUL = "Epoch 0:  40%|####      | 20/50 [00:10<00:15, 2.00it/s]\n\nDetected KeyboardInterrupt, attempting graceful shutdown ...\n"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        pytest.param(BARS, (3, 3), id="cut in a progress bar"),
        pytest.param(BARS + "saved to /ckpt\n", (3, 0), id="a loop that was left early"),
        pytest.param("".join(map(ITERATION.format, (400, 410, 420))), (3, 3), id="cut in Megatron's steps"),
        pytest.param(STEPS + "Training complete.\nstage 2\n" + BARS, (3, 3), id="cut in the second stage"),
        pytest.param(ITERATION.format(1000) + "[after training is done] datetime: 2026-11-17 07:16:01\n", (0, 0), id="Megatron's end"),
        pytest.param(STEPS + "Training failed.\n", (3, 3), id="says that it failed"),
        pytest.param(STEPS + "Training finished.\nexit code 1 of helper ignored\n", (0, 0), id="a helper's code after the end"),
        pytest.param(STEPS + "Training finished.\njob ended with exit code 1\n", (3, 3), id="a code after the end"),
        pytest.param(STEPS + "Training finished after 20 of 100 steps: loss diverged\n", (3, 3), id="says that it diverged"),
        pytest.param(STEPS + "ERROR: Training finished with 3 failed ranks\n", (3, 3), id="says that ranks failed"),
        pytest.param(STEPS + "Training finished: 0 failed ranks\n", (3, 0), id="says that none failed"),
        pytest.param(STEPS + "Training complete.\n" + WORKER, (0, 0), id="a worker interrupted after the end"),
        pytest.param(STEPS + WORKER, (2, 3), id="a worker interrupted before it"),
        pytest.param(STEPS + "Training complete.\n" + PROGRAM + WORKER, (2, 3), id="the program interrupted after it"),
        pytest.param(GRACEFUL, (2, 3), id="an interrupt that Lightning caught"),
    ],
)
def test_a_log_that_proves_no_good_end_has_none(
    text: str, codes: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an exit code, and with one of 0, which may be that of a pipe's last command."""
    log = tmp_path / "job.log"
    log.write_text(text)
    assert (diagnosed(capsys, log)[0], diagnosed(capsys, log, "--exit-code", "0")[0]) == codes


def test_steps_rate_losses_and_the_scripts_own_summary(capsys: pytest.CaptureFixture[str]) -> None:
    _, report, shown = diagnosed(capsys, LOGS / "hf_trainer.log")
    steps, reported = report["steps"], report["reported"]
    assert (steps["last"], steps["total"], steps["rate_from"]) == (23, 24, "train_steps_per_second")
    assert reported["train_runtime"] == 10.78 and reported["train_steps_per_second"] == steps["steps_per_s"] == 2.226
    assert any(line.startswith("reported  train_runtime 10.8 s") for line in shown)
    titan = diagnosed(capsys, LOGS / "torchtitan.log")[1]["steps"]
    assert (titan["first"], titan["last"], titan["first_loss"], titan["last_loss"], titan["rate_from"]) == (1, 100, 8.16, 4.2, "timestamps")
    assert titan["steps_per_s"] == pytest.approx(5.0)
    assert diagnosed(capsys, LOGS / "nanogpt.log")[1]["steps"]["rate_from"] == "step times it printed"


def test_steps_of_a_format_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, job__log=[f"epoch 0 step {step} lr 1e-4 loss={5 - step / 10}" for step in range(20)])
    steps = diagnosed(capsys, folder / "job.log")[1]["steps"]
    assert (steps["first"], steps["last"], steps["first_loss"]) == (0, 19, 5.0)
    assert steps["steps_per_s"] is None


def test_a_slurm_pair_in_any_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [f"step {step}: loss {5 - step / 10}" for step in range(20)]
    end = ["srun: error: gpu-01: task 3: Exited with exit code 1"]
    folder = write(tmp_path, slurm_1__out=steps, slurm_1__err=[*TRACEBACK, *end])
    for names in (("slurm_1.out", "slurm_1.err"), ("slurm_1.err", "slurm_1.out")):
        code, report, _ = diagnosed(capsys, *(folder / name for name in names))
        found = report["diagnosis"]
        assert (code, found["detail"], found["rank"], found["line"]) == (2, "ValueError: no shard 7", 3, 4)
        assert found["source"].endswith("slurm_1.err")
        assert report["steps"]["last"] == 19


@pytest.mark.parametrize("name", ["split/log_dir", "split/file_per_rank", "split/file_per_node", "split/stamped_nodes"])
def test_a_folder_with_a_file_for_each_rank_or_node(
    name: str, labelled: dict[str, LabelledLog], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = labelled[name]
    for file, data in log.files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(data)
    code, report, _ = diagnosed(capsys, tmp_path)
    found = report["diagnosis"]
    assert (code, found["signature"], found["rank"]) == (2, log.signature, log.rank)


def test_a_rank_that_ends_before_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [f"step {number} loss {5 - number / 20:.3f}" for number in range(30)]
    whole = [*steps, "Training finished."]
    sparse, quiet = [*steps[::10], "waiting"], ["hello from a rank that prints no step"]
    folder = write(tmp_path / "ranks", rank0__log=whole, rank1__log=sparse, rank2__log=steps[:12], rank3__log=quiet)
    for more in ([], ["--steps", "30"], ["--exit-code", "0"]):
        code, found, shown = diagnosed(capsys, folder, *more)
        assert (code, found["diagnosis"]["cause"]) == (3, "unknown")
        assert "but rank 2 ends at step 11" in text_of(shown)
        assert "rank 1" not in text_of(shown)
    (folder / "rank2.log").write_text("".join(f"{line}\n" for line in whole))
    assert diagnosed(capsys, folder, "--steps", "30")[0] == 0


def test_an_attempt_that_another_file_goes_on_from_is_not_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [f"step {number} loss {5 - number / 20:.3f}" for number in range(30)]
    folder = write(tmp_path, first__log=steps[:12], second__log=[*steps[10:], "Training finished."])
    assert diagnosed(capsys, folder / "first.log", folder / "second.log", "--steps", "30")[0] == 0


def test_files_with_timestamps_are_read_in_their_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = [f"2026-11-17T10:21:{second:02d}Z {line}" for second, line in enumerate([*TRACEBACK[:-1], "KeyError: 'later'"])]
    early = [f"2026-11-17T10:11:{second:02d}Z {line}" for second, line in enumerate(TRACEBACK)]
    folder = write(tmp_path, a__log=late, b__log=early)
    assert diagnosed(capsys, folder)[1]["diagnosis"]["detail"] == "ValueError: no shard 7"
    # Without a common clock the files are read one after the other.
    folder = write(tmp_path / "unlike", a__log=late, b__log=TRACEBACK)
    assert diagnosed(capsys, folder)[1]["diagnosis"]["detail"] == "KeyError: 'later'"


def test_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(["step 1", *TRACEBACK]).encode())))
    code, report, _ = diagnosed(capsys, "-")
    assert (code, report["files"], report["diagnosis"]["line"]) == (2, ["stdin"], 5)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nothing.log"], "no such file"),
        (["-", "job.log"], "stdin"),
        (["job.log.gz"], "zcat job.log.gz | seatrial diagnose -"),
        (["empty"], "holds no log"),
        (["campaign"], "seatrial report campaign"),
        (["jobs"], "the logs of 2 jobs, 1 (slurm-1.out), 2 (slurm-2.err): name the files of one"),
        (["jobs/slurm-1.out", "jobs/slurm-2.err"], "the logs of 2 jobs"),
        (["array"], "the logs of 2 jobs, 17_0 (slurm-17_0.out), 17_1"),
        (["named"], "the logs of 2 jobs, 4711 (train-4711.out), 4712"),
        (["pbs"], "the logs of 2 jobs, 81 (job.o81), 82"),
    ],
)
def test_what_cannot_be_read_is_said(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.log.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "empty").mkdir()
    jobs = {
        "jobs": ("slurm-1.out", "slurm-2.err"),
        "array": ("slurm-17_0.out", "slurm-17_1.out"),
        "named": ("train-4711.out", "train-4711.err", "train-4712.out"),
        "pbs": ("job.o81", "job.e81", "job.o82"),
    }
    for name, files in jobs.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text("step 1\n")
    for run in ("a_r1", "b_r1"):
        folder = tmp_path / "campaign" / run / "attempt-1"
        folder.mkdir(parents=True)
        (folder / "launcher.log").write_text("step 1\n")
    assert run_command(["diagnose", *args]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "names",
    [
        ["slurm-17.out", "slurm-17.err"],
        ["train.o4711", "train.e4711"],
        ["job_0.out", "job_1.out"],
        ["train-rank-000.err", "train-rank-001.err"],
        ["node-1.log", "node-2.log"],
    ],
)
def test_files_of_one_job_are_read_together(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("step 1\n")
    assert sorted(file.name for file in find_logs([tmp_path])) == sorted(names)


@pytest.mark.parametrize(
    ("names", "are_refused"),
    [
        (["train_2026-11-16.log", "train_2026-11-17.log"], True),
        (["baseline.log", "bigger.log"], True),
        (["baseline/rank0.log", "bigger/rank0.log"], True),
        (["seed1.log", "seed2.log"], True),
        (["train.log", "rank0.log"], False),
        (["train.out", "train.err"], False),
        (["stdout", "stderr"], False),
        (["rank0.log", "rank1.log"], False),
        (["node1.out", "node2.out"], False),
        (["nodeA.out", "nodeB.out"], False),
        (["nid001234.log", "nid001235.log"], False),
        (["gpu-01.log", "gpu-02.log"], False),
        (["ip-10-0-0-1.log", "ip-10-0-0-27.log"], False),
        (["lm-worker-0-x7f9k.log", "lm-worker-1-b2d4q.log"], False),
        (["n1/attempt_0/0/stdout.log", "n1/attempt_0/1/stdout.log"], False),
        (["none_8fk2/attempt_0/0/stderr.log", "none_xq9d/attempt_0/0/stderr.log"], False),
    ],
)
def test_a_folder_of_several_jobs_is_refused_and_files_that_are_named_are_not(
    names: list[str], are_refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "".join(f"step {number} loss 2.5\n" for number in range(30)) + "Training finished.\n"
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(lines)
    (tmp_path / "setup.log").write_text("installed\n")
    assert run_command(["diagnose", str(tmp_path)]) == (1 if are_refused else 0)
    assert (f"2 jobs, {', '.join(names)}: name the files of one" in text_of([capsys.readouterr().err])) == are_refused
    assert run_command(["diagnose", *(str(tmp_path / name) for name in names)]) == 0


def test_an_attempts_folder_is_read_by_its_launcher_log(tmp_path: Path) -> None:
    folder = write(tmp_path / "attempt-1", launcher__log=["step 1"], agent__log=["ValueError: of the agent"])
    assert [file.name for file in find_logs([folder])] == ["launcher.log"]


@pytest.mark.parametrize("args", [[], ["--exit-code", "0"], ["--exit-code", "0", "--steps", "30"]])
@pytest.mark.parametrize(
    ("log", "why"),
    [
        (b"", "the log is empty"),
        (b" \n\t\r\n\n", "the log is empty"),
        ("step 1 loss 2.5\nValueError: é\n".encode("utf-16"), "(UTF-16?): convert it with iconv"),
        ("step 1 loss 2.5\nValueError: é\n".encode("utf-16-be"), "(UTF-16?): convert it with iconv"),
    ],
)
def test_a_log_in_which_nothing_can_be_read_shows_nothing(
    log: bytes, why: str, args: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.log").write_bytes(log)
    code, _, shown = diagnosed(capsys, tmp_path / "job.log", *args)
    assert code == 3
    assert why in text_of(shown)
    assert diagnosed(capsys, tmp_path / "job.log", "--exit-code", "1")[0] == 2


def test_advice_names_nothing_that_only_a_campaign_has() -> None:
    """Entries that a log or an exit code can show."""
    shown = [entry for entry in signatures() if entry.patterns and not entry.slows]
    shown += [general(cause) for cause in {entry.cause for entry in shown} | {entry.cause for entry in signatures() if entry.exit_codes}]
    for entry in shown:
        text = advice_without_plan(entry.id)
        for word in ("launcher.log", "command.sh", "seatrial logs", "place.", "limits.", "this group", "in `env`", "Seatrial", "[stage1]"):
            assert word not in text, (entry.id, text)


def test_a_loss_that_is_no_number_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"step {step} loss {'nan' if step >= 10 else 4 - step / 10}" for step in range(40)]
    folder = write(tmp_path, job__log=[*lines, "Training complete."], once__log=[*lines[:12], "step 12 loss 2.5", "Training complete."])
    for args in ([], ["--exit-code", "0"]):
        code, report, shown = diagnosed(capsys, folder / "job.log", *args)
        assert (code, report["steps"]["nan_from"], report["diagnosis"]["cause"]) == (3, 10, "nan")
        assert "nan" in shown[0] and "step 10" in shown[0]
    code, report, _ = diagnosed(capsys, folder / "once.log")
    assert (code, report["steps"]["nan_from"], report["steps"]["num_nan"]) == (0, None, 2)


def test_steps_of_a_job_that_began_anew_are_those_of_its_last_attempt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def series(last: int) -> list[str]:
        return [f"step {step} loss {5 - step / 10}" for step in range(last + 1)]

    folder = write(tmp_path, retried__log=[*series(9), "retrying (2/3)...", *series(39)], epochs__log=[*series(9), *series(9), *series(4)])
    steps = diagnosed(capsys, folder / "retried.log")[1]["steps"]
    assert (steps["first"], steps["last"], steps["num_restarts"], steps["first_loss"]) == (0, 39, 1, 5.0)
    # Neither a restart nor an epoch is named: no step that no line has is shown.
    _, report, shown = diagnosed(capsys, folder / "epochs.log")
    steps = report["steps"]
    assert (steps["first"], steps["last"], steps["num_lines"], steps["num_restarts"], steps["num_started_over"]) == (0, 9, 25, 0, 2)
    assert any(line.startswith("steps     0 to 9, numbers that start over 2 times") for line in shown)
    named = [f"epoch {epoch} {line}" for epoch in range(2) for line in series(9)]
    steps = diagnosed(capsys, write(tmp_path, named__log=named) / "named.log")[1]["steps"]
    assert (steps["last"], steps["num_started_over"]) == (19, 0)
    # Shorter attempts, of which no launcher reports the end.
    folder = write(tmp_path, failed__log=[*series(19), *TRACEBACK, *series(14), *TRACEBACK, "retrying (3/3)...", *series(11), *TRACEBACK])
    steps = diagnosed(capsys, folder / "failed.log")[1]["steps"]
    assert (steps["first"], steps["last"], steps["num_restarts"]) == (0, 11, 2)
    # From a checkpoint it goes on.
    folder = write(tmp_path, resumed__log=[*series(19), *TRACEBACK, "Resuming from checkpoint 15", *series(39)[15:]])
    assert diagnosed(capsys, folder / "resumed.log")[1]["steps"]["last"] == 39


def test_an_interrupt_and_an_exit_code_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, stopped__log=["step 1", *TRACEBACK[:-1], "KeyboardInterrupt"], quiet__log=["hello"])
    for args in ([], ["--exit-code", "130"]):
        code, report, shown = diagnosed(capsys, folder / "stopped.log", *args)
        assert (code, report["diagnosis"]["outcome"]) == (2, "interrupted")
        assert "SIGINT" in shown[0]
    # It is the exit code that says so: the log shows nothing.
    code, report, shown = diagnosed(capsys, folder / "quiet.log", "--exit-code", "0")
    assert (code, report["diagnosis"]["good_end"]) == (0, False)
    assert "good end" not in shown[0]


def test_losses_of_a_log_without_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        f"{{'loss': {4 - part / 10:.4f}, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': {part / 60:.2f}}}" for part in range(1, 20)
    ]
    _, report, shown = diagnosed(capsys, write(tmp_path, job__log=lines) / "job.log")
    steps = report["steps"]
    assert (steps["last"], steps["first_loss"], steps["last_loss"], steps["lowest_loss"]) == (None, 3.9, 2.1, 2.1)
    assert any(line.startswith("loss ") and "3.9" in line and "no step numbers" in line for line in shown)


UNCAUGHT = [TRACEBACK[0], '  File "train.py", line 20, in <module>', "    main()", *TRACEBACK[1:]]


@pytest.mark.parametrize(("names", "code"), [(["rank0.log", "rank1.log", "rank2.log"], 2), (["job_0.out", "job_1.out", "job_2.out"], 3)])
def test_a_file_that_ends_in_a_traceback_is_not_made_good_by_others(
    names: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file for each rank, or for each job of an array, in any order."""
    steps = [f"iter {number}: loss {4 - number / 20:.4f}" for number in range(40)]
    texts = [[*steps, "Training complete."], [*steps[:12], *UNCAUGHT], [*steps, "Training complete."]]
    for name, lines in zip(names, texts, strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    paths = [tmp_path / name for name in names]
    for order in ([tmp_path], paths, paths[::-1], [paths[1], paths[0], paths[2]]):
        found_code, report, _ = diagnosed(capsys, *order)
        assert (found_code, report["diagnosis"]["detail"]) == (code, "ValueError: no shard 7")
        assert diagnosed(capsys, *order, "--exit-code", "0")[0] == 3


def test_an_attempt_that_torchrun_started_again_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [f"iter {number}: loss {4 - number / 20:.4f}" for number in range(40)]
    printed = {
        "attempt_0/0/stdout.log": steps[:20],
        "attempt_0/1/stderr.log": UNCAUGHT,
        "attempt_1/0/stdout.log": [*steps, "Training complete."],
        "attempt_1/1/stderr.log": [],
    }
    for name, lines in printed.items():
        (tmp_path / "none_ab" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "none_ab" / name).write_text("".join(f"{line}\n" for line in lines))
    code, report, _ = diagnosed(capsys, tmp_path)
    assert (code, report["steps"]["last"]) == (0, 39)
    (tmp_path / "none_ab" / "attempt_1/1/stderr.log").write_text("\n".join(UNCAUGHT) + "\n")
    code, report, _ = diagnosed(capsys, tmp_path)
    assert (code, report["diagnosis"]["rank"]) == (2, 1)
