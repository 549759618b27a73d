"""The original driver's manifest, of any version and in any state."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.original.manifest_rows import is_original_manifest, read_manifests
from tests.original_campaign import MANIFEST_COLUMNS, OLD_COLUMNS, OriginalAttempt, sweep_run, write_original_campaign

RUNS = (sweep_run(0, 128), sweep_run(0, 160, attempts=(OriginalAttempt(status="failed", exit_code=1), OriginalAttempt())))
NAMES = [("sweep_z0_mb128_nw6_pf4_r1", True), ("sweep_z0_mb160_nw6_pf4_r1", False), ("sweep_z0_mb160_nw6_pf4_r1", True)]


def told(folder: Path) -> list[tuple[str, bool]]:
    return [(row.run, row.is_success) for row in read_manifests(folder).rows]


@pytest.mark.parametrize("odd", [{}, {"crlf": True}, {"bom": True}, {"crlf": True, "bom": True}])
def test_every_row_in_the_order_of_the_file(tmp_path: Path, odd: dict[str, bool]) -> None:
    found = read_manifests(write_original_campaign(tmp_path, *RUNS, **odd))
    assert [(row.run, row.is_success) for row in found.rows] == NAMES and found.cautions == ()
    first = found.rows[0]
    assert (first.exit_code, first.duration_s, first.cells["mode"], first.cells["host_telemetry_empty_flag"]) == (
        0,
        185.0,
        "sweep",
        "false",
    )


def test_a_torn_last_line_is_passed_over_and_told(tmp_path: Path) -> None:
    found = read_manifests(write_original_campaign(tmp_path, *RUNS, torn_line=True))
    assert [(row.run, row.is_success) for row in found.rows] == NAMES
    assert found.cautions[0].numbers == {"rows": 1} and "torn" in found.cautions[0].text


def test_a_row_glued_to_a_torn_one_is_read(tmp_path: Path) -> None:
    manifest = write_original_campaign(tmp_path, *RUNS, torn_line=True) / "run_manifest.tsv"
    whole = manifest.read_text().splitlines()[1]
    manifest.write_text(manifest.read_text() + whole + "\n")
    assert told(tmp_path) == [*NAMES, NAMES[0]]
    assert read_manifests(tmp_path).rows[-1].cells["mode"] == "sweep"


def test_fewer_columns_in_another_order(tmp_path: Path) -> None:
    found = read_manifests(write_original_campaign(tmp_path, *RUNS, columns=OLD_COLUMNS))
    assert [(row.run, row.is_success) for row in found.rows] == NAMES
    assert set(found.rows[0].cells) == set(OLD_COLUMNS)
    assert "47 of its 60 columns" in found.cautions[0].text


def test_a_manifest_that_was_set_aside_comes_first(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, RUNS[0], backup_rows=[sweep_run(1, 192)])
    assert told(tmp_path) == [("sweep_z1_mb192_nw6_pf4_r1", True), NAMES[0]]


def test_a_second_header_holds_from_there_on(tmp_path: Path) -> None:
    write_original_campaign(tmp_path / "new", RUNS[0])
    old = (write_original_campaign(tmp_path / "old", RUNS[1], columns=OLD_COLUMNS) / "run_manifest.tsv").read_text()
    manifest = tmp_path / "new" / "run_manifest.tsv"
    manifest.write_text(manifest.read_text() + old)
    assert told(tmp_path / "new") == NAMES


def test_a_lost_header_is_that_of_the_driver(tmp_path: Path) -> None:
    manifest = write_original_campaign(tmp_path, *RUNS) / "run_manifest.tsv"
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[1:]))
    assert told(tmp_path) == NAMES and "lost its header" in read_manifests(tmp_path).cautions[0].text


@pytest.mark.parametrize("group", ["../../etc", "a/b", "", ".hidden", "x" * 300])
def test_a_name_that_is_no_folder_is_passed_over(tmp_path: Path, group: str) -> None:
    (tmp_path / "run_manifest.tsv").write_text(f"group\trepeat\tstatus\n{group}\t1\tsuccess\ngood\t2\tfailed\n")
    assert told(tmp_path) == [("good_r2", False)]


@pytest.mark.parametrize("repeat", ["0", "-1", "x", "nan", "1e99", ""])
def test_a_repeat_that_cannot_be_is_passed_over(tmp_path: Path, repeat: str) -> None:
    (tmp_path / "run_manifest.tsv").write_text(f"group\trepeat\tstatus\ngood\t{repeat}\tsuccess\n")
    assert told(tmp_path) == []


def test_success_beside_a_bad_exit_code_is_none(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run(attempts=(OriginalAttempt(exit_code=3),)))
    assert told(tmp_path) == [("sweep_z0_mb128_nw6_pf4_r1", False)]


def test_what_is_no_manifest_is_told(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.tsv").write_bytes(b"\x00\xff\x00 not a table\n")
    found = read_manifests(tmp_path)
    assert found.rows == () and "cannot be used" in found.cautions[0].text
    assert not is_original_manifest(tmp_path / "run_manifest.tsv") and not is_original_manifest(tmp_path / "none.tsv")


def test_our_own_manifest_is_not_the_originals(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.tsv").write_text("\t".join([*MANIFEST_COLUMNS, "run", "hash"]) + "\n")
    assert not is_original_manifest(tmp_path / "run_manifest.tsv")
