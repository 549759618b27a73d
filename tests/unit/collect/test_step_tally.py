"""Steps of a large log, read line by line, are those that are found when all lines are read at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.collect.step_tally import IN_ONE_LINE
from seatrial.core.log_lines import LOG_FORMATS
from seatrial.results import step_summary
from tests.unit.collect.on_disk import RECORDED

SIZE = 20_000
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 9, in load\nValueError: no shard 7\n'

Line = Callable[[int, str], str]
FORMATS: dict[str, Line] = {
    "seed": lambda step, loss: f"Step {step}: Loss {loss}",
    "nanogpt": lambda step, loss: f"iter {step}: loss {loss}, time {step % 90 + 10}.05ms, mfu 3.21%",
    "torchtitan": lambda step, loss: f"[titan] 2026-11-17 10:00:00,{step % 1000:03d} - step: {step:,}  loss: {loss}  tps: {step + 1000:,}",
    "megatron": lambda step, loss: f" iteration {step:8d}/ 99999 | elapsed time per iteration (ms): 420.1 | lm loss: {loss} |",
    "": lambda step, loss: f"it step={step} | LOSS: {loss}",
}


def summaries(log: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[step_summary.StepSummary, step_summary.StepSummary]:
    """Read at once, and line by line."""
    log.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    at_once = step_summary.summarise_steps([log])[0]
    monkeypatch.setattr(step_summary, "STEPS_BYTES", SIZE // 2)
    by_line = step_summary.summarise_steps([log])[0]
    assert at_once is not None and by_line is not None and by_line.is_whole
    assert (at_once.rates_of_bytes, by_line.rates_of_bytes) == (None, SIZE // 4)
    return at_once, by_line


def facts(summary: step_summary.StepSummary) -> dict[str, object]:
    rates = ("interval", "steps_per_s", "rate_from", "tokens_per_s", "samples_per_s", "rates_of_bytes")
    return {name: value for name, value in vars(summary).items() if name not in rates}


def noise(chooser: random.Random, step: int, of_another_rank: str) -> str:
    """What may stand between two steps."""
    return chooser.choice(
        (
            f"gpu-{step % 8:02d}:{step} NCCL INFO Channel {step % 32:02d}/0\n",
            f"val step {step} loss 9.9\n",
            f"[rank1]: {of_another_rank}\n",
            f"\x1b[32mINFO\x1b[0m step done café {step}\n",
            "\udcff\udcfe\n",
            f"  {step % 100}%|##   | {step % 100}/100 [00:01<00:01]\r  99%|##   | 99/100 [00:01<00:01]\n",
            f"hash {chooser.random()}\n",
        )
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("mark", ["", "[rank0]: "])
def test_every_line_is_read(name: str, mark: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = random.Random(seed)
    lines: list[str] = []
    step = 0
    while sum(map(len, lines)) < 2 * SIZE:
        loss = "nan" if chooser.random() < 0.05 else f"{9 * chooser.random():.4f}"
        lines.append(f"{mark}{FORMATS[name](step, loss)}\n")
        lines += [noise(chooser, step, FORMATS[name](step + 7, "0.001"))] if chooser.random() < 0.4 else []
        step += 1
    at_once, by_line = summaries(tmp_path / "job.log", "".join(lines), monkeypatch)
    assert facts(at_once) == facts(by_line)
    assert at_once.format == name and at_once.num_lines == step


@pytest.mark.parametrize("between", ["", TRACEBACK, "retrying (2/3)...\n", "=== Epoch {} ===\n", "\x1b[1mepoch {}\x1b[0m done\n"])
@pytest.mark.parametrize("own_epoch", ["", "epoch {} "])
def test_numbers_that_begin_anew(between: str, own_epoch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ""
    for number, length in enumerate((120, 150, 90, 150), start=1):
        text += "".join(f"{own_epoch.format(number)}step {step} loss {8 - step / 100} {'.' * 30}\n" for step in range(length))
        # A line of another process, late.
        text += "step 50 loss 0.1\n" + between.format(number)
    at_once, by_line = summaries(tmp_path / "job.log", text + "step 151 loss nan\n", monkeypatch)
    assert facts(at_once) == facts(by_line)
    assert by_line.nan_from is not None and by_line.lowest_loss != 0.1


def test_formats_with_a_digit_in_their_expressions_are_not_read_by_shape() -> None:
    """A digit of the line could be another one."""
    for name, fmt in IN_ONE_LINE.items():
        plain = "".join(fmt.lines).replace("{0,4}", "").replace("{0,200}", "").replace("[eE]", "")
        assert not any(char.isdecimal() for char in plain), name
    assert set(IN_ONE_LINE) - set(LOG_FORMATS) == {"step_and_loss"}


@pytest.mark.parametrize("name", ["hf_trainer_v4", "lightning", "deepspeed"])
def test_what_was_not_read_is_said(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "job.log"
    log.write_bytes((RECORDED / f"{name}.log").read_bytes())
    whole = step_summary.summarise_steps([log])[0]
    monkeypatch.setattr(step_summary, "STEPS_BYTES", log.stat().st_size * 9 // 10)
    half = step_summary.summarise_steps([log])[0]
    assert whole is not None and half is not None
    assert (whole.is_whole, half.is_whole) == (True, False)
