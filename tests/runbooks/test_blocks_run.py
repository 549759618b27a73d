"""Every fenced block of both seeds and of our own runbook, run for real on two CPU ranks, and the files it leaves."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.csv_files import rows_of
from tests.runbooks.blocks import MANY_HOSTS, NO_SEEDS, Block, Section, runbook_sections, seed_sections
from tests.runbooks.conftest import PREPARES, section
from tests.runbooks.lane import Lane, SectionRun
from tests.runbooks.left_behind import check_campaign, check_launch, check_run_folder, named_folder
from tests.runbooks.recording import DRIVER, STABILITY, Call
from tests.runbooks.rewrites import CORRECTED_MANIFEST, FEW_STEPS, RANKS

pytestmark = [pytest.mark.runbooks, pytest.mark.torch, pytest.mark.timeout(1000)]

SEEDS = seed_sections()
RUNBOOK = runbook_sections()
WRONG_MANIFEST = "001 5"
FOLLOWED_BY = {"000 3.1": "000 7", "README Smoke run": "README Reading the results"}
"""Sections whose files another one looks at, which is run after it, in the same folder."""
ACCEPTANCE = ("001 3.4.1", "README Phase B: stability")
ONE_LAUNCH = ("000 3.5", "README Final training on one machine")
MANIFEST = Path("data/LibriSpeech/LibriSpeech_16k_trim/manifest_16k_trim.tsv")


def those(sections: list[Section], *left_out: str) -> list[object]:
    """A case for each section that does not follow another."""
    names = (*left_out, *FOLLOWED_BY.values())
    return [pytest.param(one, id=one.key.replace(" ", "-")) for one in sections if one.key not in names]


def test_the_seeds_are_here() -> None:
    if not SEEDS:
        pytest.skip(NO_SEEDS)
    assert sum(len(one.blocks) for one in SEEDS) == 28


@pytest.mark.parametrize("one", those(SEEDS, WRONG_MANIFEST, *MANY_HOSTS))
def test_seed_section(lane: Lane, one: Section) -> None:
    check(lane, one)


@pytest.mark.parametrize("one", those(RUNBOOK, *MANY_HOSTS))
def test_runbook_section(lane: Lane, one: Section) -> None:
    check(lane, one)


@pytest.mark.skipif(not SEEDS, reason=NO_SEEDS)
def test_the_exported_manifest_is_the_trainers_own(prepared: Lane) -> None:
    exporting = section("001 1")
    look = replace(exporting, blocks=(exporting.blocks[-1], Block("python train.py --cfg job\n", 0)))
    assert f"manifest_path: ./{MANIFEST}" in prepared.run(look, name="001 1, then train.py").output


@pytest.mark.skipif(not SEEDS, reason=NO_SEEDS)
def test_a_manifest_that_is_not_there_is_answered_with_the_one_that_is(prepared: Lane) -> None:
    one = section(WRONG_MANIFEST)
    refused = prepared.run(one)
    assert refused.blocks[0].code != 0
    assert CORRECTED_MANIFEST[0] in refused.output
    assert str(MANIFEST) in refused.output, f"the manifest that is there is not named:\n{refused.output}"
    trained = prepared.run(one, lambda text: text.replace(*CORRECTED_MANIFEST), f"{one.key}, corrected")
    assert trained.blocks[0].code == 0, trained.output
    check_run_folder(sorted((prepared.work / "outputs" / "train").iterdir())[-1], every_rank=False)


def check(lane: Lane, one: Section) -> None:
    """Run a section, once the data is there, and look at everything it was to leave."""
    if one.key not in PREPARES and not any(key in lane.done for key in PREPARES):
        lane.run(section("README Data"))
    ran = lane.run(one)
    _check_codes(ran)
    for call in ran.calls_of(DRIVER):
        check_campaign(lane.work, call)
    _check_special(lane, ran)
    if one.key in FOLLOWED_BY:
        check(lane, section(FOLLOWED_BY[one.key]))


def _check_codes(ran: SectionRun) -> None:
    """0; of the acceptance 0 or 2, by what a noisy machine gave."""
    allowed = (0, 2) if ran.key in ACCEPTANCE else (0,)
    for number, block in enumerate(ran.blocks, start=1):
        assert block.code in allowed, f"{ran.key}, block {number} ended with exit code {block.code}:\n{block.output[-6000:]}"


def _check_special(lane: Lane, ran: SectionRun) -> None:
    """What only some sections leave."""
    if ran.key in PREPARES:
        assert len(rows_of(lane.work / MANIFEST)) > 0
    if ran.key in ACCEPTANCE:
        _check_acceptance(lane, ran)
    if ran.key in ONE_LAUNCH:
        check_launch(lane.work, ran.calls_of("deepspeed")[0])
    for call in ran.calls_of("seatrial"):
        _check_plan(lane, call)
    if any(call.words[:1] == ("scripts/quick_leak_diagnose.py",) for call in ran.calls_of("python")):
        _check_diagnosis(ran)
    if "train_proc_count" in "".join(block.text for block in section(ran.key).blocks):
        _check_sampler(lane, ran)


def _check_acceptance(lane: Lane, ran: SectionRun) -> None:
    """A row for each sentinel, the limits, and PASS or FAIL that agree with the exit code; the wrapper ran nothing that was finished."""
    checked = ran.blocks[-1]
    for name in ("sweep_z0_mb128_nw6_pf4", "sweep_z1_mb160_nw6_pf2"):
        assert re.search(rf"^{name} +\d", checked.output, re.MULTILINE), checked.output
    assert ("[PASS]" in checked.output) == (checked.code == 0)
    assert ("[FAIL]" in checked.output) == (checked.code == 2)
    wrapper = next(call for call in ran.calls_of(STABILITY))
    rows = rows_of(lane.work / wrapper.variables["OUTPUT_ROOT"] / "run_manifest.tsv")
    assert {row["group"] for row in rows} == {"sweep_z0_mb128_nw6_pf4", "sweep_z1_mb160_nw6_pf2"}
    assert {(row["status"], row["last_step"]) for row in rows} == {("success", str(FEW_STEPS))}
    if ran.calls_of(DRIVER):
        assert len(rows) == 6, "the wrapper ran finished runs again"
        assert "SKIP" in ran.blocks[wrapper.block].output


def _check_plan(lane: Lane, call: Call) -> None:
    """A ready plan that was run: into the folder of its name, and well."""
    if call.words[0] == "run":
        rows = rows_of(lane.work / "outputs" / "stage1" / Path(call.words[1]).stem / "run_manifest.tsv")
        assert {row["status"] for row in rows} == {"success"}


def _check_diagnosis(ran: SectionRun) -> None:
    """The CSV of the leak diagnosis: a row a run, each with a verdict."""
    lines = ran.blocks[-1].output[ran.blocks[-1].output.index("output_root,group,") :].splitlines()
    rows = list(csv.DictReader(io.StringIO("\n".join(line for line in lines if not line.startswith("[")))))
    assert rows, ran.output
    for row in rows:
        assert row["status"] == "success"
        assert row["verdict"] in ("no_obvious_leak", "not_enough_data") or row["verdict"].startswith("suspected_leak_or_contention(")


def _check_sampler(lane: Lane, ran: SectionRun) -> None:
    """The sampler of the block itself: rows while the run ran, which see the launcher and every rank of it."""
    (call,) = ran.calls_of(DRIVER)
    rows = rows_of(named_folder(lane.work, call.variables["OUTPUT_ROOT"]) / "host_telemetry.csv")
    assert max(int(row["train_proc_count"]) for row in rows) > RANKS
    assert max(int(row["train_rss_kib"]) for row in rows) > 100_000
    # The memory of the whole host is no use: the block's awk empties in its END what it has just read.
    assert all(float(row["load1"]) >= 0 and int(row["epoch_sec"]) > 0 for row in rows)
