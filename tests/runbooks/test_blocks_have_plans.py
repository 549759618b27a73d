"""Every fenced block has its ready plan, and the two are the same work."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("hydra")

from tests.runbooks.blocks import NO_SEEDS, RUNBOOK, SEED_NUMBERS, Section, runbook_sections, seed_sections
from tests.runbooks.recording import DRIVER, Call, recorded
from tests.runbooks.requested_runs import PLANS, Run, of_driver, of_launch, of_plan
from tests.runbooks.rewrites import CORRECTED_MANIFEST, with_prefixes


@dataclass(frozen=True)
class Plan:
    """The plan that a block's work is."""

    name: str
    sampled_by_hand_s: float | None = None
    """The interval at which the block samples the host itself; in the plan the harness does."""
    all_ranks: bool = False
    """The block times rank 0; the plan every rank, because it judges the loss of all of them."""


@dataclass(frozen=True)
class Variants:
    """Plans that compare variants: each has more runs than the block, under its own names, and every run of the block is in one of them."""

    names: tuple[str, ...]
    all_ranks: bool = False


@dataclass(frozen=True)
class NoPlan:
    reason: str


PREPARES, EXPORTS, LOOKS = NoPlan("prepares data"), NoPlan("exports only"), NoPlan("reads what exists")
RUNS_PLAN = NoPlan("runs its plan itself")
WRAPPED = NoPlan("runs the sentinels of phase-b-stability-4090 through the wrapper, whose variables are its own")
BLOCKS: dict[tuple[str, int], Plan | Variants | NoPlan] = {
    ("000 2.1", 0): PREPARES,
    ("000 3.1", 0): Plan("mainline-2x4090"),
    ("000 3.2", 0): Plan("mainline-4x4090"),
    ("000 3.3", 0): Plan("smoke"),
    ("000 3.5", 0): Plan("multinode-hostfile"),
    ("000 7", 0): LOOKS,
    ("001 1", 0): PREPARES,
    ("001 1", 1): EXPORTS,
    ("001 3.1", 0): Plan("sweep-2x4090-24h"),
    ("001 12h", 0): Plan("sweep-2x4090-12h"),
    ("001 3.2", 0): Plan("sweep-4x4090"),
    ("001 3.3", 0): Plan("sweep-2xv100"),
    ("001 3.4.1", 0): EXPORTS,
    ("001 3.4.1", 1): Plan("phase-b-stability-4090"),
    ("001 3.4.1", 2): Plan("phase-b-stability-4090"),
    ("001 3.4.1", 3): WRAPPED,
    ("001 3.4.1", 4): LOOKS,
    ("001 3.4.1.1", 0): Plan("leak-4090-z0", sampled_by_hand_s=5),
    ("001 3.4.1.2", 0): Plan("leak-4090-z1", sampled_by_hand_s=5),
    ("001 3.4.1.3", 0): Plan("leak-4090-flash", sampled_by_hand_s=5),
    ("001 3.5.1", 0): EXPORTS,
    ("001 3.5.1", 1): Plan("phase-b-stability-v100"),
    ("001 3.5.1", 2): Plan("phase-b-stability-v100"),
    ("001 3.5.1.1", 0): Plan("leak-v100-z0", sampled_by_hand_s=5),
    ("001 3.5.1.1 (2)", 0): Plan("leak-v100-z1", sampled_by_hand_s=5),
    ("001 4", 0): Plan("straggler"),
    # Its path of the manifest is wrong; the plan has the right one.
    ("001 5", 0): Plan("final-one-machine"),
    ("001 6", 0): Plan("final-many-machines"),
    ("README Before you begin", 0): LOOKS,
    ("README Data", 0): PREPARES,
    ("README Smoke run", 0): Plan("smoke"),
    ("README Mainline sweep", 0): Plan("mainline-2x4090"),
    ("README Full sweep", 0): Plan("sweep-2x4090-24h"),
    ("README Phase A: pilot", 0): Plan("phase-a-pilot"),
    ("README Phase B: retest", 0): Plan("phase-b-retest"),
    ("README Phase B: stability", 0): WRAPPED,
    ("README Phase C: options", 0): Variants(("phase-c-fixed-slice", "phase-c-compile")),
    ("README Phase D: flash attention", 0): Variants(("phase-d-flash",), all_ranks=True),
    ("README Old against tuned", 0): Plan("ab", all_ranks=True),
    ("README Leaks", 0): Plan("leak-4090-z0"),
    ("README Which rank is slow", 0): Plan("straggler"),
    ("README Final training on one machine", 0): Plan("final-one-machine"),
    ("README Many machines", 0): LOOKS,
    ("README Smoke run on many machines", 0): RUNS_PLAN,
    ("README Final training on many machines", 0): Plan("final-many-machines"),
    ("README Many machines without ssh", 0): Plan("multinode-pernode"),
    ("README Many machines without ssh", 1): RUNS_PLAN,
    ("README Reading the results", 0): LOOKS,
    ("archive_stage1_experiments Sweeps of two platforms", 0): Plan("sweep-2x4090-12h"),
    ("archive_stage1_experiments The sweep of two V100", 0): Plan("sweep-2xv100"),
    ("archive_stage1_experiments The sentinels, by hand", 0): Plan("phase-b-stability-4090"),
    ("archive_stage1_experiments The smallest matrix, again", 0): RUNS_PLAN,
}
WITHOUT_BLOCK = {
    "base": "what the others build on",
    "phase-c-candidates-4090": "the retest's command with other lists",
    "phase-c-candidates-v100": "the retest's command with other lists",
    "leak-v100-flash": "the flash run's command with the V100's GPUs",
    "min-matrix": "run as a plan",
    "multinode-smoke": "run as a plan",
    "multinode-smoke-baseline": "run as a plan",
    "acceptance-v100": "a sentence of the procedure, which has no command",
    "acceptance-h100": "a sentence of the procedure, which has no command",
    "scaling-2-4": "a sentence of the procedure, which has no command",
}
SEEDS, PAGES = seed_sections(), runbook_sections()
OWN_PLANS = sorted({plan.name for plan in BLOCKS.values() if isinstance(plan, Plan)})
COMPARING = [block for block, plan in BLOCKS.items() if isinstance(plan, Variants)]


