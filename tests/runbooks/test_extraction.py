"""Blocks are extracted as written, and rewritten ones refer to no path outside the working folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runbooks.blocks import NO_SEEDS, Block, runbook_sections, sections_of, seed_sections, with_preambles
from tests.runbooks.recording import DRIVER, SCRIPTS, known_scripts, recorded
from tests.runbooks.rewrites import RANKS, UnknownPath, rewritten, with_prefixes

PAGE = """# Title
## 2.1 Data
```bash
# no heading
python a.py \\
  --workers 16
```
text
```text
not run
```
### Exports
```bash
export A=1 INCLUDE=localhost:0,1
```
### 3.1. One
```bash
./scripts/run_stage1_ab_bench.sh
```
### 3.1. One
```bash
true
```
"""


def test_sections_have_the_bash_blocks_under_their_heading() -> None:
    sections = sections_of(PAGE, "000")
    assert [section.key for section in sections] == ["000 2.1", "000 Exports", "000 3.1", "000 3.1 (2)"]
    assert sections[0].blocks == (Block("# no heading\npython a.py \\\n  --workers 16\n", 4),)
    assert [section.preamble for section in sections] == [()] * 4


def test_exports_of_a_page_stand_before_what_comes_after() -> None:
    sections = with_preambles(sections_of(PAGE, "README"))
    assert [section.key for section in sections] == ["README 2.1", "README 3.1", "README 3.1 (2)"]
    assert [len(section.preamble) for section in sections] == [0, 1, 1]


def test_a_call_is_recorded_with_the_environment_of_its_shell(tmp_path: Path) -> None:
    texts = ["export A=1\n", "for x in 2 3; do B=$x ./scripts/run_stage1_ab_bench.sh 'a b' \"\"; done\npython -c pass\n"]
    calls = recorded(texts, tmp_path / "r")
    assert [(call.program, call.argv, call.variables, call.block) for call in calls] == [
        (DRIVER, ("a b", ""), {"A": "1", "B": "2"}, 1),
        (DRIVER, ("a b", ""), {"A": "1", "B": "3"}, 1),
        ("python", ("-c", "pass"), {"A": "1"}, 1),
    ]


def test_every_script_of_the_runbook_can_be_recorded() -> None:
    assert list(SCRIPTS) == known_scripts()


@pytest.mark.parametrize(
    ("written", "run"),
    [
        ("INCLUDE=localhost:0,4 \\\n", f"INCLUDE=localhost WORLD_SIZE={RANKS} \\\n"),
        ("export INCLUDE=localhost:0,1\n", f"export INCLUDE=localhost WORLD_SIZE={RANKS}\n"),
        ("MAX_STEPS=10000 REPEATS=3\n", "MAX_STEPS=12 REPEATS=1\n"),
        ("SWEEP_MICRO_BATCHES=128,160\n", "SWEEP_MICRO_BATCHES=4\n"),
        ("x/sweep_z1_mb160_nw6_pf2_r1\n", "x/sweep_z1_mb5_nw1_pf2_r1\n"),
        (
            "deepspeed --include localhost:0,1 train.py \\\n  a=1\n",
            "deepspeed --num_gpus 2 train.py ++train.max_step_iterations=12 \\\n  a=1\n",
        ),
        ("train.py \\\n ++train.max_step_iterations=9\n", "train.py \\\n ++train.max_step_iterations=12\n"),
        ("DATASET_ROOT=/code/data/x\nREPO=/code\ncd /code\n", "DATASET_ROOT=./data/x\nREPO=.\ncd .\n"),
        ("CONDA_ENV=csref_2 PRECISION_MODE=auto > /dev/null\n", "CONDA_ENV=csref_2 PRECISION_MODE=auto > /dev/null\n"),
    ],
)
def test_the_table_changes_what_it_says(written: str, run: str) -> None:
    assert rewritten(written, "000 9") == run


@pytest.mark.parametrize("text", ["OUTPUT_ROOT=/mnt/x a\n", "a --out /root/x\n", "++dataset.root_dir='/data/x'\n", 'cat "/etc/passwd"\n'])
def test_an_unmapped_path_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnknownPath, match=r"section 001 4: .*tests/runbooks/rewrites.py"):
        rewritten(text, "001 4")


def test_the_name_of_an_assignment_is_reported() -> None:
    with pytest.raises(UnknownPath, match="OUTPUT_ROOT=/mnt/x "):
        rewritten("A=1 OUTPUT_ROOT=/mnt/x ./run\n", "001 4")


@pytest.mark.skipif(not seed_sections(), reason=NO_SEEDS)
def test_every_block_of_the_seeds_can_be_rewritten() -> None:
    for section in seed_sections():
        for block in section.blocks:
            assert rewritten(block.text, section.key).count("\n") == block.text.count("\n")


def test_every_block_of_the_runbook_can_be_rewritten_and_names_no_other_machine() -> None:
    for section in runbook_sections():
        for block in section.blocks:
            assert with_prefixes(block.text, section.key) == block.text
            rewritten(block.text, section.key)


def test_no_two_sections_write_into_one_folder(tmp_path: Path) -> None:
    """They share the working folder, where runs of one name with different settings would be renamed."""
    owners: dict[str, str] = {}
    for number, section in enumerate([*seed_sections(), *runbook_sections()]):
        texts = [with_prefixes(block.text, section.key) for block in (*section.preamble, *section.blocks)]
        for call in recorded(texts, tmp_path / str(number)):
            if call.program == DRIVER:
                assert owners.setdefault(call.variables["OUTPUT_ROOT"], section.key) == section.key
