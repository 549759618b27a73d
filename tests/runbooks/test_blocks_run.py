"""Every fenced block of both seeds and of our own runbook, run on two CPU ranks, and the files it leaves.

Nothing is run a second time: not a section whose commands on two CPU ranks are another's, and not a section of our runbook that restates a
seed's, where test_blocks_have_plans.py shows that both are the same work.
"""

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
from tests.runbooks.expected_files import check_campaign, check_launch, check_run_folder, named_folder
from tests.runbooks.lane import Lane, SectionRun
from tests.runbooks.recording import DRIVER, STABILITY, Call
from tests.runbooks.rewrites import CORRECTED_MANIFEST, FEW_STEPS, RANKS, rewritten
from tests.runbooks.test_blocks_have_plans import BLOCKS, Plan

pytestmark = [pytest.mark.runbooks, pytest.mark.torch, pytest.mark.timeout(1000)]

SEEDS = seed_sections()
RUNBOOK = runbook_sections()
WRONG_MANIFEST = "001 5"
FOLLOWED_BY = {"000 3.1": "000 7", "README Smoke run": "README Reading the results"}
"""Sections whose files another one reads, which is run after it in the same folder."""
ACCEPTANCE = ("001 3.4.1", "README Phase B: stability")
ONE_LAUNCH = "README Final training on one machine"
SEED_PLANS = {plan.name for (key, _), plan in BLOCKS.items() if isinstance(plan, Plan) and not key.startswith(("README", "archive"))}
RESTATED = [
    one.key
    for one in RUNBOOK
    if one.key not in FOLLOWED_BY and all(getattr(BLOCKS[one.key, at], "name", "") in SEED_PLANS for at in range(len(one.blocks)))
]
"""Sections of our runbook that are the same work as a seed's: not run where the seeds are here."""
DRY = (
    "001 3.5.1",
    "README Phase A: pilot",
    "README Phase B: retest",
    "README Phase B: stability",
    "README Phase C: options",
    "README Phase D: flash attention",
    "README Old against tuned",
)
"""Sections that vary one of the seeds in values alone: where the seeds are here only the driver's dry run."""
MANIFEST = Path("data/LibriSpeech/LibriSpeech_16k_trim/manifest_16k_trim.tsv")


def those(sections: list[Section], *left_out: str) -> list[object]:
    """A case for each section that does not follow another and has commands of its own."""
    names = (*left_out, *PREPARES, *MANY_HOSTS, *FOLLOWED_BY.values())
    by_commands: dict[str, Section] = {}
    for one in sections:
        if one.key not in names:
            by_commands.setdefault(commands_of(one), one)
    return [pytest.param(one, id=one.key.replace(" ", "-")) for one in by_commands.values()]


def commands_of(one: Section) -> str:
    """What the lane would run for it, whatever its folder is called: the seeds' commands for other GPUs are the same on CPU ranks, and of a
    list of batches only the first ones are left."""
    text = "".join(rewritten(block.text, one.key) for block in (*one.preamble, *one.blocks))
    return re.sub(r"outputs/[\w-]+|(?<=SWEEP_MICRO_BATCHES=)[\d,]+", "", text)


def test_only_sections_for_other_machines_have_the_same_commands() -> None:
    if not SEEDS:
        pytest.skip(NO_SEEDS)
    kept = {case.values[0].key for case in those(SEEDS, WRONG_MANIFEST, *DRY)}
    same = {one.key for one in SEEDS} - kept - {WRONG_MANIFEST, *DRY, *PREPARES, *MANY_HOSTS, *FOLLOWED_BY.values()}
    assert same == {"000 3.2", "001 12h", "001 3.3", "001 3.5.1.1", "001 3.5.1.1 (2)"}


def test_the_seeds_are_here() -> None:
    if not SEEDS:
        pytest.skip(NO_SEEDS)
    assert sum(len(one.blocks) for one in SEEDS) == 28


@pytest.mark.parametrize("one", those(SEEDS, WRONG_MANIFEST, *DRY))
def test_seed_section(lane: Lane, one: Section) -> None:
    check(lane, one)


@pytest.mark.parametrize("one", those(RUNBOOK, *((*RESTATED, *DRY) if SEEDS else ())))
def test_runbook_section(lane: Lane, one: Section) -> None:
    check(lane, one)


@pytest.mark.skipif(not SEEDS, reason="without the seeds these sections are run in full")
@pytest.mark.parametrize("one", [one for one in (*SEEDS, *RUNBOOK) if one.key in DRY], ids=lambda one: one.key.replace(" ", "-"))
def test_dry_run_of_a_section(lane: Lane, one: Section) -> None:
    """The driver expands the runs of the section; programs that read a finished campaign have nothing to read here."""
    ran = lane.run(one, lambda text: "export DRY_RUN=1\n" + text, f"{one.key}, dry run")
    assert ran.calls_of(DRIVER) or ran.calls_of(STABILITY)
    assert "_r1" in ran.output and "Traceback" not in ran.output, ran.output[-4000:]