def blocks_of(sections: list[Section]) -> set[tuple[str, int]]:
    return {(section.key, number) for section in sections for number in range(len(section.blocks))}


@pytest.mark.skipif(not SEEDS, reason=NO_SEEDS)
def test_every_block_of_the_seeds_is_mapped() -> None:
    assert blocks_of(SEEDS) == {block for block in BLOCKS if block[0].startswith(("000 ", "001 "))}


def test_every_block_of_the_runbook_is_mapped() -> None:
    assert blocks_of(PAGES) == {block for block in BLOCKS if not block[0].startswith(("000 ", "001 "))}


def test_every_plan_has_a_block_or_a_reason() -> None:
    variants = [name for plan in BLOCKS.values() if isinstance(plan, Variants) for name in plan.names]
    assert {path.stem for path in PLANS.glob("*.yaml")} == {*OWN_PLANS, *variants, *WITHOUT_BLOCK}


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_plan_is_named_as_its_file_and_has_a_head(path: Path) -> None:
    text = path.read_text()
    head = text.split("\n\n")[0] if text.startswith("# ") else ""
    assert f"plans/stage1/{path.name}" in head, "the head gives the command"
    assert f"\nname: {path.stem}\n" in text
    assert f"\noutput: outputs/stage1/{path.stem}\n" in text
    assert path.stem == "base" or "Afterwards: " in head


def test_the_runbook_names_every_plan_and_no_other() -> None:
    pages = "".join(path.read_text() for path in (RUNBOOK / "README.md", *sorted((RUNBOOK / "docs").glob("archive*.md"))))
    named = {word.partition(".yaml")[0] for word in pages.split("../../plans/stage1/")[1:]}
    assert named == {path.stem for path in PLANS.glob("*.yaml")}


