"""The verb on campaigns as the harness leaves them: words, exit codes, text and JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from seatrial.cli import compare
from seatrial.cli.main import run_command
from seatrial.records.verdict import Verdict
from tests.original_campaign import sweep_run, write_original_campaign
from tests.unit.campaign.compared_campaign import elsewhere, write_compared

FAST, SLOW = [10.0, 10.1, 10.05], [12.0, 12.1, 12.2]
NOISY = [8.0, 13.0, 10.0]


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEATRIAL_HISTORY", str(tmp_path / "history.jsonl"))
    monkeypatch.setenv("COLUMNS", "120")
    return write_compared(tmp_path / "out", {"fast": FAST, "slow": SLOW, "noisy": NOISY}).folder


def test_two_groups(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", f"{out}:slow", f"{out}:fast"]) == 0
    text = capsys.readouterr().out
    assert f"{out}:fast against {out}:slow: FASTER" in text.replace("\n", "")
    assert "●" in text and "paired t on logs, 3 pairs" in text and "bootstrap" in text and "four times in five" in text


def test_json_is_one_document_and_the_rest_goes_to_people(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", "slow", "fast", "--in", str(out), "--json", "--preset", "highest_mean"]) == 0
    stdout, stderr = capsys.readouterr()
    told = json.loads(stdout)
    (one,) = told["comparisons"]
    assert (one["a"], one["b"], one["relation"], one["metric"]) == ("slow", "fast", "FASTER", "samples_per_s")
    assert one["ratio"]["low"] > 1.1 and one["detectable_pct"] > 0 and one["differs"] == ["variant (slow → fast)"]
    assert [run["window"].split()[0] for run in told["sides"][0]["runs"]] == ["steps"] * 3
    assert "fast wins by its mean" in stderr.replace("\n", " ")


def test_what_cannot_be_told_is_3(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", str(out), "fast", "noisy"]) == 3
    assert "AMBIGUOUS" in capsys.readouterr().out


def test_all_groups_of_a_campaign_are_corrected(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", str(out), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert [one["comparisons"] for one in told["comparisons"]] == [3, 3]
    assert "chosen from 3 groups by their figures, so 3 pairs count" in told["note"]


def test_unlike_machines_are_refused_with_2(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = write_compared(tmp_path / "far", {"fast": FAST}, provenance=elsewhere()).folder
    words = ["compare", f"{out}:slow", str(far)]
    assert run_command(words) == 2
    assert "unlike machines: host (node-1 → node-2)" in capsys.readouterr().err
    assert run_command([*words, "--across"]) == 0
    assert "Unlike machines are compared" in capsys.readouterr().out


def test_wrong_use_is_1(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        (["compare"], "two sides"),
        (["compare", f"{out}:slow"], "two sides"),
        (["compare", f"{out}:slow", "fats"], "did you mean 'fast'"),
        (["compare", f"{out}:slow", f"{out}:fast", "--metric", "sample_per_s"], "did you mean 'samples_per_s'"),
        (["compare", f"{out}:slow", f"{out}:fast", "--preset", "last5"], "did you mean 'last50'"),
        (["compare", f"{out}:slow", f"{out}:fast", "--margin", "-1"], "--margin"),
        (["compare", f"{out}:slow", f"{out}:fast", "--margin", "nan"], "--margin"),
        (["compare", f"{out}:slow", f"{out}:fast", "--gpus", "8"], "add --scaling"),
        (["compare", str(out), "history:gone"], "nothing is pinned"),
    ):
        assert run_command(words) == 1
        assert says in capsys.readouterr().err


def test_refused_or_misused_json_is_a_document_too(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = write_compared(tmp_path / "far", {"fast": FAST}, provenance=elsewhere()).folder
    for words, code, says in (
        ([f"{out}:slow", str(far)], 2, "unlike machines"),
        ([f"{out}:slow", f"{out}:fats"], 1, "did you mean 'fast'"),
        (["--scaling"], 1, "--scaling needs"),
    ):
        assert run_command(["compare", *words, "--json"]) == code
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert says in told["refused"] and told["exit_code"] == code


def test_a_copy_is_the_same_runs(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(out, tmp_path / "copy")
    for words in ([str(out), str(tmp_path / "copy")], [f"{out}:slow", f"{out}:slow"]):
        assert run_command(["compare", *words]) == 2
        assert "are the same runs" in capsys.readouterr().err


def test_unlike_numbers_of_ranks_are_compared_by_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (write_compared(tmp_path / f"x{ranks}", {"g": FAST}, ranks=ranks).folder for ranks in (1, 2))
    assert run_command(["compare", str(one), str(two), "--json"]) in (0, 3)
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["unit"] == "samples/s per GPU" and found["ratio"]["mean"] == pytest.approx(1, rel=0.05)


def test_names_are_not_taken_for_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_compared(tmp_path / "o", {":boom:": SLOW, "b": FAST}).folder
    run_command(["compare", ":boom:", "b", "--in", str(folder)])
    assert ":boom:" in capsys.readouterr().out


def test_a_row_of_history(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["history", "add", str(out), "--group", "slow"]) == 0
    assert run_command(["history", "pin", "1", "before"]) == 0
    later = write_compared(tmp_path / "later", {"fast": FAST}).folder
    assert run_command(["compare", "history:before", str(later)]) == 0
    text = capsys.readouterr().out
    assert "against history:before: FASTER" in text and "Welch on logs, 3 and 3 runs" in text


def test_folders_are_left_as_they_were(out: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*"))
    run_command(["compare", str(out)])
    assert sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*")) == before


def test_scaling_over_campaigns(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [
        str(write_compared(tmp_path / f"out{ranks}x", {"g": [ms, ms * 1.01, ms * 1.005]}, ranks=ranks).folder)
        for ranks, ms in ((1, 10.0), (2, 11.0), (4, 11.6))
    ]
    assert run_command(["compare", "--scaling", *folders, "--json", "--gpus", "16"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [point["gpus"] for point in told["points"]] == [1, 2, 4]
    assert told["points"][1]["efficiency"]["mean"] == pytest.approx(10 / 11, rel=0.02)
    assert [one["gpus"] for one in told["projections"]] == [16]
    assert run_command(["compare", "--scaling", str(out)]) == 3
    assert run_command(["compare", "--scaling"]) == 1


def test_folders_of_the_original_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [sweep_run(micro_batch=batch, repeat=repeat) for batch in (128, 160) for repeat in (1, 2)]
    bench = write_original_campaign(tmp_path / "bench", *runs)
    assert run_command(["compare", str(bench), "sweep_z0_mb128_nw6_pf4", "sweep_z0_mb160_nw6_pf4", "--json"]) in (0, 3)
    (one,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert (one["a"], one["b"], one["value_a"]["n"]) == ("sweep_z0_mb128_nw6_pf4", "sweep_z0_mb160_nw6_pf4", 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--margin", "-1"], "--margin -1 is no difference in per cent"),
        (["--margin", "inf"], "--margin inf is no difference in per cent"),
        (["--gpus", "8"], "--gpus is what --scaling projects to"),
    ],
)
def test_words_that_have_no_meaning_are_refused_before_anything_is_read(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["compare", "no/such:a", "no/such:b", *words]) == 1
    assert says in capsys.readouterr().err


def test_examples_are_of_every_way_to_name_a_side() -> None:
    for way in (":mb8_nw0", "history:", "--in ", "--scaling "):
        assert way in compare.EXAMPLES
    assert Verdict.INCONCLUSIVE.exit_code == compare.AMBIGUOUS
