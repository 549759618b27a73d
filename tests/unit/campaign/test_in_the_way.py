"""Folders where files are to be written, and a file where a folder is."""

from __future__ import annotations

from pathlib import Path

from seatrial.campaign.in_the_way import folder_moved_aside, folders_moved_aside
from seatrial.paths import CampaignPaths


def test_nothing_and_files_are_in_nobodys_way(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    paths.summary_md.write_text("old")
    paths.charts.mkdir()
    assert folders_moved_aside(paths) == []
    assert folder_moved_aside(paths.summary_md) is None and folder_moved_aside(tmp_path / "none") is None


def test_a_folder_is_kept_under_the_next_free_name(tmp_path: Path) -> None:
    table = tmp_path / "group_summary.csv"
    (tmp_path / "group_summary.csv.folder-1").mkdir()
    table.mkdir()
    (table / "mine.txt").write_text("kept")
    moved = folder_moved_aside(table)
    assert moved is not None and moved.kind == "moved_aside"
    assert moved.text == (
        "A folder stood where group_summary.csv is to be written; it is now group_summary.csv.folder-2: remove it if it is not needed."
    )
    assert not table.exists() and (tmp_path / "group_summary.csv.folder-2" / "mine.txt").read_text() == "kept"


def test_a_link_to_a_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "summary.md"
    link.symlink_to("real")
    assert folder_moved_aside(link) is None and link.is_symlink()


def test_way_is_made_for_all_of_a_report(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    in_the_way = (paths.manifest, paths.verdict, paths.summary_html, paths.best_config_env)
    for path in in_the_way:
        path.mkdir()
    paths.charts.write_text("a file")
    found = folders_moved_aside(paths)
    assert len(found) == len(in_the_way) + 1
    assert found[0].text.startswith(f"A file stood where {paths.charts.name} is to be written")
    assert not any(path.exists() for path in (*in_the_way, paths.charts))