@pytest.mark.parametrize("name", OWN_PLANS)
def test_a_plan_is_the_work_of_its_blocks(name: str, tmp_path: Path) -> None:
    """The blocks of a document together are the whole plan."""
    mapped = [block for block, plan in BLOCKS.items() if isinstance(plan, Plan) and plan.name == name]
    for document in {key.split(" ")[0] for key, _ in mapped}:
        calls = [(BLOCKS[block], call) for block in mapped if block[0].startswith(f"{document} ") for call in calls_of(block, tmp_path)]
        if calls or document not in SEED_NUMBERS:
            assert_same_work(of_plan(name), calls)


@pytest.mark.parametrize("block", COMPARING, ids=lambda block: block[0])
def test_every_run_of_a_comparing_block_is_in_one_of_its_plans(block: tuple[str, int], tmp_path: Path) -> None:
    plans = BLOCKS[block]
    names = plans.names
    wanted = {name: [nameless(run) for run in of_plan(name)] for name in names}
    requested = [nameless(with_rank_scope(run, plans)) for call in calls_of(block, tmp_path) for run in of_driver(call)]
    assert requested
    for run in requested:
        assert any(run in runs for runs in wanted.values()), differences(run, next(iter(wanted.values()))[0])
    for name, runs in wanted.items():
        assert any(run in runs for run in requested), f"nothing of {name} is in the block"


def calls_of(block: tuple[str, int], folder: Path) -> list[Call]:
    """The block's calls of the driver and of deepspeed, with what its section has exported before."""
    key, number = block
    section = next((found for found in (*SEEDS, *PAGES) if found.key == key), None)
    if section is None:
        return []
    texts = [with_prefixes(one.text, key) for one in (*section.preamble, *section.blocks)]
    calls = recorded(texts, folder / f"{key} {number}".replace("/", "-"))
    return [call for call in calls if call.block - len(section.preamble) == number and call.program in (DRIVER, "deepspeed")]


def assert_same_work(wanted: list[Run], calls: list[tuple[Plan, Call]]) -> None:
    if calls[0][1].program == "deepspeed":
        for _, call in calls:
            compare_launch(wanted, call)
        return
    requested = {(run.group, run.repeat): by_harness(run, plan) for plan, call in calls for run in of_driver(call)}
    assert requested.keys() == {(run.group, run.repeat) for run in wanted}
    for run in wanted:
        assert requested[run.group, run.repeat] == run, differences(requested[run.group, run.repeat], run)


def by_harness(run: Run, plan: Plan) -> Run:
    """With the host sampled by the harness where the block samples it itself."""
    gpu_s, host_s = run.telemetry
    return with_rank_scope(dataclasses.replace(run, telemetry=(gpu_s, plan.sampled_by_hand_s or host_s)), plan)


def with_rank_scope(run: Run, plan: Plan | Variants) -> Run:
    return dataclasses.replace(run, rank_scope="all") if plan.all_ranks else run


def nameless(run: Run) -> Run:
    """Without the group's name: a plan names its variants, the driver uses separate folders."""
    return dataclasses.replace(run, group="")


def differences(requested: Run, wanted: Run) -> str:
    """Fields that differ, by name: in the block, and in the plan."""
    fields = {
        **requested.settings,
        **{field.name: getattr(requested, field.name) for field in dataclasses.fields(requested) if field.name != "settings"},
    }
    others = {**wanted.settings, **vars(wanted)}
    return "\n".join(f"{name}: {value} and {others.get(name)}" for name, value in fields.items() if value != others.get(name))


# Plans of a final training keep a second checkpoint: one that was being written at a crash is not gone on from.
DEPARTURES = {"checkpoint_keep": 2}


def compare_launch(wanted: list[Run], call: Call) -> None:
    """One training: the plan's only run has its settings, scope, timing and place."""
    (run,) = wanted
    corrected = dataclasses.replace(call, argv=tuple(argument.replace(*CORRECTED_MANIFEST) for argument in call.argv))
    settings, timing, place = of_launch(corrected)
    assert {**settings, **DEPARTURES} == run.settings
    assert timing == {"rank_scope": run.rank_scope, "sync": run.timing["sync"], "log_every": run.timing["log_every"]}
    kind, _, devices, hostfile = run.place
    assert place == (kind, {"hostfile": hostfile, "local": devices, "pernode": None}[kind])
