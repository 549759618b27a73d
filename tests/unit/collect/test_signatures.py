"""The registry itself: every cause has its advice, every entry says what it must, and the pages made from it say it all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seatrial.collect.harmless import HARMLESS
from seatrial.collect.reference import markdown
from seatrial.collect.signature import STAGE1, Signature
from seatrial.collect.signatures import SIGNATURES, advice, general, of_exit_code, signature
from seatrial.records.outcome import Cause

ROOT = Path(__file__).parents[3]
SEEDS_ENTRIES = {
    "port_in_use", "start_limit", "telemetry_empty", "io_error", "deepspeed_missing", "stall", "pdsh_missing", "hostfile", "ninja_missing",
    "run_limit", "killed", "slow_start", "flash_attention_fp32", "manifest_header", "driver_log_folder", "ranks_left_behind",
}  # fmt: skip


def test_ids_are_words_and_each_is_there_once() -> None:
    ids = [entry.id for entry in SIGNATURES] + [entry.id for entry in HARMLESS]
    assert len(ids) == len(set(ids))
    assert [id for id in ids if not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", id)] == []


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.NONE])
def test_every_cause_of_a_bad_end_has_general_advice(cause: Cause) -> None:
    assert general(cause).cause is cause
    assert advice(cause)


@pytest.mark.parametrize("entry", SIGNATURES, ids=lambda entry: entry.id)
def test_an_entry_is_made_of_sentences_for_one_line_of_a_terminal(entry: Signature) -> None:
    assert entry.symptom and entry.why.endswith(".") and entry.action.endswith(".")
    assert entry.action[0].isupper() and entry.why[0] in "`ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert not any(character in text for text in (entry.symptom, entry.why, entry.action) for character in "\n\r\t")
    assert entry.symptom.count("`") % 2 == entry.why.count("`") % 2 == entry.action.count("`") % 2 == 0


@pytest.mark.parametrize("entry", [entry for entry in SIGNATURES if entry.patterns], ids=lambda entry: entry.id)
def test_a_pattern_tells_of_a_failure_and_matches_no_empty_line(entry: Signature) -> None:
    assert entry.cause is not Cause.NONE
    assert not any(re.search(pattern, line) for pattern in entry.patterns for line in ("", "step 3: loss 1.25", "[rank0]: step 3"))


def test_what_the_seeds_tell_of_is_there_and_belongs_to_stage_1() -> None:
    assert {id for id in SEEDS_ENTRIES if STAGE1 not in signature(id).topics} == set()
    assert [entry.id for entry in HARMLESS if STAGE1 not in entry.topics] == []


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("pdsh_missing", ("pdsh", "openssh-client", "--launcher pdsh", "--no_ssh", "--node_rank", "--master_addr", "--master_port")),
        ("ninja_missing", ("ninja-build", "build-essential", "torch_adam")),
        ("deepspeed_missing", ("CONDA_ENV", "PATH")),
        ("stall", ("NCCL_P2P_DISABLE=1", "that host only", "stacks/")),
        ("start_limit", ("launcher.log", "limits.start_s", "can be written")),
        ("io_error", ("storage", "run again on a healthy node")),
        ("port_in_use", ("ss -ltnp", "MASTER_PORT", "leave the port")),
        ("telemetry_empty", ("nvidia-smi", "/proc", "to be expected")),
        ("hostfile", ("test -s", "slots=N")),
        ("run_limit", ("limits.run_s", "RUN_TIMEOUT_SEC")),
    ],
)
def test_the_seeds_advice_is_in_it(id: str, words: tuple[str, ...]) -> None:
    assert [word for word in words if word not in signature(id).action] == []


@pytest.mark.parametrize(("code", "id"), [(137, "killed"), (-9, "killed"), (127, "program_missing"), (124, "timeout_command")])
def test_exit_codes_that_tell_something(code: int, id: str) -> None:
    found = of_exit_code(code)
    assert found is not None and found.id == id


@pytest.mark.parametrize("code", [None, 0, 1, 3, -15])
def test_exit_codes_that_tell_nothing(code: int | None) -> None:
    assert of_exit_code(code) is None


def test_cautions_that_the_registry_names_are_said_by_the_code() -> None:
    named = {entry.caution for entry in SIGNATURES if entry.caution}
    source = "".join(path.read_text() for path in (ROOT / "src" / "seatrial").rglob("*.py") if "signatures_of" not in path.name)
    assert named and [kind for kind in named if f'kind="{kind}"' not in source] == []


def test_the_page_tells_every_entry_and_every_cause() -> None:
    text = markdown()
    told = [entry for entry in SIGNATURES if _cell(entry.symptom) in text and _cell(entry.action) in text]
    assert told == list(SIGNATURES)
    assert [cause for cause in Cause if cause is not Cause.NONE and f"| `{cause.value}`" not in text] == []
    assert [entry.id for entry in HARMLESS if f"`{entry.id}`" not in text] == []


def test_the_page_of_stage_1_tells_its_entries_and_no_others() -> None:
    text = markdown(STAGE1)
    told = {entry.id for entry in SIGNATURES if _cell(entry.symptom) in text}
    assert told == {entry.id for entry in SIGNATURES if STAGE1 in entry.topics}
    assert "[docs/troubleshooting.md](../../../docs/troubleshooting.md)" in text


@pytest.mark.parametrize("page", ["docs/troubleshooting.md", "runbooks/stage1/docs/troubleshooting.md"])
def test_every_row_of_a_page_has_the_cells_of_its_head(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    columns = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert set(columns) <= {4, 5} and len(rows) > 20


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
