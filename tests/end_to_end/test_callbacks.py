"""Scripts of the Hugging Face Trainer and of Lightning with Seatrial's callback: a campaign reads their events, phases and stragglers."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.analyse.stragglers import find_straggler
from seatrial.collect.attempts import read_attempt
from seatrial.collect.steps import read_steps
from seatrial.records.measure import StragglerVerdict
from tests.csv_files import rows_of
from tests.harness import Harness, skip_without
from tests.workloads.ranks import events

JOBS = Path(__file__).parents[1] / "workloads"
LIGHTNING_JOB = [str(JOBS / "lightning_job.py"), "--strategy", "ddp", "--devices", "2"]
PHASES = ("data_wait_ms", "fwd_ms", "bwd_ms", "step_ms")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "argv"),
    [
        (("transformers", "accelerate"), ["torchrun", "--nproc_per_node", "2", str(JOBS / "hf_job.py")]),
        # Lightning starts its second rank itself. The older name of the package: the newer one is tested with the callback alone.
        (("pytorch_lightning",), ["python", *LIGHTNING_JOB, "--package", "pytorch_lightning"]),
    ],
)
def test_a_campaign_over_a_trainer_with_the_callback(harness: Harness, packages: tuple[str, ...], argv: list[str]) -> None:
    skip_without(*packages)
    command = [*argv, "--steps", "{steps}", "--slow_rank", "1"]
    harness.run("sweep", "-P", "steps=40", "--repeats", "1", "--out", "out", "--", *command)
    (row,) = harness.manifest()
    assert (row["source"], row["outcome"], row["world_size"], row["last_step"]) == ("events", "ok", "2", "39")
    (measured,) = rows_of(harness.out.per_run_metrics)
    assert float(measured["wall_samples_per_sec"]) > 0 and float(measured["startup_data_sec"]) > 0

    (run,) = harness.out.runs()
    attempt = read_attempt(run.attempts()[-1])
    assert attempt is not None
    tables = read_steps(attempt)
    assert [(one.rank, one.gpu) for one in tables.locations] == [(0, ""), (1, "")]
    starts = [event for rank in (0, 1) for event in events(Path(attempt.folder), "start", rank)]
    assert [(start["world_size"], start["local_rank"], start["gpu"]) for start in starts] == [(2, 0, None), (2, 1, None)]
    assert all(tables.steps[phase].null_count() == 0 for phase in PHASES)

    found = find_straggler(tables, None)
    assert found is not None
    assert (found.verdict, found.rank, found.phase) == (StragglerVerdict.NAMED, 1, "fwd"), found.reason
