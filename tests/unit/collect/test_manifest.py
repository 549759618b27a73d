"""The manifest: columns, growth, and what must survive."""

from __future__ import annotations

import csv
from pathlib import Path

from seatrial.collect.manifest import append_manifest, manifest_row, read_manifest, timing_point_rows, write_manifest, write_timing_points
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Scalar
from seatrial.records.columns import MANIFEST_OURS, MANIFEST_STAGE1, TIMING_POINTS
from seatrial.records.measure import TimingPoint
from seatrial.records.outcome import Cause, Outcome
from tests.unit.analyse import factory

COLUMNS = [*MANIFEST_STAGE1, *MANIFEST_OURS]


def rows_on_disk(path: Path) -> list[dict[str, str]]:
    return list(read_manifest(path))


def header(path: Path) -> list[str]:
    return path.read_text().splitlines()[0].split("\t")


def test_a_row_has_the_seeds_columns_then_ours_then_the_axes() -> None:
    run = factory.measured(
        factory.spec("mb8", 2, axes={"micro_batch": 8, "opt": "adam"}, settings={"micro_batch": 8}, ranks=2),
        measure={
            "world_size": 2,
            "samples_per_s": 320.0,
            "effective": factory.effective(
                {"precision": ("auto", "bf16", "cc 9.0"), "attention": ("flash", "sdpa", "flash_attn is not installed")}
            ),
            "stage1": {"last_iter_p50_ms": 41.5, "iter_p90_over_p50": 1.25, "tail_std_iter_p50_ms": 0.5, "unstable_run_flag": False},
        },
        provenance=Provenance(gpu_name="H100", git_commit_hash="0123456789abcdef", fingerprint="f0"),
    )
    row = manifest_row(run.attempt, run.measure)
    assert list(row) == [*COLUMNS, "axis_opt"]
    expected: dict[str, Scalar] = {
        "status": "success",
        "outcome": "ok",
        "group": "mb8",
        "repeat": 2,
        "micro_batch": 8,
        "world_size": 2,
        "global_batch": 16,
        "precision_mode_req": "auto",
        "precision_mode_effective": "bf16",
        "attn_impl_req": "flash",
        "attn_impl_effective": "sdpa",
        "fallback_reasons": "precision: auto → bf16 (cc 9.0); attention: flash → sdpa (flash_attn is not installed)",
        "gpu_name": "H100",
        "git_commit_short": "0123456789ab",
        "last_iter_ms_p50": 41.5,
        "iter_p90_over_p50": 1.25,
        "unstable_run_flag": False,
        "wall_samples_per_sec": 320.0,
        "window_n": 100,
        "steady": True,
        "axis_opt": "adam",
        "started_at": "2026-11-14T23:46:40+00:00",
    }
    assert {name: row[name] for name in expected} == expected


def test_a_failed_run_without_measures_has_a_row() -> None:
    attempt = factory.attempt(outcome=Outcome.TIMEOUT, cause=Cause.RUN_LIMIT)
    row = manifest_row(attempt, None)
    assert (row["status"], row["outcome"], row["cause"], row["wall_s"]) == ("failed", "timeout", "run_limit", None)
    unfinished = manifest_row(factory.attempt(outcome=None), None)
    assert (unfinished["status"], unfinished["outcome"]) == ("failed", "unfinished")


def test_rows_with_other_axes_share_one_header(tmp_path: Path) -> None:
    path = tmp_path / "run_manifest.tsv"
    write_manifest(path, [manifest_row(factory.attempt(factory.spec(axes=axes)), None) for axes in ({"bs": 8}, {"lr": 0.1})])
    assert header(path) == [*COLUMNS, "axis_bs", "axis_lr"]
    assert [(row["axis_bs"], row["axis_lr"]) for row in rows_on_disk(path)] == [("8", ""), ("", "0.1")]


def test_it_grows_by_rows_and_widens_for_a_new_axis(tmp_path: Path) -> None:
    path = tmp_path / "run_manifest.tsv"
    for group, axes in (("a", {"bs": 8}), ("b", {"bs": 16}), ("c", {"lr": 0.1})):
        append_manifest(path, manifest_row(factory.attempt(factory.spec(group, axes=axes)), None))
    assert [row["group"] for row in rows_on_disk(path)] == ["a", "b", "c"]
    assert [row["axis_bs"] for row in rows_on_disk(path)] == ["8", "16", ""]
    assert header(path) == [*COLUMNS, "axis_bs", "axis_lr"]


def test_a_manifest_of_the_seed_is_widened_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "run_manifest.tsv"
    path.write_text("\t".join(MANIFEST_STAGE1) + "\n" + "\t".join(["ab", "tuned", "1", "success", *[""] * 56]) + "\n")
    append_manifest(path, manifest_row(factory.attempt(), None))
    assert header(path) == COLUMNS
    assert [(row["mode"], row["group"], row["run"]) for row in rows_on_disk(path)] == [("ab", "tuned", ""), ("sweep", "mb8", "mb8_r1")]


def test_an_unfinished_last_row_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "run_manifest.tsv"
    append_manifest(path, manifest_row(factory.attempt(factory.spec("a")), None))
    path.write_text(path.read_text() + "sweep\ttorn")
    append_manifest(path, manifest_row(factory.attempt(factory.spec("b")), None))
    assert [row["group"] for row in rows_on_disk(path)] == ["a", "torn", "b"]


def test_an_empty_file_gets_its_header(tmp_path: Path) -> None:
    path = tmp_path / "run_manifest.tsv"
    path.touch()
    append_manifest(path, manifest_row(factory.attempt(), None))
    assert len(rows_on_disk(path)) == 1


def test_a_row_truncated_inside_a_character_does_not_stop_the_next(tmp_path: Path) -> None:
    path = tmp_path / "run_manifest.tsv"
    append_manifest(path, manifest_row(factory.attempt(factory.spec("a")), None))
    path.write_bytes(path.read_bytes() + b"sweep\tgro\xc3")
    append_manifest(path, manifest_row(factory.attempt(factory.spec("b")), None))
    assert [row["group"] for row in rows_on_disk(path)] == ["a", "gro�", "b"]


def test_text_with_tabs_and_line_ends_stays_one_row(tmp_path: Path) -> None:
    path = tmp_path / "run_manifest.tsv"
    for group in ("a\tb", "c\nd"):
        append_manifest(path, manifest_row(factory.attempt(factory.spec(group)), None))
    assert [row["group"] for row in rows_on_disk(path)] == ["a b", "c d"]


def test_timing_points_have_the_seeds_columns(tmp_path: Path) -> None:
    points = (TimingPoint(index=0, step=50, values={"iter_ms_p50": 41.25, "iter_ms_p90": 44.0, "fwd_ms_p50": None}),)
    run = factory.measured(measure={"timing_points": points})
    assert run.measure is not None
    path = tmp_path / "timing_points.csv"
    write_timing_points(path, timing_point_rows(run.attempt, run.measure))
    with open(path, newline="") as source:
        first, *rest = list(csv.reader(source))
    assert tuple(first) == TIMING_POINTS
    row = dict(zip(first, rest[0], strict=True))
    assert (row["step"], row["iter_ms_p50"], row["iter_ms_p90"], row["fwd_ms_p50"], row["run"]) == ("50", "41.25", "44", "", "mb8_r1")
