"""`compare`, `diff` and `history`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.cli.compare import row_throughput
from seatrial.cli.main import run_command
from seatrial.core.files import write_json
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Provenance
from seatrial.records.codec import to_json
from seatrial.records.comparison import ComparedGroup, ComparedRun
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import LauncherSpec, PlaceSpec, RunSpec, WorkloadSpec
from tests.original_campaign import sweep_run, write_original_campaign
from tests.unit.results.campaigns import elsewhere, write_compared

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


def test_what_cannot_be_reported_is_3(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "different machines: host (node-1 → node-2)" in capsys.readouterr().err
    assert run_command([*words, "--across"]) == 0
    assert "host (node-" in capsys.readouterr().out


def test_wrong_use_is_1(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        (["compare"], "needs two names"),
        (["compare", f"{out}:slow", "fats"], "did you mean 'fast'"),
        (["compare", f"{out}:slow", f"{out}:fast", "--metric", "sample_per_s"], "did you mean 'samples_per_s'"),
        (["compare", f"{out}:slow", f"{out}:fast", "--preset", "last5"], "did you mean 'last50'"),
    ):
        assert run_command(words) == 1
        assert says in capsys.readouterr().err


def test_refused_or_misused_json_is_a_document_too(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = write_compared(tmp_path / "far", {"fast": FAST}, provenance=elsewhere()).folder
    for words, code, says in (
        ([f"{out}:slow", str(far)], 2, "different machines"),
        ([f"{out}:slow", f"{out}:fats"], 1, "did you mean 'fast'"),
        (["--scaling"], 1, "--scaling needs"),
    ):
        assert run_command(["compare", *words, "--json"]) == code
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert says in told["refused"] and told["exit_code"] == code


def test_unlike_numbers_of_ranks_are_compared_by_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (write_compared(tmp_path / f"x{ranks}", {"g": FAST}, ranks=ranks).folder for ranks in (1, 2))
    assert run_command(["compare", str(one), str(two), "--json"]) in (0, 3)
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["unit"] == "samples/s per GPU" and found["ratio"]["mean"] == pytest.approx(1, rel=0.05)


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
        (["--margin", "-1"], "--margin -1"),
        (["--margin", "inf"], "--margin inf"),
        (["--margin", "nan"], "--margin nan"),
        (["--gpus", "8"], "--scaling"),
    ],
)
def test_words_that_have_no_meaning_are_refused_before_anything_is_read(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["compare", "no/such:a", "no/such:b", *words]) == 1
    assert says in capsys.readouterr().err


def put(out: Path, run: str, number: int = 1, *, how: Outcome = Outcome.OK, bs: int = 8, driver: str = "550") -> AttemptPaths:
    spec = RunSpec(
        run=run, group=run, repeat=1, hash=run, group_key=f"bs{bs}", plan="p", workload=WorkloadSpec(name="t"), axes={"bs": bs},
        launcher=LauncherSpec(kind="python"), place=PlaceSpec(), cwd="/",
    )  # fmt: skip
    attempt = CampaignPaths(out).run(run).attempt(number)
    write_json(attempt.spec, to_json(spec))
    write_json(attempt.provenance, to_json(Provenance(driver_version=driver, fingerprint=driver)))
    write_json(attempt.outcome, to_json(RunOutcome(run=run, attempt=number, hash=run, outcome=how)))
    return attempt


def test_runs_of_two_campaigns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "monday", "bs8_r1")
    put(tmp_path / "tuesday", "bs16_r1", bs=16, driver="560")
    assert run_command(["diff", str(tmp_path / "monday/bs8_r1"), str(tmp_path / "tuesday/bs16_r1"), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["parted_by"] == ["driver_version"]
    assert "8 → 16" in err and "* driver_version" in err


def test_add_list_pin_unpin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ["--history", str(tmp_path / "h.jsonl")]
    out = str(write_compared(tmp_path / "out", {"a": [10.0, 10.1], "b": [12.0, 12.1]}).folder)
    assert run_command(["history", "list", *file]) == 0
    assert "no rows yet" in capsys.readouterr().out
    assert run_command(["history", "add", out, *file]) == 0
    assert run_command(["history", "add", out, *file]) == 0
    assert run_command(["history", "pin", "2", "base", *file]) == 0
    capsys.readouterr()
    assert run_command(["history", "list", "--json", *file]) == 0
    stdout, stderr = capsys.readouterr()
    assert [(row["row"], row["group"], row["names"], row["runs"]) for row in json.loads(stdout)["rows"]] == [
        (1, "a", [], 2),
        (2, "b", ["base"], 2),
    ]
    assert "base" in stderr and "node-1, Example GPU" in stderr
    assert run_command(["history", "unpin", "base", *file]) == 0
    assert run_command(["history", "unpin", "base", *file]) == 1
    assert "none is known here" in capsys.readouterr().err


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ["--history", str(tmp_path / "h.jsonl")]
    empty = str(write_compared(tmp_path / "out", {"a": [10.0]}, failed=["a_r1"]).folder)
    for words, says in (
        (["history", "add", str(tmp_path / "nowhere")], "holds no campaign"),
        (["history", "add", empty], "nothing to keep"),
        (["history", "add", empty, "--group", "x"], "has no group 'x'"),
        (["history", "pin", "1", "base"], "no row 1"),
    ):
        assert run_command([*words, *file]) == 1
        assert says in capsys.readouterr().err


def test_a_name_that_moves_and_lines_that_are_lost_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    file = ["--history", str(path)]
    out = str(write_compared(tmp_path / "out", {"a": [10.0, 10.1], "z:boom:": [12.0, 12.1]}).folder)
    run_command(["history", "add", out, *file])
    run_command(["history", "pin", "1", "base", *file])
    capsys.readouterr()
    assert run_command(["history", "pin", "2", "base", *file]) == 0
    assert capsys.readouterr().out == "row 2 (z:boom:) is history:base (before: row 1, a)\n"
    path.write_text(path.read_text() + "torn\n")
    assert run_command(["history", "list", "--json", *file]) == 0
    stdout, stderr = capsys.readouterr()
    told = json.loads(stdout)
    assert told["unreadable_lines"] == 1 and "1 line of" in stderr and ":boom:" in stderr
    assert (told["rows"][0]["metric"], round(told["rows"][0]["throughput"], -1)) == ("samples_per_s", 790)
    assert "samples/s" in stderr
    assert run_command(["history", "add", out, *file]) == 0
    assert "1 line of" in capsys.readouterr().out.replace("\n", " ")


def test_a_folder_is_no_file_of_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(write_compared(tmp_path / "out", {"a": [10.0, 10.1]}).folder)
    assert run_command(["history", "add", out, "--history", str(tmp_path)]) == 1
    assert "nothing was kept" in capsys.readouterr().err


def side(*figures: dict[str, float]) -> ComparedGroup:
    runs = tuple(
        ComparedRun(run=f"a_r{number}", repeat=number, started_t=0.0, figures=dict(of_run)) for number, of_run in enumerate(figures, 1)
    )
    return ComparedGroup(name="out:a", group="a", source="out", runs=runs)


def test_the_throughput_of_a_row_is_what_all_its_runs_have() -> None:
    both = side({"samples_per_s": 10.0, "tokens_per_s": 100.0}, {"tokens_per_s": 100.0})
    assert row_throughput(both) == {"metric": "tokens_per_s", "throughput": pytest.approx(100.0), "unit": "tokens/s"}
    assert row_throughput(side()) == {"metric": None, "throughput": None, "unit": None}
    assert row_throughput(side({}))["metric"] is None
