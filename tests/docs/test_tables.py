"""Tables in hand-written pages have the rows of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seatrial.plan.schema import Place
from seatrial.report.trackers import TRACKERS
from seatrial_workloads.librispeech.options import parser as prepare_parser
from tests.cluster.command_line import FAULTS
from tests.docs.documented_commands import wrong_with_verb
from tests.docs.pages import DOCS, ROOT

EXPERIMENTS = ROOT / "src" / "seatrial_workloads" / "contrastive" / "hydra_config" / "configs" / "experiment"


def first_cells(page: str, heading: str) -> list[list[str]]:
    """Inline code in the first cell of each row of the first table under a heading; a row without any is left out."""
    section = f"\n{(DOCS / page).read_text()}".split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table, f"{page} has no table under {heading}"
    rows = [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in table.group().splitlines()[2:]]
    return [row for row in rows if row]


def compared(page: Path) -> dict[str, list[tuple[bool, bool]]]:
    """What the comparison with other tools has in each row, tool by tool: whether it is in bold, and whether it is nothing."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.read_text().splitlines() if line.startswith("| ")]
    return {label: [("**" in cell, cell == "–") for cell in cells] for label, *cells in rows if label}


def test_the_readme_compares_as_the_whole_table_does() -> None:
    whole, short = compared(DOCS / "comparison.md"), compared(ROOT / "README.md")
    assert len(short) > 5
    assert {label: whole.get(label) for label in short} == short


def test_options_of_prepare() -> None:
    known = {word for action in prepare_parser()._actions for word in action.option_strings if word.startswith("--")} - {"--help"}
    assert {cell.split()[0] for row in first_cells("data.md", "## Options") for cell in row} == known


def test_keys_of_a_hostfile_s_place() -> None:
    keys = {cell.partition(":")[0] for row in first_cells("many-hosts.md", "## With a hostfile") for cell in row}
    assert keys - set(Place.model_fields) == set()


def test_trackers() -> None:
    assert {row[0] for row in first_cells("tracking.md", "## Sending runs to a tracker")} == set(TRACKERS)


def test_experiments() -> None:
    named = {cell for row in first_cells("stage1.md", "### Experiments") for cell in row}
    assert named == {path.stem for path in EXPERIMENTS.glob("*.yaml")}


def test_faults_of_hosts() -> None:
    """Each is a verb of `python -m tests.cluster`, and so is what takes it back."""
    section = (DOCS / "cluster.md").read_text().split("\n## Faults\n", 1)[1].split("\n## ", 1)[0]
    cells = [cell for row in section.splitlines() if row.startswith("| `") for cell in (row.split("|")[1], row.split("|")[3])]
    verbs = {words.split()[0] for cell in cells for words in re.findall(r"`([^`]+)`", cell)}
    assert verbs == set(FAULTS)


@pytest.mark.parametrize("option", [row[0] for row in first_cells("watch.md", "# Watching a running campaign")])
def test_options_of_watch(option: str) -> None:
    assert wrong_with_verb(["watch", "OUT", "--web", *option.split()]) == ""


def test_plans_for_many_hosts() -> None:
    named = {str(Path(cell).name) for row in first_cells("many-hosts.md", "## Ready plans") for cell in row}
    assert {path.name for path in (ROOT / "plans" / "many-hosts").glob("*.yaml")} <= named