def test_the_data_is_prepared_by_one_and_the_same_command(lane: Lane) -> None:
    commands = [section(key).blocks[0].text for key in PREPARES if SEEDS or key.startswith("README")]
    assert len({tuple(re.sub(r"--workers \d+", "", text.replace("\\\n", " ")).split()) for text in commands}) == 1
    assert len(rows_of(lane.work / MANIFEST)) > 0


@pytest.mark.skipif(not SEEDS, reason=NO_SEEDS)
def test_the_exported_manifest_is_the_trainers_own(lane: Lane) -> None:
    exporting = section("001 1")
    look = replace(exporting, blocks=(exporting.blocks[-1], Block("python train.py --cfg job\n", 0)))
    assert f"manifest_path: ./{MANIFEST}" in lane.run(look, name="001 1, then train.py").output


@pytest.mark.skipif(not SEEDS, reason=NO_SEEDS)
def test_for_a_missing_manifest_the_right_one_is_named(lane: Lane) -> None:
    one = section(WRONG_MANIFEST)
    refused = lane.run(one)
    assert refused.blocks[0].code != 0
    assert CORRECTED_MANIFEST[0] in refused.output
    assert str(MANIFEST) in refused.output, f"the manifest that is there is not named:\n{refused.output}"
    trained = lane.run(one, lambda text: text.replace(*CORRECTED_MANIFEST), f"{one.key}, corrected")
    assert trained.blocks[0].code == 0, trained.output
    check_run_folder(sorted((lane.work / "outputs" / "train").iterdir())[-1], every_rank=False)


def check(lane: Lane, one: Section) -> None:
    """Run a section and check every file that it should leave."""
    ran = lane.run(one)
    _check_codes(ran)
    for call in ran.calls_of(DRIVER):
        check_campaign(lane.work, call)
    _check_special(lane, ran)
    if one.key in FOLLOWED_BY:
        check(lane, section(FOLLOWED_BY[one.key]))


def _check_codes(ran: SectionRun) -> None:
    """0; of the acceptance 0 or 2, depending on the noise of the machine."""
    allowed = (0, 2) if ran.key in ACCEPTANCE else (0,)
    for number, block in enumerate(ran.blocks, start=1):
        assert block.code in allowed, f"{ran.key}, block {number} ended with exit code {block.code}:\n{block.output[-6000:]}"


def _check_special(lane: Lane, ran: SectionRun) -> None:
    """What only some sections leave."""
    if ran.key in ACCEPTANCE:
        _check_acceptance(lane, ran)
    if ran.key == ONE_LAUNCH:
        check_launch(lane.work, ran.calls_of("deepspeed")[0])
    for call in ran.calls_of("seatrial"):
        _check_plan(lane, call)
    if any(call.argv[:1] == ("scripts/quick_leak_diagnose.py",) for call in ran.calls_of("python")):
        _check_diagnosis(ran)
    if "train_proc_count" in "".join(block.text for block in section(ran.key).blocks):
        _check_sampler(lane, ran)


def _check_acceptance(lane: Lane, ran: SectionRun) -> None:
    """A row for each sentinel, and PASS or FAIL that agree with the exit code; the wrapper ran no finished run again."""
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
    """A ready plan ran successfully, into the folder of its name."""
    if call.argv[0] == "run":
        rows = rows_of(lane.work / "outputs" / "stage1" / Path(call.argv[1]).stem / "run_manifest.tsv")
        assert {row["status"] for row in rows} == {"success"}


def _check_diagnosis(ran: SectionRun) -> None:
    """The CSV of the leak diagnosis: a row per run, each with a verdict."""
    lines = ran.blocks[-1].output[ran.blocks[-1].output.index("output_root,group,") :].splitlines()
    rows = list(csv.DictReader(io.StringIO("\n".join(line for line in lines if not line.startswith("[")))))
    assert rows, ran.output
    for row in rows:
        assert row["status"] == "success"
        assert row["verdict"] in ("no_obvious_leak", "not_enough_data") or row["verdict"].startswith("suspected_leak_or_contention(")


def _check_sampler(lane: Lane, ran: SectionRun) -> None:
    """The block's own sampler: rows during the run that count the launcher and every rank."""
    (call,) = ran.calls_of(DRIVER)
    rows = rows_of(named_folder(lane.work, call.variables["OUTPUT_ROOT"]) / "host_telemetry.csv")
    assert max(int(row["train_proc_count"]) for row in rows) > RANKS
    assert max(int(row["train_rss_kib"]) for row in rows) > 100_000
    # Its memory of the whole host is not checked: the block's awk clears it in its END.
    assert all(float(row["load1"]) >= 0 and int(row["epoch_sec"]) > 0 for row in rows)
