"""What scripts print about themselves, and the number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.analyse.measure import measure_run
from seatrial.collect.steps import read_log_steps, read_steps
from seatrial.core.files import write_json
from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import StepTables
from seatrial.records.codec import to_json
from seatrial.records.launch import ObservedRanks
from seatrial.records.measure import RunMeasure
from seatrial.records.plan import LauncherSpec
from seatrial.records.run_table import run_cells
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events, write_log

STEPS = "".join(f"iter {step}: loss 2.0000, time 50.00ms, mfu 3.21%\n" for step in range(12))
NANOGPT = f"tokens per iteration will be: 16,384\n{STEPS}"
HF = """\
[INFO|trainer.py:2519] 2026-01-01 >> ***** Running training *****
[INFO|trainer.py:2520] 2026-01-01 >>   Num examples = 38,400
[INFO|trainer.py:2522] 2026-01-01 >>   Instantaneous batch size per device = 8
[INFO|trainer.py:2525] 2026-01-01 >>   Total train batch size (w. parallel, distributed & accumulation) = 64
[INFO|trainer.py:2526] 2026-01-01 >>   Gradient Accumulation steps = 4
[INFO|trainer.py:2527] 2026-01-01 >>   Total optimization steps = 600
"""
HF_LINES = "".join(f"{{'loss': {600 - step}.0, 'learning_rate': 5e-05, 'epoch': {round(step / 600, 2)}}}\n" for step in range(1, 601))
HF_END = "{'train_runtime': 300.0, 'train_samples_per_second': 128.0, 'train_steps_per_second': 2.0, 'train_loss': 1.0, 'epoch': 1.0}\n"
TORCHTITAN = (
    "[titan] 2026-01-01 10:00:00,000 - root - INFO - Trainer is initialized with local batch size 8, global batch size 64, gradient "
    "accumulation steps 4, sequence length 2048, total steps 12 (warmup 2)\n"
    + "".join(f"[titan] 2026-01-01 10:00:00,000 - root - INFO - step: {step:2}  loss:  8.0  memory:  1.0GiB\n" for step in range(1, 12))
)


def megatron(batch_sizes: list[int]) -> str:
    arguments = "  global_batch_size ............................... 64\n  seq_length ...................................... 2048\n"
    arguments += "  encoder_seq_length .............................. 4096\n"
    lines = (
        f" [2026-01-01 10:00:00] iteration {10 * number:8d}/     500 | consumed samples: {640 * number:12d} | elapsed time per iteration "
        f"(ms): 50.0 | learning rate: 1.500000E-04 | global batch size: {size:5d} | lm loss: 1.{number:02d}0000E+01 | loss scale: 1.0 |\n"
        for number, size in enumerate(batch_sizes, 1)
    )
    world = "using world size: 8, data-parallel size: 8, context-parallel size: 1, tensor-model-parallel size: 1\n"
    return world + "------------------------ arguments ------------------------\n" + arguments + "".join(lines)


def read(
    tmp_path: Path, text: str, *, ranks: int = 1, kind: str = "python", observed: ObservedRanks | None = None, **workload: object
) -> tuple[StepTables, RunMeasure]:
    """The tables of a log whose lines came half a second apart, and what is measured of them."""
    spec = factory.spec(workload=dict(workload), ranks=ranks, launcher=LauncherSpec(kind=kind))
    attempt = write_attempt(tmp_path, spec)
    write_log(attempt, text, every_s=0.5)
    if observed:
        write_json(AttemptPaths(Path(attempt.folder)).observed_ranks, to_json(observed))
    tables = read_log_steps(attempt)
    assert tables is not None
    return tables, measure_run(attempt, tables)


def source_of(tables: StepTables, kind: str) -> str:
    return next((caution.text for caution in tables.cautions if caution.kind == kind), "")


def test_tokens_of_nanogpt_are_those_of_all_ranks(tmp_path: Path) -> None:
    tables, measure = read(tmp_path, NANOGPT, ranks=2)
    assert measure.tokens_per_s == pytest.approx(16384 / 0.5) and measure.samples_per_s is None
    (caution,) = (caution for caution in tables.cautions if caution.kind == "work_from_log")
    assert states(caution.text, "16,384", "'tokens per iteration will be: 16,384'")
    assert caution.numbers == {"tokens_per_step": 16384}


def test_the_trainers_total_batch_and_its_losses_at_their_steps(tmp_path: Path) -> None:
    tables, measure = read(tmp_path, HF + HF_LINES + HF_END, ranks=2)
    assert measure.samples_per_s == pytest.approx(64 / 0.5) and measure.steps_per_s == pytest.approx(2.0)
    assert tables.steps["step"].to_list() == list(range(600)) and tables.steps["loss"].to_list() == [
        float(599 - step) for step in range(600)
    ]
    assert {caution.kind for caution in tables.cautions} == {"work_from_log"}
    assert "Samples per step 64, from the log: " in source_of(tables, "work_from_log") and "= 64'" in source_of(tables, "work_from_log")


def test_torchtitans_header_gives_samples_and_tokens(tmp_path: Path) -> None:
    _, measure = read(tmp_path, TORCHTITAN, ranks=2)
    assert measure.samples_per_s == pytest.approx(64 / 0.5) and measure.tokens_per_s == pytest.approx(64 * 2048 / 0.5)


def test_megatrons_lines_and_arguments(tmp_path: Path) -> None:
    tables, measure = read(tmp_path, megatron([64] * 12))
    assert tables.source == "log:megatron" and tables.steps["step"].to_list() == list(range(10, 130, 10))
    assert tables.steps["loss"].to_list()[0] == 10.1
    assert tables.world_size == 8 and source_of(tables, "ranks_observed").startswith("8 ranks, from the log: 'using world size: 8")
    assert measure.samples_per_s == pytest.approx(64 * 10 / 0.5) and measure.tokens_per_s == pytest.approx(64 * 10 * 2048 / 0.5)


def test_a_batch_that_grows_counts_as_each_line_says(tmp_path: Path) -> None:
    tables, _ = read(tmp_path, megatron([16, 32, 64]), ranks=8)
    assert tables.steps["samples"].to_list() == [2.0, 4.0, 8.0] and tables.steps["tokens"].to_list() == [4096.0, 8192.0, 16384.0]


def test_a_script_with_the_probe_may_leave_its_work_to_the_log(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    write_log(attempt, "tokens per iteration will be: 16,384\n")
    for rank in (0, 1):
        steps = [event(attempt, rank=rank, step=step, iter_ms=500.0, t=step / 2, m=step / 2) for step in range(12)]
        write_events(attempt, rank, "\n".join([event(attempt, "start", rank=rank, world_size=2), *steps]) + "\n")
    tables = read_steps(attempt)
    assert tables.source == "events" and measure_run(attempt, tables).tokens_per_s == pytest.approx(16384 / 0.5)
    assert source_of(tables, "work_from_log")


def test_what_the_plan_says_wins_and_a_contradiction_is_named(tmp_path: Path) -> None:
    tables, measure = read(tmp_path, NANOGPT, ranks=2, tokens_per_step=8192.0)
    assert measure.tokens_per_s == pytest.approx(16384 / 0.5) and not tables.cautions
    tables, measure = read(tmp_path / "other", NANOGPT, ranks=2, tokens_per_step=4096.0)
    assert measure.tokens_per_s == pytest.approx(8192 / 0.5)
    numbers = next(caution.numbers for caution in tables.cautions if caution.kind == "work_disagrees")
    assert numbers == {"tokens_per_step": 16384, "typed": 8192.0}


def test_two_trainings_in_one_log_give_no_number(tmp_path: Path) -> None:
    tables, measure = read(tmp_path, NANOGPT.replace("iter 6:", "tokens per iteration will be: 64\niter 6:"))
    assert measure.tokens_per_s is None and source_of(tables, "work_contradictory")


def test_own_patterns_may_give_the_work_of_all_ranks(tmp_path: Path) -> None:
    pattern = r"iter (?P<step>\d+).* batch (?P<global_samples>\d+)"
    text = "".join(f"iter {step} batch 32\n" for step in range(12))
    _, measure = read(tmp_path, text, ranks=4, patterns=(pattern,))
    assert measure.samples_per_s == pytest.approx(32 / 0.5)


def test_ranks_behind_a_shell_count_as_they_ran(tmp_path: Path) -> None:
    observed = ObservedRanks(world_sizes=(2,), ranks=(0, 1), launchers=("torchrun",), looks=4)
    tables, measure = read(tmp_path, STEPS, kind="command", observed=observed, samples_per_step=8.0)
    assert measure.world_size == 2 and measure.samples_per_s == pytest.approx(2 * 8 / 0.5)
    assert source_of(tables, "ranks_observed") == "2 ranks, from WORLD_SIZE of its processes."


@pytest.mark.parametrize(
    ("kind", "observed", "args"),
    [
        ("command", ObservedRanks(launchers=("accelerate", "docker"), looks=9), ()),
        ("command", ObservedRanks(world_sizes=(2, 4), looks=9), ()),
        ("command", None, ("-c", "set -e; torchrun --nproc_per_node 2 train.py | tee log")),
        ("python", ObservedRanks(spawned=2, looks=9), ()),
        ("python", ObservedRanks(forked=2, looks=9), ()),
    ],
)
def test_an_unknown_number_of_ranks_gives_no_figures_that_need_it(
    tmp_path: Path, kind: str, observed: ObservedRanks | None, args: tuple[str, ...]
) -> None:
    workload = {"script": "bash", "args": args, "samples_per_step": 8.0, "tokens_per_step": 64.0}
    attempt = write_attempt(tmp_path, factory.spec(workload=workload, launcher=LauncherSpec(kind=kind)))
    write_log(attempt, STEPS, every_s=0.5)
    if observed:
        write_json(AttemptPaths(Path(attempt.folder)).observed_ranks, to_json(observed))
    tables = read_steps(attempt)
    measure = measure_run(attempt, tables)
    assert not measure.ranks_known and measure.samples_per_s is None and measure.tokens_per_s is None
    assert measure.steps_per_s == pytest.approx(2.0)
    cells = run_cells(attempt, measure)
    assert (cells["world_size"], cells["global_batch"], cells.get("tail_samples_per_sec")) == (None, None, None)
    assert [caution.kind for caution in tables.cautions] == ["ranks_unknown"]


def test_ranks_that_were_not_seen_are_not_said_to_lack_variables(tmp_path: Path) -> None:
    observed = ObservedRanks(launchers=("torchrun",), looks=6)
    tables, _ = read(tmp_path, STEPS, kind="command", observed=observed, samples_per_step=8.0)
    assert "no process with rank variables was seen at 6 looks" in source_of(tables, "ranks_unknown")


def test_the_work_of_all_ranks_is_known_without_their_number(tmp_path: Path) -> None:
    observed = ObservedRanks(launchers=("docker",), looks=9)
    _, measure = read(tmp_path, NANOGPT, kind="command", observed=observed, tokens_per_step=4096.0)
    assert not measure.ranks_known and measure.tokens_per_s == pytest.approx(16384 / 0.5)


def test_a_number_of_ranks_left_to_torchrun_is_known_only_from_its_processes(tmp_path: Path) -> None:
    launcher = LauncherSpec(kind="torchrun", args=("--nproc-per-node=auto",))
    attempt = write_attempt(tmp_path, factory.spec(launcher=launcher))
    write_log(attempt, STEPS)
    assert not read_steps(attempt).ranks_known
    write_json(AttemptPaths(Path(attempt.folder)).observed_ranks, to_json(ObservedRanks(world_sizes=(4,))))
    assert (read_steps(attempt).ranks_known, read_steps(attempt).world_size) == (True, 4)


@pytest.mark.parametrize("kind", ["python", "command", "torchrun"])
def test_one_process_without_variables_is_one_rank(tmp_path: Path, kind: str) -> None:
    observed = ObservedRanks(launchers=("accelerate",), looks=9)
    _, measure = read(tmp_path, STEPS, kind=kind, observed=observed, samples_per_step=8.0)
    assert measure.ranks_known and measure.world_size == 1 and measure.samples_per_s == pytest.approx(16.0)
