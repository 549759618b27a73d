"""Lines that look bad and are not: found in every form, counted, taken out, and nothing else with them."""

from __future__ import annotations

import pytest

from seatrial.collect.harmless import HARMLESS, count_harmless, without_harmless
from tests.unit.collect.harmless_lines import BY_ID, HARMLESS_LINES


@pytest.mark.parametrize(("id", "line"), [(id, line) for id, lines in BY_ID.items() for line in lines])
def test_each_form_is_known(id: str, line: str) -> None:
    assert count_harmless(f"step 1\n{line}\nstep 2\n".encode()) == {id: 1}
    assert without_harmless(line) != line


def test_every_entry_has_forms() -> None:
    assert {entry.id for entry in HARMLESS} == set(BY_ID)
    assert all(len(entry.patterns) == len(entry.telling) for entry in HARMLESS)


def test_all_of_them_are_counted_at_once() -> None:
    block = "\n".join(HARMLESS_LINES * 3).encode()
    assert count_harmless(block) == {id: 3 * len(lines) for id, lines in BY_ID.items()}


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/root/.triton/autotune/Fp16Matmul_2d_kernel.pickle.tmp'",
        "df: /mnt/data: Input/output error",
        "df: /mnt/data: No such file or directory",
        "RuntimeError: destroy_process_group() was called twice",
        "dist.destroy_process_group()",
        "lr_scheduler.step()",
        "",
    ],
)
def test_what_is_no_such_line_is_left_alone(line: str) -> None:
    assert count_harmless(line.encode()) == {}
    assert without_harmless(line) == line


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("df: /root/.triton/autotune: No such file or directoryRuntimeError: bad", "RuntimeError: bad"),
        ("df: /root/.triton/autotune: No such file or directory RuntimeError: bad", "RuntimeError: bad"),
        ("ValueError: bad df: /root/.triton/autotune: No such file or directory", "ValueError: bad "),
        ("    raise X('destroy_process_group() was not called before program exit')", "    raise X('')"),
    ],
)
def test_what_shares_its_line_stays(line: str, rest: str) -> None:
    assert without_harmless(line) == rest


def test_bytes_that_are_no_text_are_no_hindrance() -> None:
    assert count_harmless(b"\xff\xfe\x00 df: /root/.triton/autotune: No such file or directory\xff\n") == {"triton_autotune": 1}
