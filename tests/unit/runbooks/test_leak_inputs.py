"""The runs behind a path: a campaign's, one run's, one attempt's; and what is said of a path that is none of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.errors import UsageError
from seatrial_runbooks.stage1.leak_inputs import NO_MANIFEST, RunFinder
from tests.original_campaign import OriginalAttempt, sweep_run, write_original_campaign

SHORT = OriginalAttempt(max_steps=20, log_every=10)
GROUP = "sweep_z0_mb128_nw6_pf4"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    runs = (sweep_run(0, 160, attempts=(SHORT,)), sweep_run(0, 128, repeat=2, attempts=(SHORT,)), sweep_run(0, 128, attempts=(SHORT,)))
    return write_original_campaign(tmp_path / "bench", *runs)


def test_of_a_campaign_each_run_comes_once_groups_as_written_and_repeats_in_order(bench: Path) -> None:
    runs = RunFinder().runs(bench)
    assert [run.name for run in runs] == ["sweep_z0_mb160_nw6_pf4_r1", f"{GROUP}_r1", f"{GROUP}_r2"]
    assert {(run.output_root, run.notes) for run in runs} == {(str(bench), ())}
    assert all(run.cells["status"] == "success" and not run.is_numbered for run in runs)


def test_one_run_finds_the_campaign_above_it_which_is_read_once(bench: Path) -> None:
    finder = RunFinder()
    (one,), (other,) = finder.runs(bench / f"{GROUP}_r1"), finder.runs(bench / f"{GROUP}_r2")
    assert (one.group, one.folder) == (GROUP, bench / f"{GROUP}_r1")
    assert one.campaign is other.campaign is not None


def test_a_run_without_a_manifest_stands_alone(bench: Path, tmp_path: Path) -> None:
    alone = (bench / f"{GROUP}_r1").rename(tmp_path / "alone")
    (run,) = RunFinder().runs(alone)
    assert (run.group, run.notes, run.cells, run.campaign) == ("alone", (NO_MANIFEST,), {}, None)


def test_a_run_that_the_manifest_does_not_know_says_so(bench: Path) -> None:
    strange = (bench / f"{GROUP}_r1").rename(bench / "renamed")
    (run,) = RunFinder().runs(strange)
    assert run.row is None and "it has no row of this run" in run.notes[0]


def test_a_folder_that_is_gone_is_still_a_run_of_the_campaign(bench: Path) -> None:
    (bench / f"{GROUP}_r1").rename(bench.parent / "elsewhere")
    gone = next(run for run in RunFinder().runs(bench) if run.name == f"{GROUP}_r1")
    assert gone.notes == (f"its folder {bench / f'{GROUP}_r1'} is not there",)


def test_what_is_neither_says_what_to_name_instead(bench: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for path, says in (
        (tmp_path, "campaigns in it: bench"),
        (tmp_path / "empty", "name the folder that OUTPUT_ROOT was, or one run in it"),
        (tmp_path / "file", "it is a file; name the folder it lies in"),
        (tmp_path / "bemch", f"it does not exist; did you mean {bench}?"),
    ):
        with pytest.raises(UsageError) as told:
            RunFinder().runs(path)
        assert str(told.value).endswith(says)
